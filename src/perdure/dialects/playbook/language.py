"""The door to Playbooks. Cheap to open, for every command of the tool pays for it: what stands behind it,
templates and all, is imported when the first Playbook is met.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.kernel import inputs as i
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution
from perdure.kernel.graph import Graph
from perdure.kernel.resource_kinds import Kind
from perdure.kernel.sealed_arguments import Asking
from perdure.kernel.turn import Turn
from perdure.kernel.validation import Declared, Judged, Surroundings
from perdure.kernel.values import Instant, RunId

if TYPE_CHECKING:
    from perdure.dialects.playbook.dialect import PlaybookDialect


class Playbook:
    """The language, given the providers that may be tool kinds: whether there is one, which there are, and what is
    to be installed before one can work."""

    name = "playbook"
    version = 3
    edition = 1
    name_label = ""
    calling_words = (b"playbook",)
    kinds: tuple[Kind, ...] = (Kind("Playbook", "playbooks", "noetl.io", ("pb",), can_run=True),)

    def __init__(
        self,
        provides: Callable[[str], bool] = lambda name: False,
        kinds: Callable[[], Iterable[str]] = lambda: (),
        lacks: Callable[[str], str | None] = lambda kind: None,
        refusal: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        """`refusal`: why the operator does not let documents use a provider; None where they may."""
        self._lacks = lacks
        self._refusal = refusal
        self._provides = provides
        self._kinds = kinds

    @cached_property
    def _behind(self) -> "PlaybookDialect":
        from perdure.dialects.playbook.dialect import PlaybookDialect
        from perdure.dialects.playbook.document.reader import Surroundings

        return PlaybookDialect(Surroundings(self._provides, lambda: tuple(self._kinds()), self._lacks, self._refusal))

    # Documents.

    def recognizes(self, text: bytes) -> bool:
        """By its `apiVersion`, or by its kind."""
        return b"noetl.io/" in text or (b"Playbook" in text and b"workflow" in text)

    def title(self, program: Any) -> str:
        return str(program.name)

    def labels(self, program: Any, run: RunId, token: str | None) -> dict[str, str]:
        return {}

    def declares(self, text: bytes, file: str = "") -> list[Declared]:
        from perdure.dialects.playbook.document.declaration import declares

        return declares(text)

    def parse(self, text: bytes, around: Surroundings | None = None) -> Judged:
        program, problems = self._behind.parse(text)
        lacking = "" if program is None else ", ".join(program.missing)
        return Judged(program, problems, pinned=text, refusal=lacking and f"this executor lacks: {lacking}")

    def load(self, text: bytes) -> Any:
        return self._behind.load(text)

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    def namespace_of(self, program: Any) -> str:
        return "default"

    def graph(self, program: Any) -> Graph:
        from perdure.dialects.playbook.views.graph import draw

        return draw(program)

    def open(self, body: Any, run: RunId) -> Asking[dict[str, Any]]:
        """At a worker: the arguments of a task that needs secrets."""
        from perdure.dialects.playbook.run.envelope_opening import open_envelope

        return open_envelope(body, run)

    # Runs.

    @property
    def events(self) -> tuple[type[Event], ...]:
        from perdure.dialects.playbook.state.events import OWN_EVENTS

        return OWN_EVENTS

    def begin(self, program: Any) -> Any:
        from perdure.dialects.playbook.state.body import Body

        return Body()

    @cached_property
    def accept(self) -> Callable[[Turn, i.Input], None]:
        return self._behind.accept

    @cached_property
    def advance(self) -> Callable[[Turn], bool]:
        from perdure.dialects.playbook.run.moves import advance

        return advance

    def exhausted(self, turn: Turn, reason: str, count: int) -> None:
        self._behind.exhausted(turn, reason, count)

    def refusal(self, execution: Execution, given: i.Signal | i.Steer | i.Reopen) -> str | None:
        from perdure.dialects.playbook.dialect import refusal

        return refusal(execution, given)

    def subjects(self, given: i.Signal | i.Steer | i.Reopen) -> frozenset[str]:
        from perdure.dialects.playbook.views.message_subjects import subjects

        return subjects(given)

    def phrase(self, given: i.Signal | i.Steer | i.Reopen) -> str:
        from perdure.dialects.playbook.views.message_subjects import phrase

        return phrase(given)

    def unreached(self, execution: Execution, given: i.Signal | i.Steer | i.Reopen) -> str:
        return ""  # a patch is there when a gate is asked, however early it came

    @cached_property
    def evolve(self) -> Callable[[Any, Event], None]:
        from perdure.dialects.playbook.state.folding import evolve

        return evolve

    def freeze(self, body: Any) -> bytes:
        from perdure.dialects.playbook.state.body import freeze

        return freeze(body)

    def thaw(self, program: Any, frozen: bytes) -> Any:
        from perdure.dialects.playbook.state.body import thaw

        return thaw(frozen)

    def chronicle(self, run: RunId, turns: Iterable[tuple[Instant, list[Event]]]) -> Iterable[dict[str, Any]]:
        """The history in the language's own event names."""
        from perdure.dialects.playbook.views.history import chronicle

        return chronicle(run, turns)

    def awaits(self, execution: Execution) -> list[str]:
        from perdure.dialects.playbook.views.execution import awaited_gates

        return awaited_gates(execution)

    def brief(self, execution: Execution) -> dict[str, Any]:
        from perdure.dialects.playbook.views.execution import brief

        return brief(execution)

    def confides(self, program: Any, options: Mapping[str, Any]) -> bool:
        from perdure.dialects.playbook.plan.secret_inputs import confides

        return confides(program, options)

    def secret_inputs(self, program: Any, given: Any, options: Mapping[str, Any]) -> Iterable[str]:
        """What came with the request and is a secret to the document's keychain."""
        from perdure.dialects.playbook.plan.secret_inputs import secret_inputs

        return secret_inputs(program, given, options)

    def unfit(self, program: Any, given: Any) -> str | None:
        """A workload is a map; so is what is laid over it (PBK-011)."""
        if given is None or isinstance(given, dict):
            return None
        what = {list: "a list", str: "a text", bool: "a boolean"}.get(type(given), "a number")
        return f"a Playbook's input is a map that goes over its workload, not {what}"

    def entries(self, program: Any) -> tuple[str, ...]:
        """The steps that a request may ask to begin with (PBK-054)."""
        return tuple(program.steps)

    def body_of(self, execution: Execution, texts: Mapping[bytes, bytes], ref: str, now: Instant) -> Any:
        from perdure.dialects.playbook.views.execution import body_of

        return body_of(execution, texts, ref, now)

    def show(self, execution: Execution, texts: Mapping[bytes, bytes]) -> Any:
        from perdure.dialects.playbook.views.execution import show

        return show(execution, texts)
