"""Step-runs, from the token they consume to the tokens they create."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body
from perdure.dialects.playbook.state.folding.births import open_run, open_thread
from perdure.dialects.playbook.state.folding.forks import lineage_of, open_fork, remove_branch
from perdure.dialects.playbook.state.folding.threads import end_only_thread, forget_threads, hold, queue_loop
from perdure.dialects.playbook.state.folding.tokens import add_tokens, consume, end_branch, patch_ctx
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import Instant


def _step_started(body: Body, event: p.StepStarted) -> None:
    token = consume(body, event.token)
    run = open_run(body, event.run, event.token, token.step, token.args, event.at, token.fork)
    run.timers = event.timers
    for timer in event.timers:
        body.bounds[timer] = event.run
    run.error = event.error
    if event.error is not None:
        run.origin = token
    if event.items is not None:
        run.loop = LoopState(Value(event.items), event.total, event.limit, event.mode or "sequential")
        queue_loop(body, event.run, run.loop)
    elif event.tasks and event.error is None:
        open_thread(body, event.run, run, b.ALONE)
    else:
        body.closing[event.run] = None


def _step_ended(body: Body, event: p.StepEnded) -> None:
    run = body.runs[event.run]
    forget_threads(body, run)
    for timer in run.timers:
        body.bounds.pop(timer, None)
    if event.set_ctx:
        patch_ctx(body, event.set_ctx, event.size, event.run)
    loop = run.loop
    if event.error is None and loop is not None:
        run.result = loop.result
        if event.manifest is not None:
            run.result = Value(parts=run.result.parts, failed=loop.failed, reference=event.manifest.reference)
            hold(body, event.manifest, run.result, run)
    elif loop is not None and not run.label:
        run.label = loop.label
    run.error = event.error
    if event.error is not None:
        run.result = NOTHING
    body.looping.pop(event.run, None)
    _end(body, event.run, run, event.name, event.at, event.uri, event.keeps, event.fanin)


def _step_passed(body: Body, event: p.StepPassed) -> None:
    """Counts as three events: an attempt, its evaluation, a boundary."""
    end_only_thread(body, event.thread, event.label, event.at)
    body.seq += 2
    _end(body, event.run, body.runs[event.run], "step.done", event.at, event.uri, event.keeps)


def _end(
    body: Body, number: int, run: b.StepRun, name: str, at: Instant, uri: str, keeps: bool, fanin: str = ""
) -> None:
    """The boundary of a step-run that has its result, or its error."""
    result, error, loop = run.result, run.error, run.loop
    is_ok = error is None
    if keeps:
        hold(body, p.Stored(uri, None), result)
    run.uri = uri
    counts = (0, 0) if loop is None else (loop.succeeded, loop.failed)
    step = run.step
    run.boundary = b.Boundary(name, step, number, is_ok, result, error, run.args, run.attempt, at, fanin, uri, counts)
    body.order.append((step, "ended", body.seq))
    tally = body.tallies[step]
    tally.finished += 1
    tally.ok = is_ok
    tally.result = result
    tally.result_of = number
    tally.uri = uri
    if is_ok:
        tally.done += 1
    else:
        tally.failed += 1
    body.closing.pop(number, None)
    body.routing[number] = None
    if body.readers:
        for waiting in sorted(body.readers.get(b.STEPS, ())):
            body.unevaluated[waiting] = None


def _next_evaluated(body: Body, event: p.NextEvaluated) -> None:
    number, tokens = event.run, event.tokens
    run = body.runs.pop(number)
    body.routing.pop(number, None)
    for uri in run.temporary_bodies:
        body.stored_bodies.pop(uri, None)
    assert run.boundary is not None
    if event.set_ctx:
        patch_ctx(body, event.set_ctx, event.size, number)
    fork = run.fork
    if len(tokens) > 1 and body.forks:
        fork = number
        open_fork(body, fork, run.fork, event.joins)
    if tokens:
        add_tokens(body, tokens, run.boundary, event.at, number, fork)
    else:
        _keep_unfinished(body, event, run)
    if body.forks:
        remove_branch(body, run.fork)
    if run.is_final:
        body.final = "failed" if run.error is not None else "done"
        body.final_error = run.error
    for error in event.failures:
        _note_failure(body, event.run, run, error, event.handled and error is event.failures[0])
    if event.no_match_is_error:
        body.unrouted += 1
    if event.ending:
        end_branch(body, event.ending)
        body.last_leaf = run.result


def _keep_unfinished(body: Body, event: p.NextEvaluated, run: b.StepRun) -> None:
    """It failed and nothing follows from that, or it was not routed because the execution had stopped."""
    is_failed = bool(event.failures) and not event.handled
    if is_failed or (not event.mode and event.ending == b.BranchEnding.ABORTED):
        body.unfinished_runs[event.run] = b.UnfinishedRun(
            run, event.ending, lineage_of(body, run.fork), run.error is not None, event.no_match_is_error
        )


def _note_failure(body: Body, number: int, run: b.StepRun, error: Error, handled: bool) -> None:
    label = run.label if error is run.error or error == run.error else ""
    body.failures.append(b.BranchFailure(run.step, number, label, handled, error))
    if run.is_final:
        return  # the completion policy has a rule of its own for it (PBK-144)
    if handled:
        body.handled += 1
    else:
        body.unhandled += 1


def _run_withdrawn(body: Body, event: p.RunWithdrawn) -> None:
    run = body.runs.pop(event.run)
    forget_threads(body, run)
    for uri in run.temporary_bodies:
        body.stored_bodies.pop(uri, None)
    for queue in (body.closing, body.looping, body.routing):
        queue.pop(event.run, None)
    for timer in run.timers:
        body.bounds.pop(timer, None)
    body.order.append((run.step, "ended", body.seq))
    ending = "" if run.is_final else b.BranchEnding.ABORTED
    body.unfinished_runs[event.run] = b.UnfinishedRun(run, ending, lineage_of(body, run.fork), False)
    if run.is_final:
        body.final = "failed"
    else:
        end_branch(body, b.BranchEnding.ABORTED)
    remove_branch(body, run.fork)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.StepStarted: _step_started,
    p.StepEnded: _step_ended,
    p.StepPassed: _step_passed,
    p.NextEvaluated: _next_evaluated,
    p.RunWithdrawn: _run_withdrawn,
}
