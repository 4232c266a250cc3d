"""How events change the state. Total and dull: nothing is rendered or chosen here, at the same cost at any width."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook import body as b
from perdure.dialects.playbook import events as p
from perdure.dialects.playbook.body import Body, Phase, TokenState
from perdure.dialects.playbook.errors import Error
from perdure.dialects.playbook.values import NOTHING, Patch, Value
from perdure.kernel import events as e
from perdure.kernel.outcomes import Succeeded


def evolve(body: Body, event: e.Event) -> None:
    body.seq += 1
    change = CHANGES.get(type(event))
    if change is not None:
        change(body, event)


# Tokens.


def _workflow_started(body: Body, event: p.WorkflowStarted) -> None:
    body.begun = True
    body.entry = event.entry.step
    body.workload = Value(event.workload)
    body.ctx.assign(event.ctx)
    body.ctx_size = event.size
    if event.timer:
        body.bounds[event.timer] = 0
    _add_token(body, event.entry, b.Boundary("workflow.started", at=event.at), event.at)


def _add_token(body: Body, new: p.NewToken, event: b.Boundary, at: int, parent: int = 0) -> b.Token:
    token = b.Token(new.step, Value(new.args), event, at, parent, new.arc)
    body.tokens[new.token] = token
    body.tokens_made = new.token
    if new.gated:
        body.stale[new.token] = None
    else:
        token.state = TokenState.ADMITTED
        body.admitted[new.token] = None
    return token


def _admission_judged(body: Body, event: p.AdmissionJudged) -> None:
    number = event.token
    token = body.tokens[number]
    token.decision = b.Decision(event.allow, event.rule, event.errors)
    body.stale.pop(number, None)
    if event.fate == "pending":
        token.state = TokenState.PENDING
        token.reads = event.reads
        body.pending[number] = None
        for name in event.reads:
            body.readers.setdefault(name, {})[number] = None
        return
    _leave_pending(body, number, token)
    if event.fate == "admitted":
        token.state = TokenState.ADMITTED
        body.admitted[number] = None
        body.waiting = False
    else:
        _discard(body, number, b.Ending.SKIPPED)


def _admission_unchanged(body: Body, event: p.AdmissionUnchanged) -> None:
    body.stale.pop(event.token, None)


def _leave_pending(body: Body, number: int, token: b.Token) -> None:
    body.pending.pop(number, None)
    for name in token.reads:
        readers = body.readers[name]
        del readers[number]
        if not readers:
            del body.readers[name]
    token.reads = ()


def _discard(body: Body, number: int, ending: str) -> None:
    token = body.tokens.pop(number)
    body.stale.pop(number, None)
    body.admitted.pop(number, None)
    if number == body.finalizing:
        body.final = "skipped"  # the finalization is no branch
    else:
        _end_branch(body, ending)
    if ending == b.Ending.STRANDED:
        body.stranded.append(b.Stranded(token.step, number, token.decision))


def _token_dropped(body: Body, event: p.TokenDropped) -> None:
    _leave_pending(body, event.token, body.tokens[event.token])
    _discard(body, event.token, event.ending)


def _end_branch(body: Body, ending: str) -> None:
    body.branches[ending] = body.branches.get(ending, 0) + 1


def _patch(body: Body, patch: Patch, size: int, run: int) -> None:
    """Change `ctx`, and put every gate that reads what was changed back into the queue, oldest first (PBK-064)."""
    body.ctx.assign(patch)
    body.ctx_size = size
    affected: set[int] = set(body.readers.get(b.ANY_NAME, ()))
    for key, _ in patch:
        name = key.partition(".")[0]
        body.writers[name] = (run, body.seq)
        affected.update(body.readers.get(name, ()))
    for number in sorted(affected):
        body.stale[number] = None


def _ctx_patched(body: Body, event: p.CtxPatched) -> None:
    _patch(body, event.set_ctx, event.size, 0)


# Step-runs and their threads.


def _step_started(body: Body, event: p.StepStarted) -> None:
    token = body.tokens.pop(event.token)
    del body.admitted[event.token]
    run = b.StepRun(token.step, event.token, token.args, event.at, event.token == body.finalizing, event.timers)
    run.seq = body.seq
    body.runs[event.run] = run
    body.runs_made = event.run
    for timer in event.timers:
        body.bounds[timer] = event.run
    body.tallies.setdefault(token.step, b.Tally()).runs += 1
    body.order.append((token.step, "started", body.seq))
    run.error = event.error
    if event.items is not None:
        run.loop = b.LoopState(Value(event.items), event.total, event.limit)
        _queue_loop(body, event.run, run.loop)
    elif event.tasks and event.error is None:
        _open_thread(body, event.run, run, b.ALONE)
    else:
        body.closing[event.run] = None


def _open_thread(body: Body, number: int, run: b.StepRun, index: int) -> None:
    body.threads_made += 1
    body.threads[body.threads_made] = b.Thread(number, index)
    run.threads[body.threads_made] = None
    body.agenda[body.threads_made] = None


def _queue_loop(body: Body, number: int, loop: b.LoopState) -> None:
    if loop.is_over:
        body.looping.pop(number, None)
        body.closing[number] = None
    elif loop.can_start:
        body.looping[number] = None
    else:
        body.looping.pop(number, None)


def _iteration_started(body: Body, event: p.IterationStarted) -> None:
    run = body.runs[event.run]
    loop = run.loop
    assert loop is not None
    loop.active += 1
    if event.index == loop.next:
        loop.next += 1
        body.tallies[run.step].iterations += 1
    else:
        loop.again.remove(event.index)
    _open_thread(body, event.run, run, event.index)
    _queue_loop(body, event.run, loop)


def _attempt_started(body: Body, event: p.AttemptStarted) -> None:
    thread = body.threads[event.thread]
    thread.began = event.at
    thread.number = event.number
    thread.phase = Phase.WORKING
    body.agenda.pop(event.thread, None)
    if event.number:
        body.awaited[event.number] = event.thread
    if event.timer:
        thread.timer = event.timer
        body.attempt_bounds[event.timer] = event.thread
    tally = body.tallies[body.runs[thread.run].step]
    tally.task_attempts[event.label] = tally.task_attempts.get(event.label, 0) + 1
    if thread.attempt == 1:
        tally.task_runs[event.label] = tally.task_runs.get(event.label, 0) + 1


def _attempt_ended(body: Body, event: p.AttemptEnded) -> None:
    thread = body.threads[event.thread]
    match event.source:
        case "landed":
            assert thread.outcome is not None
            result = thread.outcome.result
        case "prev":
            result = thread.prev
        case _:
            result = Value(event.result)
    thread.outcome = b.Outcome(result, event.error, event.extras, event.at - thread.began, event.at)
    body.awaited.pop(thread.number, None)
    body.attempt_bounds.pop(thread.timer, None)
    thread.number = thread.timer = 0
    thread.phase = Phase.JUDGING
    body.agenda[event.thread] = None


def _outcome_judged(body: Body, event: p.OutcomeJudged) -> None:
    thread = body.threads[event.thread]
    run = body.runs[thread.run]
    assert thread.outcome is not None
    body.agenda.pop(event.thread, None)
    if event.set_ctx and event.keeps_back:
        thread.patch += event.set_ctx
    elif event.set_ctx:
        _patch(body, event.set_ctx, event.size, thread.run)
    if event.set_iter:
        thread.iter.assign(event.set_iter)
    thread.results[event.label] = thread.outcome.result
    run.attempt = thread.attempt
    if event.fate in ("done", "failed"):
        _end_thread(body, event, thread, run)
        return
    if event.is_visit:
        thread.prev = thread.outcome.result
        thread.attempt = 1
        thread.visits += 1
        thread.position = event.to
    else:
        thread.attempt += 1
    if event.timer:
        thread.phase = Phase.RESTING
        thread.number = event.timer
        body.awaited[event.timer] = event.thread
    else:
        thread.phase = Phase.READY
        body.agenda[event.thread] = None


def _end_thread(body: Body, event: p.OutcomeJudged, thread: b.Thread, run: b.StepRun) -> None:
    assert thread.outcome is not None
    del body.threads[event.thread]
    del run.threads[event.thread]
    loop = run.loop
    if loop is None:
        run.result = thread.outcome.result if event.fate == "done" else NOTHING
        run.error, run.label = event.error, event.label
        body.closing[thread.run] = None
        return
    index = thread.index
    loop.active -= 1
    if event.fate == "done":
        loop.results[index] = thread.outcome.result
        if thread.patch:
            loop.patches[index] = thread.patch
    elif event.repeats:
        loop.again.append(index)
        loop.retries[index] = loop.retries.get(index, 0) + 1
    else:
        _fail_iteration(loop, index, event)
    _queue_loop(body, thread.run, loop)


def _fail_iteration(loop: b.LoopState, index: int, event: p.OutcomeJudged) -> None:
    loop.failed += 1
    loop.stopped = loop.stopped or event.stops
    if loop.lowest < 0 or index < loop.lowest:
        loop.lowest, loop.error, loop.label = index, event.error, event.label


def _step_ended(body: Body, event: p.StepEnded) -> None:
    run = body.runs[event.run]
    body.closing.pop(event.run, None)
    _forget_threads(body, run)
    for timer in run.timers:
        body.bounds.pop(timer, None)
    if event.set_ctx:
        _patch(body, event.set_ctx, event.size, event.run)
    loop = run.loop
    if event.error is None and loop is not None:
        run.result = Value(parts=[loop.results.get(index) for index in range(loop.total)], failed=loop.failed)
    elif loop is not None and not run.label:
        run.label = loop.label
    run.error = event.error
    is_ok = event.error is None
    result = run.result if is_ok else NOTHING
    run.result = result
    run.boundary = b.Boundary(
        event.name, run.step, event.run, is_ok, result, event.error, run.args, run.attempt, event.at, event.fanin
    )
    body.order.append((run.step, "ended", body.seq))
    _count_end(body, event.run, run, is_ok)
    body.routing[event.run] = None
    for number in sorted(body.readers.get(b.STEPS, ())):
        body.stale[number] = None


def _forget_threads(body: Body, run: b.StepRun) -> None:
    for number in run.threads:
        thread = body.threads.pop(number)
        body.agenda.pop(number, None)
        body.awaited.pop(thread.number, None)
        body.attempt_bounds.pop(thread.timer, None)
    run.threads.clear()


def _count_end(body: Body, number: int, run: b.StepRun, is_ok: bool) -> None:
    body.looping.pop(number, None)
    tally = body.tallies[run.step]
    tally.finished += 1
    tally.ok = is_ok
    tally.result = run.result
    tally.result_of = number
    if is_ok:
        tally.done += 1
    else:
        tally.failed += 1


def _next_evaluated(body: Body, event: p.NextEvaluated) -> None:
    run = body.runs.pop(event.run)
    body.routing.pop(event.run, None)
    assert run.boundary is not None
    for new in event.tokens:
        _add_token(body, new, run.boundary, event.at, event.run)
    if run.is_final:
        body.final = "failed" if run.error is not None else "done"
        body.final_error = run.error
    for error in event.failures:
        _note_failure(body, event.run, run, error, event.handled and error is event.failures[0])
    if event.no_match_is_error:
        body.unrouted += 1
    if event.ending:
        _end_branch(body, event.ending)
        body.last_leaf = run.result


def _note_failure(body: Body, number: int, run: b.StepRun, error: Error, handled: bool) -> None:
    label = run.label if error is run.error or error == run.error else ""
    body.failures.append(b.Failure(run.step, number, label, handled, error))
    if run.is_final:
        return  # the completion policy has a rule of its own for it (PBK-144)
    if handled:
        body.handled += 1
    else:
        body.unhandled += 1


# The end of all.


def _workflow_waiting(body: Body, event: p.WorkflowWaiting) -> None:
    body.waiting = True
    body.wait_timer = event.timer


def _wait_expired(body: Body, event: p.WaitExpired) -> None:
    body.waiting = False
    body.wait_timer = 0
    body.patience_over = True


def _workflow_stopped(body: Body, event: p.WorkflowStopped) -> None:
    body.stopped = event.error
    if event.is_failure:
        body.failures.append(b.Failure("", 0, "", False, event.error))


def _run_withdrawn(body: Body, event: p.RunWithdrawn) -> None:
    run = body.runs.pop(event.run)
    _forget_threads(body, run)
    for queue in (body.closing, body.looping, body.routing):
        queue.pop(event.run, None)
    for timer in run.timers:
        body.bounds.pop(timer, None)
    body.order.append((run.step, "ended", body.seq))
    if run.is_final:
        body.final = "failed"
    else:
        _end_branch(body, b.Ending.ABORTED)


def _workflow_quiesced(body: Body, event: p.WorkflowQuiesced) -> None:
    body.provisional = event.status
    body.finalizing = event.token.token
    token = _add_token(body, event.token, b.Boundary("workflow.quiesced", at=event.at), event.at)
    token.is_final = True


def _workflow_finished(body: Body, event: p.WorkflowFinished) -> None:
    body.status = event.status
    body.code = event.code


def _paused(body: Body, event: p.Paused) -> None:
    body.paused = True


def _resumed(body: Body, event: p.Resumed) -> None:
    body.paused = False


# The kernel's facts.


def _task_ended(body: Body, event: e.TaskEnded) -> None:
    _land(body, body.awaited.pop(event.task, 0), event.outcome)


def _child_ended(body: Body, event: e.ChildEnded) -> None:
    _land(body, body.awaited.pop(event.child, 0), event.outcome)


def _land(body: Body, number: int, outcome: Any) -> None:
    """Keep what was given where it is; the move that follows says what it means."""
    body.landed = number
    if number:
        thread = body.threads[number]
        given = Value(outcome.value) if isinstance(outcome, Succeeded) else NOTHING
        thread.outcome = b.Outcome(given, None, None, 0, 0)


def _timer_fired(body: Body, event: e.TimerFired) -> None:
    number = body.awaited.pop(event.timer, 0)
    if number:
        thread = body.threads[number]
        thread.number = 0
        thread.phase = Phase.READY
        body.agenda[number] = None


def _timer_dropped(body: Body, event: e.TimerDropped) -> None:
    body.awaited.pop(event.timer, None)
    if event.timer == body.wait_timer:
        body.wait_timer = 0


Change = Callable[[Body, Any], None]

CHANGES: dict[type[e.Event], Change] = {
    p.WorkflowStarted: _workflow_started,
    p.AdmissionJudged: _admission_judged,
    p.AdmissionUnchanged: _admission_unchanged,
    p.TokenDropped: _token_dropped,
    p.StepStarted: _step_started,
    p.IterationStarted: _iteration_started,
    p.AttemptStarted: _attempt_started,
    p.AttemptEnded: _attempt_ended,
    p.OutcomeJudged: _outcome_judged,
    p.StepEnded: _step_ended,
    p.NextEvaluated: _next_evaluated,
    p.CtxPatched: _ctx_patched,
    p.WorkflowWaiting: _workflow_waiting,
    p.WaitExpired: _wait_expired,
    p.WorkflowStopped: _workflow_stopped,
    p.RunWithdrawn: _run_withdrawn,
    p.WorkflowQuiesced: _workflow_quiesced,
    p.WorkflowFinished: _workflow_finished,
    p.Paused: _paused,
    p.Resumed: _resumed,
    e.TaskEnded: _task_ended,
    e.ChildEnded: _child_ended,
    e.TimerFired: _timer_fired,
    e.TimerDropped: _timer_dropped,
}
