"""A run at a glance: why it does not go on and what would move it, its steps, its last failure and where that happened.

`show` prints it, and so can any other client. The reason is one sentence; commands are complete but for options.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from perdure.engine.runs import run_views
from perdure.engine.runs.dry_run import Pending
from perdure.engine.runs.run_index import RunIndex, read_index
from perdure.kernel.errors import NewerRecord
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepFailure, StepOverview, StepStatus, flattened
from perdure.kernel.inputs import CONTROL_WAIT_RANK
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Failed, Outcome, Status
from perdure.stores.protocol import RunRow
from perdure.views.errors import BadRequest, StepNotFound
from perdure.views.runs.progress_events import outcome_text
from perdure.views.runs.run_status import RunStatus, Wait, WaitReason, status_of_execution
from perdure.views.times import local, span

if TYPE_CHECKING:
    from perdure.engine.client import Client

R = TypeVar("R")

_COMMAND = "with: perdure "  # how languages end the phrase for something that a command can bring
_FIRST = (WaitReason.PROVIDER, WaitReason.RESOURCE, WaitReason.SETTLEMENT, WaitReason.SIGNAL, WaitReason.PERMIT)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run does not go on by itself, or what it is doing."""

    sentence: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailurePlace:
    """The failure that matters most now: the cause, not what followed from it."""

    path: tuple[str, ...]
    step: StepOverview
    failure: StepFailure
    document: str  # the name of the run's document
    line: int | None  # of the step in the document
    next_try: Instant | None
    outcome: str  # how the run ended because of it, if that says something else
    callers: tuple[str, ...] = ()  # of a failure in a run below: the steps that called it, outermost first
    run: RunId | None = None  # that run

    @property
    def where(self) -> str:
        """`step 'charge', task 'pay', item 3, attempt 2`; below a caller `step 'ship' › pay: step 'charge'`."""
        parts = [f"step {' › '.join(self.path)!r}" if self.path else ""]
        if self.failure.label and self.failure.label != self.path[-1]:
            parts.append(f"task {self.failure.label!r}")
        if self.failure.item >= 0:
            parts.append(f"item {self.failure.item}")
        if self.failure.attempt:
            parts.append(f"attempt {self.failure.attempt}")
        return "".join(f"{caller}: " for caller in self.callers) + ", ".join(filter(None, parts))


async def steps_of(client: "Client", execution: Execution, at: int | None = None) -> list[StepOverview]:
    """The steps of a run, as they are now or were after event number `at`."""
    if at is None:
        await run_views.read_stream_numbers(client.store, execution)
    return await index_of(client, execution.id, lambda index: index.steps(execution), at)


async def index_of(client: "Client", run: RunId, work: Callable[[RunIndex], R], at: int | None = None) -> R:
    """What the work makes of what the events of a run tell of it."""
    return await read_index(client.store, client.languages, await client.find(run), work, at)


def find_step(
    steps: list[tuple[tuple[str, ...], StepOverview]], run: RunId, name: str
) -> tuple[tuple[str, ...], StepOverview]:
    """By its path (`block/step`), or by a name that only one step has."""
    matches = [item for item in steps if "/".join(item[0]) == name] or [item for item in steps if item[0][-1] == name]
    if not matches:
        raise StepNotFound(f"run {run} has no step {name!r}")
    if len(matches) > 1:
        paths = ", ".join("/".join(path) for path, _ in matches[:5])
        raise BadRequest(f"several steps have the name {name!r}: {paths}", hint="Give the whole path.")
    return matches[0]


def explain(
    status: RunStatus,
    execution: Execution,
    steps: Sequence[StepOverview],
    pending: Sequence[Pending],
    now: Instant,
    *,
    is_served: bool,
    step: str = "",
) -> Explanation | None:
    """None for a run that has ended. `step`: of several things that it waits for, what this one waits for."""
    run = status.row.id
    if status.status.is_final:
        return None
    if status.row.stuck:
        return Explanation(
            f"It is stuck: a decision about it raises an error ({status.row.stuck}).", (f"perdure resume {run}",)
        )
    pause = execution.state.pause
    if pause is not None:
        by = f" by {pause.by}" if pause.by else ""
        why = f" ({pause.reason})" if pause.reason else ""
        return Explanation(f"It was paused{by} at {local(pause.at)}{why}.", (f"perdure unpause {run}",))
    nobody, resume = "", tuple[str, ...]()
    if status.is_owned:
        pass
    elif is_served:
        nobody, resume = "; no process runs it now, a server will", ()
    else:
        nobody, resume = "; no process runs it now", (f"perdure resume {run}",)
    if pending and not status.is_owned:
        return Explanation(f"It has something to decide: {pending[-1].text}{nobody}.", resume)
    text, command = _cause(status, execution, steps, now, step)
    return Explanation(f"{text}{nobody}.", ((command,) if command else ()) + resume)


