"""NoETL Playbooks as a language.

Every command creates it, so it imports its own modules only when a Playbook is used.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.problems import Problem, guess
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import ConvertedDocument, DeclaredResource, Validated, ValidationContext
from perdure.kernel.events import Event
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import Instant
from perdure.kernel.lazy_methods import lazy
from perdure.kernel.outcomes import Outcome

if TYPE_CHECKING:
    from perdure.dialects.playbook.document.reader import ToolCatalog
    from perdure.kernel.graphs.net import Net

_PLAYBOOK = "perdure.dialects.playbook"


class Playbook(Dialect):
    """The language. Its parameters describe the providers that may be tool kinds.

    Whether there is one of a name, which there are, and what must be installed before one can be used.
    """

    name = "playbook"
    version = 5
    edition = 3
    reopens_at_failure = True
    pauses_itself = True  # steps that are running go on to their end (PBK-192)
    call_markers = (b"playbook",)
    kinds: tuple[ResourceKind, ...] = (
        ResourceKind("Playbook", "playbooks", "noetl.io", ("pb",), has_namespace=True, has_paths=True, can_run=True),
    )

    def __init__(
        self,
        provides: Callable[[str], bool] = lambda name: False,
        kinds: Callable[[], Iterable[str]] = lambda: (),
        lacks: Callable[[str], str | None] = lambda kind: None,
        refusal: Callable[[str, str], str | None] = lambda name, namespace: None,
        repeats: Callable[[str], bool] = lambda kind: False,
    ) -> None:
        """`refusal`: why the operator does not allow a provider in a namespace; None if it is allowed.

        `repeats`: whether a second attempt of a task of this kind repeats its side effects.
        """
        self._repeats = repeats
        self._lacks = lacks
        self._refusal = refusal
        self._provides = provides
        self._kinds = kinds

    def _tools(self, namespace: str) -> "ToolCatalog":
        """What documents of a namespace can use: the operator's policy may depend on it."""
        from perdure.dialects.playbook.document.reader import ToolCatalog

        return ToolCatalog(
            self._provides,
            lambda: tuple(self._kinds()),
            self._lacks,
            lambda name: self._refusal(name, namespace),
        )

    # Documents.

    def recognizes(self, text: bytes) -> bool:
        """By its `apiVersion`, or by its kind."""
        return b"noetl.io/" in text or (b"Playbook" in text and b"workflow" in text)

    def convert(self, text: bytes) -> ConvertedDocument:
        from perdure.dialects.playbook.document.conversion import convert

        return convert(text)

    def title(self, program: Any) -> str:
        return str(program.name)

    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        from perdure.dialects.playbook.document.reader import declares

        return declares(text)

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        from perdure.dialects.playbook.document.reader import read

        program, problems = read(text, self._tools(around.namespace if around else DEFAULT_NAMESPACE))
        lacking = "" if program is None else ", ".join(program.missing)
        return Validated(program, problems, pinned=text, refusal=lacking and f"this executor lacks: {lacking}")

    def load(self, text: bytes) -> Any:
        from perdure.dialects.playbook.document.reader import load

        return load(text, self._tools(DEFAULT_NAMESPACE))

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    graph = lazy(f"{_PLAYBOOK}.views.graph:draw")
    document_schema = lazy(f"{_PLAYBOOK}.document.playbook_schema:document_schema")
    tracer = lazy(f"{_PLAYBOOK}.views.trace:PlaybookTracer")
    find_places = lazy(f"{_PLAYBOOK}.document.reader:find_places")
    open = lazy(f"{_PLAYBOOK}.run.envelope_opening:open_envelope")

    def net(self, program: Any) -> "Net":
        from perdure.dialects.playbook.views.net import net_of

        return net_of(program, self._repeats)

    def apply_rules(self, document: bytes, pipeline: Any, outcome: Outcome, began: Instant, ended: Instant) -> Any:
        from perdure.dialects.playbook.run.envelope_opening import program_of
        from perdure.dialects.playbook.run.worker_pipelines import judge

        return judge(program_of(document), pipeline, outcome, began, ended)

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
    remarks = lazy(f"{_PLAYBOOK}.run.inputs:remarks")
    subjects = lazy(f"{_PLAYBOOK}.views.message_subjects:subjects")
    phrase = lazy(f"{_PLAYBOOK}.views.message_subjects:phrase")
    evolve = lazy(f"{_PLAYBOOK}.state.folding:evolve")
    freeze = lazy(f"{_PLAYBOOK}.state.body:freeze")
    history_teller = lazy(f"{_PLAYBOOK}.views.history:history_teller")
    awaits = lazy(f"{_PLAYBOOK}.views.execution:awaited_gates")
    brief = lazy(f"{_PLAYBOOK}.views.execution:brief")
    has_secret_inputs = lazy(f"{_PLAYBOOK}.plan.keychain_declarations:has_secret_inputs")
    secret_inputs = lazy(f"{_PLAYBOOK}.plan.keychain_declarations:secret_inputs")
    body_of = lazy(f"{_PLAYBOOK}.views.execution:body_of")
    ended_steps = lazy(f"{_PLAYBOOK}.run.completion:ended_steps")
    obstacles = lazy(f"{_PLAYBOOK}.run.migration:obstacles")
    moved = lazy(f"{_PLAYBOOK}.run.migration:moved")
    missing_places = lazy(f"{_PLAYBOOK}.run.redrive:missing_places")
    show = lazy(f"{_PLAYBOOK}.views.execution:show")
    step_reader = lazy(f"{_PLAYBOOK}.views.steps:PlaybookStepReader")
    has_scope = lazy(f"{_PLAYBOOK}.views.evaluation:has_scope")
    evaluate = lazy(f"{_PLAYBOOK}.views.evaluation:evaluate")
    value_tracer = lazy(f"{_PLAYBOOK}.views.provenance:PlaybookValues")
    schemas = lazy(f"{_PLAYBOOK}.views.evaluation:schemas")
    written_arguments = lazy(f"{_PLAYBOOK}.views.evaluation:written_arguments")
    delays = lazy(f"{_PLAYBOOK}.views.steps:delays")
    line_of = lazy(f"{_PLAYBOOK}.views.steps:line_of")

    def thaw(self, program: Any, frozen: bytes) -> Any:
        from perdure.dialects.playbook.state.body import thaw

        return thaw(frozen)

    def why_unfit(self, program: Any, input: Any) -> str | None:
        """A workload is a map, and so is the input that is merged into it (PBK-011)."""
        if input is None or isinstance(input, dict):
            return None
        kind = {list: "a list", str: "a text", bool: "a boolean"}.get(type(input), "a number")
        return f"the input of a Playbook must be a map (it is merged into the workload), not {kind}"

    def check_entry(self, program: Any, step: str) -> Problem | None:
        """As the document's own `entry_step` would be (PBK-054)."""
        names = tuple(program.steps)
        if step in names:
            return None
        message = f"there is no step {step!r} to start at{guess(step, names)}"
        return Problem("PBK-007", message, "executor.spec.entry_step", hint=f"There are: {', '.join(names)}.")
