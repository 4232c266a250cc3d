"""NoETL Playbooks as a language. Every command of the tool creates it, so it imports nothing of its own before the
first Playbook is met.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.kernel.dialect import Dialect, lazy
from perdure.kernel.events import Event
from perdure.kernel.problems import Problem, guess
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.validation import DeclaredResource, Validated, ValidationContext

if TYPE_CHECKING:
    from perdure.dialects.playbook.document.reader import ToolCatalog as Reading

_PLAYBOOK = "perdure.dialects.playbook"


class Playbook(Dialect):
    """The language, given the providers that may be tool kinds: whether there is one, which there are, and what is
    to be installed before one can work."""

    name = "playbook"
    version = 3
    edition = 1
    calling_words = (b"playbook",)
    kinds: tuple[ResourceKind, ...] = (ResourceKind("Playbook", "playbooks", "noetl.io", ("pb",), can_run=True),)

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
    def _reading(self) -> "Reading":
        from perdure.dialects.playbook.document.reader import ToolCatalog as Reading

        return Reading(self._provides, lambda: tuple(self._kinds()), self._lacks, self._refusal)

    # Documents.

    def recognizes(self, text: bytes) -> bool:
        """By its `apiVersion`, or by its kind."""
        return b"noetl.io/" in text or (b"Playbook" in text and b"workflow" in text)

    def title(self, program: Any) -> str:
        return str(program.name)

    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        from perdure.dialects.playbook.document.reader import declares

        return declares(text)

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        from perdure.dialects.playbook.document.reader import read

        program, problems = read(text, self._reading)
        lacking = "" if program is None else ", ".join(program.missing)
        return Validated(program, problems, pinned=text, refusal=lacking and f"this executor lacks: {lacking}")

    def load(self, text: bytes) -> Any:
        from perdure.dialects.playbook.document.reader import load

        return load(text, self._reading)

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    graph = lazy(f"{_PLAYBOOK}.views.graph:draw")
    open = lazy(f"{_PLAYBOOK}.run.envelope_opening:open_envelope")

    # Runs.

    @property
    def events(self) -> tuple[type[Event], ...]:
        from perdure.dialects.playbook.state.events import OWN_EVENTS

        return OWN_EVENTS

    def begin(self, program: Any) -> Any:
        from perdure.dialects.playbook.state.body import Body

        return Body()

    accept = lazy(f"{_PLAYBOOK}.run.inputs:accept")
    advance = lazy(f"{_PLAYBOOK}.run.moves:advance")
    exhausted = lazy(f"{_PLAYBOOK}.run.inputs:end_exhausted")
    refusal = lazy(f"{_PLAYBOOK}.run.inputs:refusal")
    subjects = lazy(f"{_PLAYBOOK}.views.message_subjects:subjects")
    phrase = lazy(f"{_PLAYBOOK}.views.message_subjects:phrase")
    evolve = lazy(f"{_PLAYBOOK}.state.folding:evolve")
    freeze = lazy(f"{_PLAYBOOK}.state.body:freeze")
    history = lazy(f"{_PLAYBOOK}.views.history:history")
    awaits = lazy(f"{_PLAYBOOK}.views.execution:awaited_gates")
    brief = lazy(f"{_PLAYBOOK}.views.execution:brief")
    has_secret_inputs = lazy(f"{_PLAYBOOK}.plan.keychain_declarations:has_secret_inputs")
    secret_inputs = lazy(f"{_PLAYBOOK}.plan.keychain_declarations:secret_inputs")
    body_of = lazy(f"{_PLAYBOOK}.views.execution:body_of")
    show = lazy(f"{_PLAYBOOK}.views.execution:show")

    def thaw(self, program: Any, frozen: bytes) -> Any:
        from perdure.dialects.playbook.state.body import thaw

        return thaw(frozen)

    def why_unfit(self, program: Any, given: Any) -> str | None:
        """A workload is a map; so is what is laid over it (PBK-011)."""
        if given is None or isinstance(given, dict):
            return None
        what = {list: "a list", str: "a text", bool: "a boolean"}.get(type(given), "a number")
        return f"a Playbook's input is a map that goes over its workload, not {what}"

    def check_entry(self, program: Any, step: str) -> Problem | None:
        """As the document's own `entry_step` would be (PBK-054)."""
        names = tuple(program.steps)
        if step in names:
            return None
        message = f"there is no step {step!r} to begin with{guess(step, names)}"
        return Problem("PBK-007", message, "executor.spec.entry_step", hint=f"There are: {', '.join(names)}.")
