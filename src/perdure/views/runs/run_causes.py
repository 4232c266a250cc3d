"""Why a run, or one of its steps, stands as it does: a chain of recorded events, from the present to the first cause.

Each link names an event of the history, so that it can be looked up. The first one says what the status is now.
"""

from bisect import bisect_left
from dataclasses import replace
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.run_index import RunIndex
from perdure.kernel.errors import NewerRecord
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepOverview, StepStatus, flattened
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.views.access import Query, Question, Scope
from perdure.views.administration.server_presence import is_served
from perdure.views.runs.history_events import event_at
from perdure.views.runs.progress_events import outcome_text, status_words
from perdure.views.runs.run_details import run_at
from perdure.views.runs.run_overview import Explanation, explain, failure_of, find_step, index_of
from perdure.views.runs.run_provenance import explain_condition, explain_value
from perdure.views.runs.run_status import status_of_execution
from perdure.views.times import iso

DEEPEST = 8  # runs below each other
_UNSUCCESSFUL = (Status.FAILED, Status.TIMED_OUT, Status.CANCELLED)
STEPS_EXPLAINED = 20  # of those that are open; `GET …/steps` has all


class CauseQuery(Query):
    step: str | None = None
    field: str | None = None  # of the step, or of the run: why is it this value?
    at: str | None = None  # an event, by its number, its id or a time: why did it stand as it did then?


async def read_causes(client: Client, scope: Scope, query: CauseQuery) -> dict[str, Any]:
    if query.field is not None:
        return await explain_value(client, scope.run, query.step, query.field)
    at = None if query.at is None else await event_at(client, scope.run, query.at)
    return await explain_run(client, scope.run, query.step, at)


CAUSES = Question(
    "explain",
    "/runs/{id}/why",
    "why the run, or a step of it, is in its status; with `field` where a value came from",
    CauseQuery,
    Any,
    read_causes,
)


async def explain_run(client: Client, run: RunId, step: str | None = None, at: int | None = None) -> dict[str, Any]:
    """`{run, step?, chain[{seq, at, text}], commands[]}`; the chain begins with the state and ends with its cause.

    Of a moment in the past (`at`), nothing is said about processes and commands: they act on the present.
    """
    row, execution, pending = await run_at(client, run, at)
    status = await status_of_execution(client, row, execution)
    now = client.clock.now()
    if at is None:
        await run_views.read_stream_numbers(client.store, execution)
    else:
        past_row = msgspec.structs.replace(row, stuck=None)
        is_moving = not status.waits and not status.tasks_open  # in the middle of a turn
        status, now = replace(status, row=past_row, is_owned=True, is_moving=is_moving), execution.state.at
    steps, history = await index_of(client, run, lambda index: (index.steps(execution), _History(index)), at)
    commands: list[str] = []
    before: list[tuple[tuple[str, ...], StepOverview]] = []

    async def explained(about: str = "") -> Explanation:
        served = not status.is_owned and await is_served(client)
        explanation = explain(status, execution, steps, pending, now, is_served=served, step=about)
        assert explanation is not None, "an open run can be explained"
        return explanation if at is None else replace(explanation, commands=())

    if step is not None and (unreached := _unreached(execution, flattened(steps), step)):
        chain = [history.link(history.last, f"step {step!r} {'was' if status.status.is_final else 'is'} not reached")]
        chain += await explain_condition(client, run, unreached) or await _failure_chain(
            client, execution, steps, history
        )
        before = [] if status.status.is_final else _steps_before(execution, steps, unreached)
    elif step is not None:
        path, overview = find_step(flattened(steps), run, step)
        chain = _step_chain(path, overview, history, is_live=status.is_owned)
        chain += await _below(client, overview)
        if overview.state in (StepStatus.SKIPPED, StepStatus.NOT_STARTED):
            reasons = await explain_condition(client, run, path[-1])
            chain += reasons or await _failure_chain(client, execution, steps, history)
        if overview.state is StepStatus.NOT_STARTED and not status.status.is_final:
            before = _steps_before(execution, steps, path[-1])
        elif overview.state.is_open:
            commands = list((await explained(path[-1])).commands)
    elif status.status.is_final:
        chain = await _end_chain(client, execution, steps, history)
    else:
        explanation = await explained()
        commands = list(explanation.commands)
        chain = [history.link(history.last, explanation.sentence)]
        open_steps = [item for item in flattened(steps) if item[1].state.is_open and not item[1].steps]
        for path, overview in open_steps[:STEPS_EXPLAINED]:
            chain += _step_chain(path, overview, history, is_live=status.is_owned)
    for path, overview in before[:STEPS_EXPLAINED]:
        chain += _step_chain(path, overview, history, is_live=status.is_owned)
    if before:
        commands = list((await explained(before[0][0][-1])).commands)
    chain.append(history.link(history.first, "the run started"))
    facts = {"run": run, **({"step": step} if step is not None else {}), "chain": chain, "commands": commands}
    hidden: dict[str, Any] = (await run_views.mask_of(client.store, execution)).data(facts)
    return hidden


def _unreached(execution: Execution, steps: list[tuple[tuple[str, ...], StepOverview]], name: str) -> str:
    """The name of a step that the document has, and of which the run knows nothing; empty: it is not one."""
    if any(name in (path[-1], "/".join(path)) for path, _ in steps) or not execution.dialect.draws_graphs:
        return ""
    last = name.rpartition("/")[2]
    graph = execution.dialect.graph(execution.program)
    return last if any(node.label == last and node.kind for node in graph.nodes) else ""