def _cause(
    status: RunStatus, execution: Execution, steps: Sequence[StepOverview], now: Instant, about: str = ""
) -> tuple[str, str]:
    """In order of what needs a person most; work in hand comes before what merely takes its time."""
    awaited = sorted(
        status.awaited, key=lambda wait: _FIRST.index(wait.reason) if wait.reason in _FIRST else len(_FIRST)
    )
    awaited.sort(key=lambda wait: not (about and f"'{about}'" in wait.text(now)))
    first = awaited[0] if awaited else None
    if first is not None and first.reason in _FIRST:
        return _phrase(first, execution, len(awaited), now)
    open_steps = [(path, step) for path, step in flattened(list(steps)) if step.state.is_open and not step.steps]
    at_work = [(path, step) for path, step in open_steps if step.state is StepStatus.AT_WORK and not step.child]
    if status.tasks_open and (first is None or first.reason is not WaitReason.WORKER):
        return _work(status, at_work, now), ""
    if first is not None and first.retry is not None:
        sentence = first.sentence(now)
        return sentence[0].upper() + sentence[1:], ""
    if first is not None:
        return _phrase(first, execution, len(awaited), now)
    if status.is_moving or execution.state.sliced:
        return "It is making internal moves and needs nothing from outside", ""
    if not status.is_owned:
        return "It has work to do", ""
    return "It waits for something from outside", ""


def _phrase(wait: Wait, execution: Execution, count: int, now: Instant) -> tuple[str, str]:
    what, _, command = wait.text(now).partition(_COMMAND)
    if command:
        what = what.rpartition(";")[0]
    limits = [timer.due for timer in execution.state.timers.values() if timer.rank >= CONTROL_WAIT_RANK]
    most = f", at most {span(limits[0] - now)} more" if len(limits) == 1 and wait.reason is WaitReason.SIGNAL else ""
    more = f" (and for {count - 1} more)" if count > 1 else ""
    return f"It waits for {what}{most}{more}", f"perdure {command}" if command else ""


def _work(status: RunStatus, at_work: Sequence[tuple[tuple[str, ...], StepOverview]], now: Instant) -> str:
    count = sum(status.tasks_open.values())
    if len(at_work) == 1 and at_work[0][1].began_at is not None:
        path, step = at_work[0]
        attempt = f", attempt {step.attempts}" if step.attempts > 1 and not step.items else ""
        many = f" with {count} tasks" if count > 1 else ""
        return f"It works: step {' › '.join(path)!r} is at work{many} for {span(now - (step.began_at or now))}{attempt}"
    names = ", ".join(dict.fromkeys(" › ".join(path) for path, _ in at_work[:3])) or ", ".join(status.tasks_open)
    return f"It works: {count} task{'' if count == 1 else 's'} at work ({names})"


async def failure_of(client: "Client", execution: Execution, steps: Sequence[StepOverview]) -> FailurePlace | None:
    """Of a failed run the step that made it fail; of an open one the latest failure that it has not got over."""
    outcome = execution.state.outcome
    if execution.state.status.is_final:
        blamed = _blamed(steps) if isinstance(outcome, Failed) else None
    else:
        blamed = max(
            ((path, step) for path, step in flattened(list(steps)) if step.state.is_open and step.failure is not None),
            key=lambda item: (item[1].failure.at if item[1].failure is not None else 0, len(item[0])),
            default=None,
        )
    if blamed is None or blamed[1].failure is None:
        return None
    path, step = blamed
    failure = step.failure
    assert failure is not None
    text = "" if outcome is None else outcome_text(outcome)
    is_more = text and failure.message not in text and text != failure.text
    name, line = execution.state.name, await _line(client, execution, step)
    return FailurePlace(path, step, failure, name, line, step.due, text if is_more else "")


