"""What expressions read, for whoever asks why a value is what it is.

Evaluators report to the trace of the current context. While a run is decided there is none; a view that decides
recorded turns again, to explain them, sets one (`analysis/retracing.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

import msgspec

if TYPE_CHECKING:
    from perdure.kernel.events import Event
    from perdure.kernel.execution import Execution
    from perdure.kernel.turn import Turn

ReadPath = tuple[str | int, ...]
"""From a root to what was read: `("vars", "order", "total")`."""


class ValueSource(msgspec.Struct, frozen=True):
    """What a path leads to: a value by its key, the rest of the path inside it, and the value in words."""

    key: Hashable
    rest: ReadPath
    text: str


class ValuePart(msgspec.Struct, frozen=True):
    """That the part of a value at this path is (a part of) another one."""

    at: ReadPath
    source: ValueSource


class ValueWrite(msgspec.Struct, frozen=True):
    """That an event has set a value.

    `same_as` is the key of a value that it is, if it is not a new one. A new one `arrives` with what the turn began
    with (a task's result, a signal), or has parts that are others, or was made by the expressions of the event whose
    site ends with `site`: what is written there, or what is written `within` it.
    """

    key: Hashable
    text: str
    same_as: Hashable = None
    site: str = ""
    within: ReadPath = ()
    arrives: bool = False
    parts: tuple[ValuePart, ...] = ()
    note: str = ""  # what is said of it where none of this applies
    read: "Callable[[Turn], Any] | None" = None  # the value itself


class ValueRead(msgspec.Struct):
    path: ReadPath
    value: Any
    sources: list[ValueSource] = []
    origins: list[Any] = []  # of each source: what had set it by then


class Evaluation(msgspec.Struct):
    """One expression: what it says, where it is written, what it read."""

    text: str
    site: str
    place: ReadPath = ()  # inside the value that is written at the site
    reads: list[ValueRead] = []
    value: Any = None
    fault: str = ""  # why it has no value


class ValueTracer(ABC):
    """What a language knows of the values of a run while its history is decided again; one for each such history."""

    of_steps: frozenset[str] = frozenset()
    """Keys that begin with these name a step behind that."""

    def renamed(self, key: Hashable, mapping: Mapping[str, str]) -> Hashable | None:
        """A key in another document, in which steps have other names; None: the step is forgotten."""
        match key:
            case (str(member), str(step), *rest) if member in self.of_steps and step in mapping:
                return (member, mapping[step], *rest) if mapping[step] else None
        return key

    def rename_steps(self, mapping: Mapping[str, str]) -> None:
        """The run goes on with another document, in which steps have other names."""
        return

    @abstractmethod
    def sources(self, execution: "Execution", context: Any, path: ReadPath) -> list[ValueSource]:
        """What a path leads to at this moment, read where `context` says (`EvaluationTrace.context`)."""

    @abstractmethod
    def writes(self, execution: "Execution", event: "Event") -> Iterable[ValueWrite]:
        """What the event, which was applied just now, has set."""

    @abstractmethod
    def named(self, step: str | None, field: ReadPath) -> list[ValueSource]:
        """What somebody may mean by a field of a step, or of the run; the first one that exists is taken."""


class EvaluationTrace:
    """Collects evaluations; `with trace:` makes it the current one."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.context: Any = None  # whose expressions are evaluated, as the language says
        self.site = ""  # of the field that is evaluated
        self.place: ReadPath = ()
        self.within: ReadPath = ()  # the part of the field that is evaluated
        self.reads: dict[ReadPath, Any] = {}
        self._counts: dict[ReadPath, int] = {}
        self._known: dict[int, tuple[Any, ReadPath]] = {}  # containers that were read, kept so that ids stay theirs

    def __enter__(self) -> Self:
        self._before: Token[EvaluationTrace | None] = current_trace.set(self)
        return self

    def __exit__(self, *exit: object) -> None:
        current_trace.reset(self._before)

    @contextmanager
    def evaluating(self, text: str) -> Iterator[Evaluation]:
        """One expression; what is read inside belongs to it, also if it fails."""
        self.reads, self._counts, self._known = {}, {}, {}
        evaluation = Evaluation(text, self.site, self.place)
        try:
            yield evaluation
        except Exception as fault:
            evaluation.fault = str(fault).partition("\n")[0] or type(fault).__name__
            raise
        finally:
            evaluation.reads = [ValueRead(path, value) for path, value in self.reads.items()]
            self.ended(evaluation)

    def ended(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def read(self, path: ReadPath, value: Any) -> None:
        """An expression has read what is at this path of its roots."""
        self.reads[path] = value
        self._counts[path] = self._counts.get(path, 0) + 1
        if isinstance(value, dict | list):
            self._known[id(value)] = (value, path)

    def begin_at(self, roots: Any) -> None:
        """What is read of these has no path before it."""
        self._known[id(roots)] = (roots, ())

    def read_member(self, container: Any, key: str | int, value: Any) -> None:
        """The same, of something in a container that was read before; then it was only on the way."""
        known = self._known.get(id(container))
        if known is None:
            return
        path = known[1]
        self._counts[path] = self._counts.get(path, 1) - 1
        if self._counts[path] <= 0:
            self.reads.pop(path, None)
        self.read((*path, key), value)


current_trace: ContextVar[EvaluationTrace | None] = ContextVar("evaluation_trace", default=None)


def note_site(site: str, context: Any = None, within: ReadPath = ()) -> None:
    """Say which field, or which part of it, is evaluated next, if anybody wants to know."""
    trace = current_trace.get()
    if trace is not None:
        trace.site, trace.place, trace.within = site, within, within
        if context is not None:
            trace.context = context


def note_context(context: Any) -> None:
    """Say whose expressions are evaluated next."""
    trace = current_trace.get()
    if trace is not None:
        trace.context = context


def note_place(place: ReadPath) -> None:
    """Say where inside the field the next expression is written."""
    trace = current_trace.get()
    if trace is not None:
        trace.place = (*trace.within, *place)