def _steps_before(
    execution: Execution, steps: list[StepOverview], name: str
) -> list[tuple[tuple[str, ...], StepOverview]]:
    """The open steps from which a way leads to this one: it comes after them."""
    if not execution.dialect.draws_graphs:
        return []
    graph = execution.dialect.graph(execution.program)
    sources: dict[str, list[str]] = {}
    for edge in graph.edges:
        sources.setdefault(edge.target, []).append(edge.source)
    pending = [node.id for node in graph.nodes if node.label == name]
    upstream = set(pending)
    for node in pending:
        new = [source for source in dict.fromkeys(sources.get(node, ())) if source not in upstream]
        pending += new
        upstream.update(new)
    labels = {node.label for node in graph.nodes if node.id in upstream} - {name}
    return [item for item in flattened(steps) if item[1].state.is_open and item[0][-1] in labels]


class _History:
    """When the events of a run were recorded, by number."""

    def __init__(self, index: RunIndex, prefix: str = "") -> None:
        self._prefix = prefix
        self._numbers = index.numbers[:]
        self._times = index.times[:]
        self.first, self.last, self.end = 1, index.last, index.end

    def link(self, seq: int, text: str) -> dict[str, Any]:
        """A fact without an event of its own belongs to the present."""
        number = seq or self.last
        return {"seq": number, "at": iso(self._times[number - 1]), "text": self._prefix + text}

    def number_of(self, recorded: int) -> int:
        """The event of the history that tells of an event of the log, or of what follows from it."""
        return min(bisect_left(self._numbers, recorded) + 1, self.last)


async def _end_chain(
    client: Client, execution: Execution, steps: list[StepOverview], history: _History
) -> list[dict[str, Any]]:
    outcome = execution.state.outcome
    assert outcome is not None
    reason = outcome_text(outcome)
    status = execution.state.status
    word = "was cancelled" if status is Status.CANCELLED else status_words(status.value)
    ended = f"the run {word}{f': {reason}' if reason else ''}"
    chain = [history.link(history.end, ended)]
    if execution.state.cancel_requested:
        chain += await _cancels(client, execution, history)
    return chain + await _failure_chain(client, execution, steps, history)


async def _failure_chain(
    client: Client, execution: Execution, steps: list[StepOverview], history: _History
) -> list[dict[str, Any]]:
    """The step that made the run fail, and what made it fail in runs below it."""
    place = await failure_of(client, execution, steps)
    if place is None:
        return []
    return [*_step_chain(place.path, place.step, history, is_live=False), *await _below(client, place.step)]


async def _below(client: Client, step: StepOverview, depth: int = 0) -> list[dict[str, Any]]:
    """Why the run that a failed step has started did not succeed: events of its own history."""
    called = None if step.failure is None or not step.child else await client.store.find(step.child)
    if called is None or called.status not in _UNSUCCESSFUL or depth >= DEEPEST:
        return []
    try:
        execution = await run_views.load(client.store, client.languages, called)
    except NewerRecord:
        return []
    steps, history = await index_of(
        client, called.id, lambda index: (index.steps(execution), _History(index, f"in run {called.id}: "))
    )
    mask = await run_views.mask_of(client.store, execution)
    chain = await _end_chain(client, execution, steps, history)
    inner: list[dict[str, Any]] = [{**link, "run": link.get("run", called.id)} for link in mask.data(chain)]
    return inner


async def _cancels(client: Client, execution: Execution, history: _History) -> list[dict[str, Any]]:
    """Who has asked the run to stop."""
    for event in await client.history(execution.id, raw=True):
        if event["event"] == "CancelRequested":
            by, reason = event.get("by") or "", event.get("reason") or ""
            sender = "the run above it" if by == "parent" else by
            text = "it was asked to stop" + (f" by {sender}" if sender else "") + (f": {reason}" if reason else "")
            return [history.link(history.number_of(event["seq"]), text)]
    return []


def _step_chain(path: tuple[str, ...], step: StepOverview, history: _History, *, is_live: bool) -> list[dict[str, Any]]:
    """From the status of the step back to its beginning; the last failure in this chain is the first: the cause."""
    label = f"step {' › '.join(path)!r}"
    note = f": {step.note.rstrip('.')}" if step.note else ""
    if step.state is StepStatus.NOT_STARTED:
        return [history.link(history.last, f"{label} has not started{note}")]
    chain = []
    if step.state.is_open:
        chain.append(history.link(history.last, f"{label} {_open_status(step, is_live)}{note}"))
    elif step.ended_at is not None and step.failure is None:
        chain.append(history.link(step.ended_seq, f"{label} {_ended(step)}{note}"))
    for failure in dict.fromkeys(filter(None, (step.failure, step.first_failure))):
        task = f", task {failure.label!r}" if failure.label and failure.label != path[-1] else ""
        item = f", item {failure.item}" if failure.item >= 0 else ""
        text = f"{label}{task}{item}, attempt {failure.attempt} failed: {failure.text}"
        chain.append(history.link(failure.seq, text))
    if step.child:
        chain.append(history.link(step.child_seq, f"{label} started run {step.child}"))
    if step.began_seq:
        chain.append(history.link(step.began_seq, f"{label} began"))
    return chain


def _ended(step: StepOverview) -> str:
    words = {StepStatus.DONE: "is done", StepStatus.SKIPPED: "was skipped", StepStatus.CANCELLED: "was cancelled"}
    return words.get(step.state, str(step.state))


def _open_status(step: StepOverview, is_live: bool) -> str:
    if step.state is not StepStatus.AT_WORK:
        return str(step.state)
    return "is at work" if is_live or step.child else "was interrupted"
