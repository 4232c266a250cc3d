"""Which events of a run deserve a line while it is followed, and that line. Ordinary progress is not among them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.kernel import events as e
from perdure.kernel.ids import child_run
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.pause import RESUME


class ProgressNarrator:
    """Follows the events of one run; remembers the names of open tasks, because their ends carry only a number."""

    def __init__(self, run: RunId) -> None:
        self._run = run
        self._tasks: dict[int, e.TaskScheduled] = {}

    @property
    def has_open_tasks(self) -> bool:
        return bool(self._tasks)

    def sentence(self, event: e.Event) -> str | None:
        match event:
            case e.TaskScheduled():
                self._tasks[event.task] = event
                return None
            case e.TaskEnded():
                return _failure_text(event, self._tasks.pop(event.task, None))
            case e.TaskRedelivered():
                charged = ", counted against its limit" if event.charged else ""
                return f"task {event.task} is delivered again (delivery {event.delivery}{charged}): {event.reason}"
            case e.TaskHeld():
                return f"task {event.task} is held: it is unknown whether the effect {event.effect!r} happened"
            case e.EffectUnfit():
                return f"the effect {event.key!r} was performed, but its result has no JSON form: {event.reason}"
            case e.EffectSettled():
                return f"the effect {event.effect!r} was settled: {'not done' if event.result is None else 'done'}"
            case e.ChildStarted():
                return f"child {child_run(self._run, event.child)} started ({event.name})"
            case e.ChildEnded():
                reason = outcome_text(event.outcome)
                status = status_words(event.status)
                return f"child {child_run(self._run, event.child)} {status}{f': {reason}' if reason else ''}"
            case e.SignalReceived():
                return f"signal {event.name!r} received"
            case e.CancelRequested():
                return f"cancel requested{f': {event.reason}' if event.reason else ''}"
            case e.Steered():
                return _steering_text(event)
            case e.InputDeclined():
                return f"{event.kind}{f' by {event.by}' if event.by else ''} was declined: {event.reason}"
            case e.RunReopened():
                return f"reopened (incarnation {event.incarnation})"
            case e.RunForked():
                return f"forked from {event.source}"
            case e.RunMigrated():
                verb = "moved back to" if event.undoes else "moved to"
                return f"{verb} document {event.program.hex()[:12]}{f' by {event.by}' if event.by else ''}"
            case e.RunEnded():
                self._tasks.clear()
                return None
            case _:
                return None


_TOLD: dict[str, type[e.Event]] = {
    kind.__name__: kind
    for kind in (
        *(e.TaskScheduled, e.TaskEnded, e.TaskRedelivered, e.TaskHeld, e.EffectUnfit, e.EffectSettled),
        *(e.ChildStarted, e.ChildEnded, e.SignalReceived, e.CancelRequested, e.Steered, e.InputDeclined),
        *(e.RunReopened, e.RunForked, e.RunMigrated),
    )
}
_HEARD = frozenset((*_TOLD.values(), e.RunEnded))


class RunNarrators:
    """Follows the events of all runs of a process; keeps something only of those that have open tasks."""

    def __init__(self) -> None:
        self._narrators: dict[RunId, ProgressNarrator] = {}

    def __len__(self) -> int:
        return len(self._narrators)

    def sentences(self, run: RunId, turns: Sequence[tuple[Instant, Sequence[e.Event]]]) -> list[str]:
        heard = [event for _, events in turns for event in events if type(event) in _HEARD]
        narrator = self._narrators.pop(run, None) if heard else None
        if narrator is None:
            if not heard or (len(heard) == 1 and type(heard[0]) is e.RunEnded):  # an end alone deserves no line
                return []
            narrator = ProgressNarrator(run)
        sentences = [sentence for event in heard if (sentence := narrator.sentence(event)) is not None]
        if narrator.has_open_tasks:
            self._narrators[run] = narrator
        return sentences


def event_of_history(shown: Mapping[str, Any]) -> e.Event | None:
    """An event that a `ProgressNarrator` may tell of, from the raw history that a server sends."""
    kind = _TOLD.get(shown["event"])
    if kind is None:
        return None
    fields = {name: shown.get(f"own_{name}", shown.get(name)) for name in kind.__struct_fields__}
    if "outcome" in fields:
        fields["outcome"] = _outcome_of_history(fields["outcome"])
    if "body" in fields:
        fields["body"] = jsontext.encode(fields["body"])
    return kind(**fields)


def _outcome_of_history(shown: Any) -> Outcome:
    match shown:
        case {"type": "Failed", "code": code, "message": message}:
            details = shown.get("details")
            return Failed(code, message, details=None if details is None else jsontext.encode(details))
        case {"type": "Cancelled"}:
            return Cancelled(shown.get("reason", ""))
        case _:
            return Succeeded(b"null")


def _failure_text(event: e.TaskEnded, scheduled: e.TaskScheduled | None) -> str | None:
    """`task 5 (charge) failed: Code: message; step 'charge', attempt 2, at app.py:13 in pay`."""
    if not isinstance(event.outcome, Failed):
        return None
    from perdure.kernel.graphs.step_overview import frames_of

    name, where = "", []
    if scheduled is not None:
        name = scheduled.provider
        where = [f"step {spell_step(scheduled.path)!r}"]
        if scheduled.attempt > 1:
            where.append(f"attempt {scheduled.attempt}")
    where += [f"at {frame}" for frame in frames_of(event.outcome.details)[-1:]]
    return f"task {event.task} ({name}) failed: {outcome_text(event.outcome)}; {', '.join(where)}".rstrip("; ")


_COUNTS = re.compile(r"^\d+:|#\d+")


def step_of_path(path: str) -> str:
    """`each[2] › one`: a Flow counts the Steps it has entered (`/2:charge`), a Playbook runs of a step (`one#1`)."""
    return " › ".join(_COUNTS.sub("", part) for part in path.split("/") if part)


def spell_step(path: str) -> str:
    """The same for people: without the task of a step that has only one, to which nobody has given a name."""
    step, _, task = step_of_path(path).rpartition(" › ")
    last = step.rpartition(" › ")[2].partition("[")[0]
    return step if last and task == f"{last}_task" else step_of_path(path)


def _steering_text(event: e.Steered) -> str:
    """`gate 'ok' approved by Ada`, `patch received`."""
    body = jsontext.decode(event.body) if isinstance(event.body, bytes) else None
    members = body if isinstance(body, dict) else {}
    subject = f" {members['step']!r}" if isinstance(members.get("step"), str) else ""
    state = str(members["state"]).lower() if isinstance(members.get("state"), str) else "received"
    verb = "unpause" if event.verb == RESUME else event.verb  # as the command is called
    return f"{verb}{subject} {state}{f' by {event.by}' if event.by else ''}"


def outcome_text(outcome: Outcome) -> str:
    """Why it did not end well; empty when it did."""
    match outcome:
        case Failed(code, message):
            return f"{code}: {message}" if message else code
        case Cancelled(reason):
            return reason
        case _:
            return ""


def status_words(status: str) -> str:
    return str(status).replace("_", " ")
