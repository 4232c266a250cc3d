"""Ends: boundary events of step-runs, time limits, stops and cancellation."""

from perdure.dialects.playbook.plan.program import Program, Step
from perdure.dialects.playbook.run.ctx_merge import merge
from perdure.dialects.playbook.run.ctx_patches import BadPatch, Growths, growing_keys, measure, render, shortened
from perdure.dialects.playbook.run.loop import failure_of
from perdure.dialects.playbook.run.token_deadlines import release_token
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Patch
from perdure.dialects.playbook.values import results
from perdure.dialects.playbook.values.template_scopes import control_makers, gather_all
from perdure.kernel.outcomes import Cancelled, Failed, Status
from perdure.kernel.turn import Turn


def end_at_once(turn: Turn, code: str, message: str) -> None:
    """The execution fails before any token exists."""
    turn.emit(p.WorkflowFinished("failed", code))
    turn.end(Status.FAILED, Failed(code, message, retryable=False))


# A step-run.


def close(turn: Turn, number: int) -> None:
    """All threads of a step-run have ended: record its boundary event (PBK-073, 110)."""
    body: b.Body = turn.body
    program: Program = turn.program
    run = body.runs[number]
    loop = program.steps[run.step].loop
    name, failed, fanin = "step.done", run.error, ""
    patch: Patch = ()
    growths: Growths = {}
    size = body.ctx_size
    if run.loop is not None and loop is not None:
        name = "loop.done"
        failed = failure_of(loop, run.loop)
        if loop.fanout is not None:
            fanin = "failed" if failed is not None else "partial" if run.loop.failed else "complete"
        if failed is None:
            try:
                patch, size = merge(body, loop, run.loop)
            except BadPatch as bad:
                failed = bad.problem
    result = results.step_result(turn, number, loop) if failed is None else results.NO_RESULT
    if failed is None and program.steps[run.step].set:
        boundary = b.Boundary(
            name, run.step, number, True, result.value, None, run.args, run.attempt, turn.now, fanin, result.uri
        )
        try:
            patch, size = _with_step_assignments(turn, boundary, run, patch, growths)
        except BadPatch as bad:
            failed, patch, size = bad.problem, (), body.ctx_size
    if failed is not None:
        name, result = "step.failed", results.NO_RESULT
    for timer in run.timers:
        turn.drop_timer(timer)
    if patch:
        patch, grown = shortened(turn, patch, _growing(program.steps[run.step]), growths)
        if grown:
            turn.emit(p.CtxGrows(grown))
    turn.emit(
        p.StepEnded(number, name, turn.now, failed, patch, size, fanin, result.uri, result.manifest, result.keeps)
    )


def _growing(step: Step) -> frozenset[str]:
    """Keys of `ctx` to which the end of the step adds, through its own `set` or a reducer of its loop."""
    reducers = {} if step.loop is None else step.loop.reduce
    return growing_keys(step.set) | frozenset(key for key, reducer in reducers.items() if reducer == "append")


def _with_step_assignments(
    turn: Turn, boundary: b.Boundary, run: b.StepRun, merged: Patch, growths: Growths
) -> tuple[Patch, int]:
    """What the step itself assigns to `ctx` after success (PBK-158), on top of what its loop assigned."""
    body: b.Body = turn.body
    assigned = turn.program.steps[run.step].set
    makers = control_makers(turn, run.args, boundary, run.local)
    if merged:
        makers["ctx"] = lambda _: body.ctx.overlaid(merged)
    patch = (*merged, *render(assigned, gather_all(makers, assigned.values()), "ctx", growths))
    return patch, measure(body, patch)


def expire(turn: Turn, number: int) -> None:
    """The time limit of a step-run has passed (PBK-193)."""
    run = turn.body.runs.get(number)
    if run is None or run.boundary is not None:
        return  # its boundary came first
    _release(turn, run, "the time limit of the step-run has passed")
    failed = error("timeout", f"step {run.step!r} did not end in time", "STEP_TIMEOUT", source=run.step)
    turn.emit(p.StepEnded(number, "step.failed", turn.now, failed, (), turn.body.ctx_size))