async def first_failure_of(
    client: "Client", execution: Execution, steps: Sequence[StepOverview]
) -> FailurePlace | None:
    """The same, but if the step called another run that failed: the failure in that run."""
    place = await failure_of(client, execution, steps)
    called = None if place is None or not place.step.child else await client.store.find(place.step.child)
    if place is None or called is None or called.status not in (Status.FAILED, Status.TIMED_OUT):
        return place
    try:
        below = await run_views.load(client.store, client.languages, called)
    except NewerRecord:
        return place
    inner = await first_failure_of(client, below, await steps_of(client, below))
    if inner is None:
        return place
    mask = await run_views.mask_of(client.store, below)
    failure = msgspec.structs.replace(
        inner.failure, message=mask.text(inner.failure.message), details=mask.text(inner.failure.details)
    )
    outcome = execution.state.outcome
    return replace(
        inner,
        failure=failure,
        next_try=place.next_try,
        outcome="" if outcome is None else outcome_text(outcome),
        callers=(f"step {' › '.join(place.path)!r} › {called.name}", *inner.callers),
        run=inner.run or called.id,
    )


async def failure_of_run(client: "Client", run: RunId) -> str | None:
    """The cause of a failure and where it happened, in two lines at most; None where the run's end says it all."""
    row = await client.find(run)
    execution = await run_views.load(client.store, client.languages, row)
    place = await first_failure_of(client, execution, await steps_of(client, execution))
    if place is None:
        return None
    at = [f"at {frame}" for frame in place.failure.frames[-1:]]
    document = spell_place(place)
    return f"{place.where}: {place.failure.text}\n" + ", ".join([*at, *([f"in {document}"] if document else [])])


def _blamed(
    steps: Sequence[StepOverview], parents: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], StepOverview] | None:
    """The first step that failed for good, and in it the innermost."""
    failed = [step for step in steps if step.state is StepStatus.FAILED]
    for step in sorted(failed, key=lambda step: step.ended_at or 0):
        path = (*parents, step.name)
        inner = _blamed(list(step.steps.values()), path)
        if inner is not None:
            return inner
        if step.failure is not None:
            return path, step
    return None


async def _line(client: "Client", execution: Execution, step: StepOverview) -> int | None:
    pinned = await client.store.program(execution.state.program) if step.place else None
    return None if pinned is None else execution.dialect.line_of(pinned[1], step.place)


def spell_place(failure: FailurePlace) -> str:
    """`pay, line 14` or `pay, spec.steps[2]`."""
    run = f" (run {failure.run})" if failure.run else ""
    if failure.line is not None:
        return f"{failure.document}, line {failure.line}{run}"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in failure.step.place)
    return f"{failure.document}, {path.removeprefix('.')}{run}" if path else ""


async def brief_reason(client: "Client", row: RunRow) -> str:
    """For a list: why the run failed, or what it waits for; empty where neither can be told here."""
    try:
        execution = await run_views.load(client.store, client.languages, row)
    except NewerRecord as error:
        return str(error)
    return await brief_reason_of(client, await status_of_execution(client, row, execution), execution)


async def brief_reason_of(client: "Client", status: RunStatus, execution: Execution) -> str:
    mask = await run_views.mask_of(client.store, execution)
    outcome = execution.state.outcome
    if outcome is not None:
        return mask.text(execution.dialect.cause(execution) or _root_cause(outcome))
    if status.row.stuck or execution.state.pause is not None:
        return ""
    text, _ = _cause(status, execution, (), client.clock.now())
    text = text.removeprefix("It ").removeprefix("waits for ")
    return mask.text(text[:1].lower() + text[1:])


def _root_cause(outcome: Outcome) -> str:
    """The first cause of a failure, which its last symptom may hide."""
    if not isinstance(outcome, Failed) or outcome.previous is None:
        return (isinstance(outcome, Failed) and outcome.message) or outcome_text(outcome)
    cause = jsontext.decode(outcome.previous)
    while isinstance(cause, dict) and isinstance(cause.get("previous"), dict):
        cause = cause["previous"]
    if not isinstance(cause, dict) or not cause.get("message"):
        return outcome_text(outcome)
    return str(cause["message"])
