"""The steps of a run as people look at them: what each did, how often, how long, and how it failed.

A step that runs many times (a loop, a Gather, a step that is entered again) is one entry with counts, so that the
overview of a run stays small at any width. Dialects make it from a run's recorded events (`Dialect.steps`).
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Failed

if TYPE_CHECKING:
    from perdure.kernel.events import Event
    from perdure.kernel.execution import Execution

DocumentPath = tuple[str | int, ...]


class StepStatus(StrEnum):
    """How the latest visit of a step stands."""

    NOT_STARTED = "not started"
    AT_WORK = "at work"
    RETRIES = "waits for its next try"
    WAITS = "waits"
    DONE = "done"
    FAILED = "failed"
    CAUGHT = "failed, caught"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        return self in (StepStatus.AT_WORK, StepStatus.RETRIES, StepStatus.WAITS)


class StepFailure(msgspec.Struct, gc=False, frozen=True):
    """One failed attempt."""

    code: str
    message: str
    at: Instant = 0
    attempt: int = 1
    label: str = ""  # of the task, where a step has several
    item: int = -1  # of a loop or a Gather
    frames: tuple[str, ...] = ()  # `file:line in function` of the user's code, the innermost last
    details: str = ""  # JSON text, where there are no such places
    seq: int = 0  # the number of its event in the history

    @property
    def text(self) -> str:
        return f"{self.code}: {self.message}" if self.message and self.code else self.message or self.code

    @classmethod
    def of(cls, failed: Failed, at: Instant, attempt: int, seq: int, item: int = -1) -> "StepFailure":
        frames = frames_of(failed.details)
        details = "" if frames or failed.details is None else failed.details.decode("utf-8", "replace")
        return cls(failed.code, failed.message, at, attempt, "", item, frames, details, seq)


class StepDelay(msgspec.Struct, gc=False, frozen=True):
    """A step that does nothing until its timer is due: before its next attempt, or because its document says so."""

    step: str
    attempt: int = 0  # the one that begins then; 0: it is no retry
    attempts: int = 0  # as many at most; 0: that cannot be told

    @property
    def count(self) -> str:
        return f"attempt {self.attempt}" + (f" of {self.attempts}" if self.attempts else "")


class StepOverview(msgspec.Struct, gc=False):
    """`…_seq` are the numbers of events in the history as its readers see it; 0: there is none."""

    name: str
    kind: str = ""
    place: DocumentPath = ()  # in the document
    state: StepStatus = StepStatus.NOT_STARTED
    began_at: Instant | None = None  # the latest visit
    ended_at: Instant | None = None
    visits: int = 0
    failed_visits: int = 0
    open_visits: int = 0
    attempts: int = 0  # tasks and children that it has started
    items: int = 0  # of its loops and Gathers
    items_done: int = 0
    items_failed: int = 0
    failure: StepFailure | None = None  # the latest
    first_failure: StepFailure | None = None
    due: Instant | None = None  # when its next try is made, or its wait ends
    note: str = ""
    work: str = ""  # what is known of its work while it goes on, beside the status
    child: RunId = RunId("")
    steps: dict[str, "StepOverview"] = msgspec.field(default_factory=dict)
    began_seq: int = 0
    ended_seq: int = 0
    child_seq: int = 0

    def enter(self, at: Instant, seq: int) -> None:
        self.visits += 1
        self.open_visits += 1
        self.state = StepStatus.AT_WORK
        self.began_at, self.ended_at, self.due = at, None, None
        self.began_seq, self.ended_seq = seq, 0

    def leave(self, state: StepStatus, at: Instant, seq: int) -> None:
        self.open_visits = max(0, self.open_visits - 1)
        self.failed_visits += state in (StepStatus.FAILED, StepStatus.CAUGHT)
        self.ended_at, self.due = at, None
        self.ended_seq = seq
        self.state = StepStatus.AT_WORK if self.open_visits else state

    def fail(self, failure: StepFailure) -> None:
        self.failure = failure
        if self.first_failure is None:
            self.first_failure = failure

    def copy(self) -> "StepOverview":
        """With those inside it: what reads on does not change what was shown."""
        return msgspec.structs.replace(self, steps={name: step.copy() for name, step in self.steps.items()})


class StepReader:
    """Reads the recorded events of a run, one after the other, for the overview of its steps. This one has none."""

    def __init__(self) -> None:
        self.seq = 0  # the number of the latest event in the history as its readers see it

    def take(self, turn: int, at: Instant, event: "Event") -> None:
        """`turn` is the number of the turn in which the event was recorded."""
        self.seq += 1

    def take_program(self, program: Any) -> None:
        """What follows was decided with another document."""

    def steps(self, execution: "Execution") -> list[StepOverview]:
        """What was read and the state of the run at that moment, together; the reader may go on afterwards."""
        return []


def frames_of(details: bytes | None) -> tuple[str, ...]:
    """The places in the user's code that a failure of a function names."""
    if details is None or b'"traceback"' not in details:
        return ()
    data: Any = jsontext.decode(details)
    frames = data.get("traceback") if isinstance(data, dict) else None
    return tuple(map(str, frames)) if isinstance(frames, list) else ()


def flattened(steps: list[StepOverview], parents: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], StepOverview]]:
    """All steps with their path of names, in document order of their parents."""
    rows = []
    for step in steps:
        path = (*parents, step.name)
        rows.append((path, step))
        rows += flattened(list(step.steps.values()), path)
    return rows