def interrupt(turn: Turn, number: int) -> None:
    """The time limit of an attempt has passed: that is an outcome, and its rules decide (PBK-193)."""
    awaited = turn.body.threads[number].number
    failed = error("timeout", "the task did not end in time", "TASK_TIMEOUT")
    if awaited in turn.state.children:
        turn.cancel_child(awaited, "the time limit of the task has passed")
    elif awaited in turn.state.tasks:
        task = turn.state.tasks[awaited]
        if not turn.is_task_queued(awaited):
            return  # a worker has it: the limit was for the queue (PBK-101)
        message = f"no worker of pool {task.pool!r} has taken the task ({task.provider}) in time"
        failed = error("timeout", message, "NO_CAPABLE_WORKER")
        turn.cancel_task(awaited, message)
    turn.emit(p.AttemptEnded(number, turn.now, failed))


def _release(turn: Turn, run: b.StepRun, reason: str) -> None:
    """Cancel all work of a step-run; results that arrive later are ignored."""
    body: b.Body = turn.body
    for number in run.threads:
        awaited = body.threads[number].number
        if awaited in turn.state.tasks:
            turn.cancel_task(awaited, reason)
        elif awaited in turn.state.children:
            turn.cancel_child(awaited, reason)
        elif awaited:
            turn.drop_timer(awaited)
        turn.drop_timer(body.threads[number].timer)
    for timer in run.timers:
        turn.drop_timer(timer)


# The execution.


def stop(turn: Turn, failed: Error, *, is_failure: bool) -> None:
    """Nothing new is started or routed; tasks that a worker has started may end (`fail_fast`, PBK-138)."""
    turn.emit(p.WorkflowStopped(failed, is_failure))
    _drop_tokens(turn)
    body: b.Body = turn.body
    for number in [number for number, run in body.runs.items() if not run.is_final and _is_untouched(body, run)]:
        _withdraw(turn, number, "the execution was stopped")


def _is_untouched(body: b.Body, run: b.StepRun) -> bool:
    """No attempt of any of its tasks has begun."""
    if run.boundary is not None or (run.loop is not None and (run.loop.results or run.loop.claims)):
        return False
    threads = [body.threads[number] for number in run.threads]
    return bool(threads or run.loop) and all(
        thread.phase is b.ThreadPhase.READY and thread.attempt == 1 and thread.visits == 1 for thread in threads
    )


def _drop_tokens(turn: Turn) -> None:
    body: b.Body = turn.body
    turn.drop_timer(body.wait_timer)
    for number in [number for number in body.tokens if number != body.finalizing]:
        drop_token(turn, number, "stopped", b.BranchEnding.ABORTED)


def drop_token(turn: Turn, number: int, reason: str, ending: str) -> None:
    release_token(turn, number)
    turn.emit(p.TokenDropped(number, reason, ending))


def _withdraw(turn: Turn, number: int, reason: str) -> None:
    _release(turn, turn.body.runs[number], reason)
    turn.emit(p.RunWithdrawn(number, reason))


def time_out(turn: Turn) -> None:
    """The time limit of the execution has passed: like `fail_fast`, and running work is stopped (PBK-193)."""
    body: b.Body = turn.body
    if body.stopped is None:
        turn.emit(p.WorkflowStopped(error("timeout", "the execution did not end in time", "EXECUTION_TIMEOUT"), True))
    _drop_tokens(turn)
    for number in list(body.runs):
        _withdraw(turn, number, "the time limit of the execution has passed")


def cancel(turn: Turn, reason: str) -> None:
    """At once: no routing and no final step follow (PBK-190, 191)."""
    body: b.Body = turn.body
    for number in list(body.tokens):
        drop_token(turn, number, "cancelled", b.BranchEnding.ABORTED)
    for number in list(body.runs):
        _withdraw(turn, number, reason or "cancelled")
    turn.emit(p.WorkflowFinished("cancelled", ""))
    turn.end(Status.CANCELLED, Cancelled(reason))
