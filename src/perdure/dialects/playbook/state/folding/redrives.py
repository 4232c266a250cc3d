"""A redrive: tokens and step-runs that failed or were stopped are put back, and what they had counted as is undone."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body, TokenState
from perdure.dialects.playbook.state.folding.births import open_thread
from perdure.dialects.playbook.state.folding.forks import put_back
from perdure.dialects.playbook.state.folding.threads import queue_loop
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.kernel.events import Event, RunForked, RunMigrated
from perdure.kernel.json_values.values import Instant


def _workflow_reopened(body: Body, event: p.WorkflowReopened) -> None:
    body.status = body.code = ""
    body.stopped = None
    body.paused = body.waiting = body.wait_expired = False
    body.wait_timer = 0
    body.stranded = []
    body.is_changed = False
    if event.workload is not None:
        body.workload = Value(event.workload)
    body.bounds = {event.timer: 0} if event.timer else {}
    body.awaited, body.attempt_bounds, body.token_bounds = {}, {}, {}
    runs, body.unfinished_runs = body.unfinished_runs, {}
    tokens, body.unfinished_tokens = body.unfinished_tokens, {}
    _forget_failures(body, runs)
    if body.finalizing:
        _forget_finalization(body, runs, is_whole=bool(tokens) or not all(kept.run.is_final for kept in runs.values()))
    for number, token in tokens.items():
        body.branches[token.ending] -= 1
        _put_token_back(body, number, token, event.at)
    timers = dict(event.timers)
    for number, kept in runs.items():
        _put_run_back(body, number, kept, timers.get(number, ()), event.at)


def _forget_failures(body: Body, runs: dict[int, b.UnfinishedRun]) -> None:
    """Those of what is done again, of joins, and of the execution as a whole."""
    failures: list[b.BranchFailure] = []
    for failure in body.failures:
        is_whole = not failure.run
        if failure.handled or not (is_whole or failure.run in runs):
            failures.append(failure)
        elif failure.step and not (failure.run and runs[failure.run].run.is_final):
            body.unhandled -= 1
    body.failures = failures


def _forget_finalization(body: Body, runs: dict[int, b.UnfinishedRun], *, is_whole: bool) -> None:
    """The final step runs again at the new end. If nothing but that step has failed, it goes on instead."""
    body.final, body.final_error = "", None
    if is_whole or not runs:
        body.finalizing, body.finalizes_again = 0, True
        for number in [number for number, kept in runs.items() if kept.run.is_final]:
            del runs[number]


def _put_token_back(body: Body, number: int, kept: b.UnfinishedToken, at: Instant) -> None:
    put_back(body, kept.lineage, kept.token.fork)
    _queue_token(body, number, kept.token, at)


def _queue_token(body: Body, number: int, token: b.Token, at: Instant) -> None:
    """Its deadline begins anew, like every time limit."""
    body.tokens[number] = token
    token.at, token.timer = at, 0
    if token.branch and token.state is not TokenState.ADMITTED:
        token.state, token.held_by = TokenState.CREATED, b.WHOLE
        body.arriving[number] = None
    elif token.state is TokenState.ADMITTED:
        body.admitted[number] = None
    else:
        token.state, token.decision = TokenState.CREATED, None
        body.unevaluated[number] = None


def _put_run_back(body: Body, number: int, kept: b.UnfinishedRun, timers: tuple[int, ...], at: Instant) -> None:
    run = kept.run
    tally = body.tallies[run.step]
    if kept.ending:
        body.branches[kept.ending] -= 1
    if kept.is_unrouted:
        body.unrouted -= 1
    if kept.is_counted:
        tally.failed -= 1
        tally.finished -= 1
    if run.origin is not None:  # it could not begin: it consumes its token once more
        tally.runs -= 1
        _put_origin_back(body, kept, run.origin, at)
        return
    put_back(body, kept.lineage, run.fork)
    body.runs[number] = run
    run.timers = timers
    body.bounds |= dict.fromkeys(timers, number)
    if run.boundary is not None and run.error is None:
        body.routing[number] = None  # it had succeeded
        return
    body.order.append((run.step, "started", body.seq))
    run.boundary, run.error, run.result = None, None, NOTHING
    if run.loop is not None:
        _reopen_loop(body, number, run, run.loop)
    elif run.stopped_threads:
        open_thread(body, number, run, b.ALONE)
    else:
        body.closing[number] = None


def _put_origin_back(body: Body, kept: b.UnfinishedRun, origin: b.Token, at: Instant) -> None:
    """A gate decides again; a join waits again for the branches that had not arrived in time."""
    if not origin.parts:
        put_back(body, kept.lineage, kept.run.fork)
        _queue_token(body, kept.run.token, origin, at)
        return
    for number, part in origin.parts:
        _put_token_back(body, number, part, at)
    token = origin.parts[0][1].token
    fork = body.forks[token.fork].keys.get(token.step, b.WHOLE)
    if tracker := body.forks[fork].trackers.get(token.step):
        tracker.fired -= 1


def _reopen_loop(body: Body, number: int, run: b.StepRun, loop: LoopState) -> None:
    loop.failed, loop.lowest_failed, loop.error, loop.label = 0, -1, None, ""
    loop.stopped, loop.active, loop.claim_error = False, 0, None
    if loop.claiming:  # it was stopped with the run: the same frame is claimed, under the same key
        run.stopped_threads.pop(b.ALONE - loop.claims, None)
        loop.claiming, loop.claims = False, loop.claims - 1
    loop.repeats = sorted({*loop.repeats, *run.stopped_threads})
    queue_loop(body, number, loop)


def _run_migrated(body: Body, event: RunMigrated) -> None:
    """Steps get the names that they have in the new document, and its gates decide anew about tokens that wait."""
    mapping = event.mapping
    tokens = [*body.tokens.values(), *(kept.token for kept in body.unfinished_tokens.values())]
    for token in tokens:
        token.step = mapping.get(token.step, token.step)
    for kept in body.unfinished_runs.values():
        kept.run.step = mapping.get(kept.run.step, kept.run.step)
        origin = kept.run.origin
        for token in () if origin is None else (origin, *(part.token for _, part in origin.parts)):
            token.step = mapping.get(token.step, token.step)
    tallies = {mapping.get(name, name): tally for name, tally in body.tallies.items()}
    body.tallies = {name: tally for name, tally in tallies.items() if name}
    body.order = [(mapping.get(name, name), what, seq) for name, what, seq in body.order]
    body.begun_since = {mapping.get(name, name): None for name in body.begun_since or ()}
    body.readers.clear()
    for number in list(body.pending):
        token = body.tokens[number]
        token.state, token.reads, token.decision = b.TokenState.CREATED, (), None
        body.unevaluated[number] = None
    body.pending.clear()


def _run_forked(body: Body, event: RunForked) -> None:
    body.is_changed = event.input is not None or bool(event.program)


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.WorkflowReopened: _workflow_reopened,
    RunForked: _run_forked,
    RunMigrated: _run_migrated,
}
