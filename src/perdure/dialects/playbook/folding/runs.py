"""Step-runs, from the token they consume to the tokens they leave."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook import body as b
from perdure.dialects.playbook import events as p
from perdure.dialects.playbook.body import Body
from perdure.dialects.playbook.errors import Error
from perdure.dialects.playbook.folding.forks import gone, open_fork
from perdure.dialects.playbook.folding.threads import forget_threads, hold, open_thread, queue_loop
from perdure.dialects.playbook.folding.tokens import add_token, end_branch, patch_ctx
from perdure.dialects.playbook.values import NOTHING, Value
from perdure.kernel.events import Event


def _step_started(body: Body, event: p.StepStarted) -> None:
    token = body.tokens.pop(event.token)
    del body.admitted[event.token]
    run = b.StepRun(token.step, event.token, token.args, event.at, event.token == body.finalizing, event.timers)
    run.seq = body.seq
    run.fork = token.fork
    body.runs[event.run] = run
    body.runs_made = event.run
    for timer in event.timers:
        body.bounds[timer] = event.run
    body.tallies.setdefault(token.step, b.Tally()).runs += 1
    body.order.append((token.step, "started", body.seq))
    run.error = event.error
    if event.items is not None:
        run.loop = b.LoopState(Value(event.items), event.total, event.limit, event.mode or "sequential")
        queue_loop(body, event.run, run.loop)
    elif event.tasks and event.error is None:
        open_thread(body, event.run, run, b.ALONE)
    else:
        body.closing[event.run] = None


def _step_ended(body: Body, event: p.StepEnded) -> None:
    run = body.runs[event.run]
    body.closing.pop(event.run, None)
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
    is_ok = event.error is None
    result = run.result if is_ok else NOTHING
    run.result = result
    if event.keeps:
        hold(body, p.Stored(event.uri, None), result)
    run.uri = event.uri
    run.boundary = b.Boundary(
        event.name,
        run.step,
        event.run,
        is_ok,
        result,
        event.error,
        run.args,
        run.attempt,
        event.at,
        event.fanin,
        event.uri,
        (0, 0) if loop is None else (len(loop.results), loop.failed),
    )
    body.order.append((run.step, "ended", body.seq))
    _count_end(body, event.run, run, is_ok)
    body.routing[event.run] = None
    for number in sorted(body.readers.get(b.STEPS, ())):
        body.stale[number] = None


def _count_end(body: Body, number: int, run: b.StepRun, is_ok: bool) -> None:
    body.looping.pop(number, None)
    tally = body.tallies[run.step]
    tally.finished += 1
    tally.ok = is_ok
    tally.result = run.result
    tally.result_of = number
    tally.uri = run.uri
    if is_ok:
        tally.done += 1
    else:
        tally.failed += 1


def _next_evaluated(body: Body, event: p.NextEvaluated) -> None:
    run = body.runs.pop(event.run)
    body.routing.pop(event.run, None)
    for uri in run.passing:
        body.held.pop(uri, None)
    assert run.boundary is not None
    if event.set_ctx:
        patch_ctx(body, event.set_ctx, event.size, event.run)
    fork = run.fork
    if len(event.tokens) > 1 and body.forks:
        fork = event.run
        open_fork(body, fork, run.fork, event.joins)
    for new in event.tokens:
        add_token(body, new, run.boundary, event.at, event.run, fork)
    gone(body, run.fork)
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


def _note_failure(body: Body, number: int, run: b.StepRun, error: Error, handled: bool) -> None:
    label = run.label if error is run.error or error == run.error else ""
    body.failures.append(b.Failure(run.step, number, label, handled, error))
    if run.is_final:
        return  # the completion policy has a rule of its own for it (PBK-144)
    if handled:
        body.handled += 1
    else:
        body.unhandled += 1


def _run_withdrawn(body: Body, event: p.RunWithdrawn) -> None:
    run = body.runs.pop(event.run)
    forget_threads(body, run)
    for uri in run.passing:
        body.held.pop(uri, None)
    for queue in (body.closing, body.looping, body.routing):
        queue.pop(event.run, None)
    for timer in run.timers:
        body.bounds.pop(timer, None)
    body.order.append((run.step, "ended", body.seq))
    if run.is_final:
        body.final = "failed"
    else:
        end_branch(body, b.Ending.ABORTED)
    gone(body, run.fork)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.StepStarted: _step_started,
    p.StepEnded: _step_ended,
    p.NextEvaluated: _next_evaluated,
    p.RunWithdrawn: _run_withdrawn,
}
