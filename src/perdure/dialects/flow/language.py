"""The door to MWL. Cheap to open, for every command of the tool pays for it: what stands behind it,
expressions and all, is imported when the first Flow is met.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution
from perdure.kernel.graph import Graph
from perdure.kernel.resource_kinds import Kind
from perdure.kernel.turn import Turn
from perdure.kernel.validation import Declared, Judged, Surroundings
from perdure.kernel.values import RunId

if TYPE_CHECKING:
    from perdure.dialects.flow.dialect import FlowDialect
    from perdure.dialects.flow.plan.provider_catalog import Described


class Flow:
    """The language, given the providers that its documents may call: how to find one, and which there are."""

    name = "flow"
    version = 2
    edition = 1
    name_label = ""
    calling_words = (b"perdure/run/",)
    kinds: tuple[Kind, ...] = (Kind("Flow", "flows", "mwl.dev", can_run=True),)

    def __init__(
        self,
        find: "Callable[[str], Described | None]" = lambda name: None,
        names: Callable[[], Iterable[str]] = lambda: (),
        refusal: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        """`refusal`: why the operator does not let documents use a provider; None where they may."""
        self._find = find
        self._names = names
        self._refusal = refusal

    @cached_property
    def _behind(self) -> "FlowDialect":
        from perdure.dialects.flow.dialect import FlowDialect
        from perdure.dialects.flow.plan.provider_catalog import Catalog

        return FlowDialect(Catalog(self._find, self._names, self._refusal))

    # Documents.

    def recognizes(self, text: bytes) -> bool:
        """By its `$schema`, or else by the two members that every Flow has and no other document does."""
        return b"mwl.dev/" in text or (b'"entrypoint"' in text and b'"steps"' in text)

    def title(self, program: Any) -> str:
        return ""  # a Flow has no name of its own

    def labels(self, program: Any, run: RunId, token: str | None) -> dict[str, str]:
        return {}

    def declares(self, text: bytes, file: str = "") -> list[Declared]:
        """A Flow has no name of its own: it is called like its file."""
        name = file.rpartition("/")[2].partition(".")[0]
        try:
            document = jsontext.read_strict(text)
        except jsontext.NotJson:
            return []
        body = {"apiVersion": "mwl.dev/v1", "kind": "Flow", "metadata": {"name": name}, "spec": document}
        return [Declared("Flow", "", name, body, text)] if name else []

    def parse(self, text: bytes, around: Surroundings | None = None) -> Judged:
        return Judged(*self._behind.parse(text), pinned=text)

    def load(self, text: bytes) -> Any:
        return self._behind.load(text)

    def graph(self, program: Any) -> Graph:
        return self._behind.graph(program)

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    def namespace_of(self, program: Any) -> str:
        return "default"

    # Runs.

    @property
    def events(self) -> tuple[type[Event], ...]:
        return self._behind.events

    def begin(self, program: Any) -> Any:
        return self._behind.begin(program)

    @cached_property
    def accept(self) -> Callable[[Turn, i.Input], None]:
        return self._behind.accept

    @cached_property
    def advance(self) -> Callable[[Turn], bool]:
        return self._behind.advance

    def exhausted(self, turn: Turn, reason: str, count: int) -> None:
        self._behind.exhausted(turn, reason, count)

    def refusal(self, execution: Execution, given: i.Signal | i.Steer | i.Reopen) -> str | None:
        match given:
            case i.Signal():
                return "a Flow waits for no signals"
            case i.Steer(verb):
                return f"a Flow cannot be asked to {verb!r}"
            case _:
                return "a Flow ends once; start it again instead"

    @cached_property
    def evolve(self) -> Callable[[Any, Event], None]:
        return self._behind.evolve

    def freeze(self, body: Any) -> bytes:
        return self._behind.freeze(body)

    def thaw(self, program: Any, frozen: bytes) -> Any:
        return self._behind.thaw(program, frozen)

    def awaits(self, execution: Execution) -> list[str]:
        return []  # a Flow waits for work and for time, never for a word

    def show(self, execution: Execution, texts: Mapping[bytes, bytes]) -> Any:
        return self._behind.show(execution, texts)
