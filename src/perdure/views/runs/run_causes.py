"""Why a run, or one of its steps, stands as it does: a chain of recorded events, from the present to the first cause.

Each link names an event of the history, so that it can be looked up. The first one says what the status is now.
"""

from typing import Any

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.run_index import RunIndex
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepOverview, StepStatus, flattened
from perdure.kernel.json_values.values import RunId
from perdure.views.access import Query, Question, Scope
from perdure.views.administration.server_presence import is_served
from perdure.views.runs.progress_events import outcome_text, status_words
from perdure.views.runs.run_overview import explain, failure_of, find_step, index_of
from perdure.views.runs.run_provenance import explain_value
from perdure.views.runs.run_status import status_of_execution
from perdure.views.times import iso

STEPS_EXPLAINED = 20  # of those that are open; `GET …/steps` has all


class CauseQuery(Query):
    step: str | None = None
    field: str | None = None  # of the step, or of the run: why is it this value?


async def read_causes(client: Client, scope: Scope, query: CauseQuery) -> dict[str, Any]:
    if query.field is not None:
        return await explain_value(client, scope.run, query.step, query.field)
    return await explain_run(client, scope.run, query.step)


CAUSES = Question(
    "explain",
    "/runs/{id}/why",
    "why the run, or a step of it, stands as it does; with `field` why a value of it is what it is",
    CauseQuery,
    Any,
    read_causes,
)


async def explain_run(client: Client, run: RunId, step: str | None = None) -> dict[str, Any]:
    """`{run, step?, chain[{seq, at, text}], commands[]}`; the chain begins with the state and ends with its cause."""
    row, execution, pending = await client.outlook(run)
    status = await status_of_execution(client, row, execution)
    await run_views.read_stream_numbers(client.store, execution)
    steps, history = await index_of(client, run, lambda index: (index.steps(execution), _History(index)))
    commands: list[str] = []
    if step is not None:
        path, overview = find_step(flattened(steps), run, step)
        chain = _step_chain(path, overview, history, is_live=status.is_owned)
    elif status.status.is_final:
        chain = await _end_chain(client, execution, steps, history)
    else:
        served = not status.is_owned and await is_served(client)
        explanation = explain(status, execution, steps, pending, client.clock.now(), is_served=served)
        assert explanation is not None, "an open run can be explained"
        commands = list(explanation.commands)
        chain = [history.link(history.last, explanation.sentence)]
        open_steps = [item for item in flattened(steps) if item[1].state.is_open and not item[1].steps]
        for path, overview in open_steps[:STEPS_EXPLAINED]:
            chain += _step_chain(path, overview, history, is_live=status.is_owned)
    chain.append(history.link(history.first, "the run started"))
    facts = {"run": run, **({"step": step} if step is not None else {}), "chain": chain, "commands": commands}
    hidden: dict[str, Any] = (await run_views.mask_of(client.store, execution)).data(facts)
    return hidden


class _History:
    """When the events of a run were recorded, by number."""

    def __init__(self, index: RunIndex) -> None:
        self._times = index.times[:]
        self.first, self.last, self.end = 1, index.last, index.end

    def link(self, seq: int, text: str) -> dict[str, Any]:
        """A fact without an event of its own belongs to the present."""
        number = seq or self.last
        return {"seq": number, "at": iso(self._times[number - 1]), "text": text}


async def _end_chain(
    client: Client, execution: Execution, steps: list[StepOverview], history: _History
) -> list[dict[str, Any]]:
    outcome = execution.state.outcome
    assert outcome is not None
    reason = outcome_text(outcome)
    ended = f"the run {status_words(execution.state.status.value)}{f': {reason}' if reason else ''}"
    chain = [history.link(history.end, ended)]
    place = await failure_of(client, execution, steps)
    return [*chain, *_step_chain(place.path, place.step, history, is_live=False)] if place is not None else chain


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
