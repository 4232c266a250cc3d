"""What a run made of its document: which nodes of the graph it visited, when, with which result, and along which edges.

A language computes it from what was recorded (`Dialect.trace`). Pictures, timelines and lists of steps are made of it.
"""

from collections.abc import Container, Hashable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from perdure.kernel.json_values.values import Instant

if TYPE_CHECKING:
    from perdure.kernel.events import Event


class VisitStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        return self in (VisitStatus.RUNNING, VisitStatus.WAITING)


class Stretch(msgspec.Struct):
    """A part of a visit: an attempt, or a wait for time, for a place, for somebody."""

    is_wait: bool
    started_at: Instant
    ended_at: Instant | None = None
    has_failed: bool = False


class Visit(msgspec.Struct):
    """One passage through a node."""

    node: str
    started_at: Instant
    parent: "Visit | None" = None  # what it is a part of
    label: str = ""  # which of several: the number of an element, of an iteration
    ended_at: Instant | None = None
    status: VisitStatus = VisitStatus.RUNNING
    stretches: list[Stretch] = msgspec.field(default_factory=list)

    @property
    def attempts(self) -> int:
        return sum(not stretch.is_wait for stretch in self.stretches)


class Trace:
    """Visits in order of their start. A language calls what follows, with keys of its own for visits that are open."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.taken: dict[tuple[str, str, str | None, bool], int] = {}  # source, target, label (None: any), exceptional
        self.passed: dict[str, Instant] = {}  # nodes where nothing happens: a start, a frame that was entered
        self._open: dict[Hashable, Visit] = {}

    def enter(self, key: Hashable, node: str, at: Instant, *, parent: Visit | None = None, label: str = "") -> Visit:
        visit = Visit(node, at, parent, label)
        self.visits.append(visit)
        self._open[key] = visit
        return visit

    def visit(self, key: Hashable) -> Visit | None:
        """An open one."""
        return self._open.get(key)

    def move(self, key: Hashable, new_key: Hashable) -> None:
        """The visit is known by another key from now on."""
        if key in self._open:
            self._open[new_key] = self._open.pop(key)

    def leave(self, key: Hashable, at: Instant, status: VisitStatus) -> None:
        visit = self._open.pop(key, None)
        if visit is not None:
            self.end_stretches(visit, at, has_failed=False)
            for stretch in visit.stretches[-1:]:
                stretch.has_failed |= status is VisitStatus.FAILED and not stretch.is_wait
            visit.ended_at, visit.status = at, status

    def begin(self, key: Hashable, at: Instant, *, is_wait: bool = False) -> None:
        """An attempt or a wait begins; a wait that is open ends."""
        visit = self._open.get(key)
        if visit is None:
            return
        for stretch in visit.stretches[-1:]:
            if stretch.is_wait and stretch.ended_at is None:
                stretch.ended_at = at
        visit.stretches.append(Stretch(is_wait, at))
        visit.status = VisitStatus.WAITING if is_wait else VisitStatus.RUNNING

    def end(self, key: Hashable, at: Instant, *, has_failed: bool = False) -> None:
        """What is open of the visit's attempts and waits has ended."""
        visit = self._open.get(key)
        if visit is not None:
            self.end_stretches(visit, at, has_failed=has_failed)

    def end_stretches(self, visit: Visit, at: Instant, *, has_failed: bool) -> None:
        for stretch in reversed(visit.stretches):
            if stretch.ended_at is None:
                stretch.ended_at = at
                stretch.has_failed = has_failed and not stretch.is_wait
        visit.status = VisitStatus.RUNNING

    def take(self, source: str, target: str, label: str | None = None, *, exceptional: bool = False) -> None:
        key = (source, target, label, exceptional)
        self.taken[key] = self.taken.get(key, 0) + 1

    def redraw(self, names: Mapping[str, str], nodes: Container[str]) -> None:
        """The run goes on with another document: nodes have these names now, and those that are gone are not shown."""
        for visit in self.visits:
            visit.node = names.get(visit.node, visit.node)
        self.visits = [visit for visit in self.visits if visit.node in nodes]
        self.taken = {
            (names.get(source, source), names.get(target, target), label, exceptional): count
            for (source, target, label, exceptional), count in self.taken.items()
            if names.get(source, source) in nodes and names.get(target, target) in nodes
        }
        self.passed = {names.get(node, node): at for node, at in self.passed.items()}

    def close(self, at: Instant, status: VisitStatus) -> None:
        """The run has ended, or what is open was taken back."""
        for key in list(self._open):
            self.leave(key, at, status)


class RunTracer(Protocol):
    """Makes the trace of a run from its recorded events, one after the other."""

    trace: Trace

    def take(self, at: Instant, event: "Event") -> None: ...

    def take_program(self, program: Any, mapping: Mapping[str, str]) -> None:
        """What follows was decided with another document."""


def trace_turns(tracer: RunTracer, turns: "Iterable[tuple[Instant, list[Event]]]") -> Trace:
    for at, events in turns:
        for event in events:
            tracer.take(at, event)
    return tracer.trace
