"""The Story language. Every command creates it, so it imports its other modules only when a Story is met."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import Validated, ValidationContext
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.lazy_methods import lazy
from perdure.kernel.outcomes import Outcome, Status

if TYPE_CHECKING:
    from perdure.dialects.story.plan.settings import Settings


_STORY = "perdure.dialects.story"


class Story(Dialect):
    """The Story language, with the resources and code that were loaded, and the operator's settings."""

    name = "story"
    ignores_late_cancel = True  # STY-188
    version = 1
    call_markers = (b"documentRef",)
    edition = 1
    name_label = "bubustack.io/storyrun"
    label_verb = "metadata"

    def __init__(
        self,
        provided: Callable[[str, str, str], dict[str, Any] | None] = lambda kind, namespace, name: None,
        implements: Callable[[str, str], bool] | None = None,
        settings: Mapping[str, Any] | None = None,
        refusal: Callable[[str, str], str | None] = lambda provider, namespace: None,
        document_kinds: Callable[[], Mapping[str, ResourceKind]] = dict,
        remove_recordings: Callable[[Sequence[str]], None] = lambda runs: None,
    ) -> None:
        """`refusal` returns why the operator does not let a namespace use a provider, or None if it may.

        `document_kinds` returns, by language, the kind of the documents that an Impulse may start;
        `remove_recordings` removes files of runs that were removed.
        """
        self._remove_recordings = remove_recordings
        self._document_kinds = document_kinds
        self._refusal = refusal
        self._provided = provided
        self._implements = implements
        self._raw_settings = settings or {}

    # Documents.

    @property
    def kinds(self) -> tuple[ResourceKind, ...]:
        from perdure.dialects.story.resources.kinds import RESOURCE_KINDS

        return tuple(RESOURCE_KINDS.values())

    @cached_property
    def _settings(self) -> "Settings":
        from perdure.dialects.story.plan.settings import Settings

        return Settings.read(self._raw_settings)

    def recognizes(self, text: bytes) -> bool:
        return b"bubustack.io/" in text

    def title(self, program: Any) -> str:
        return str(program.name)

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    def namespace_of(self, program: Any) -> str:
        return str(program.namespace)

    def why_unfit(self, program: Any, input: Any) -> str | None:
        """An input is data, and data must not refer to secrets (STY-283)."""
        from perdure.dialects.story.values.references import places

        for path in places(input, is_written=False):
            field = ".".join(map(str, path)) or "it"
            return f"{field} is a reference to a secret or a config map, which is not allowed in a run's input"
        return None

    def labels(self, program: Any, run: RunId, token: str | None) -> dict[str, str]:
        """The labels of a StoryRun: its name, by which people and other resources find it, and its token."""
        from perdure.dialects.story.resources.labels import RUN, TOKEN
        from perdure.dialects.story.resources.names import run_name
        from perdure.dialects.story.run.run_start import generated_name

        if token is None:
            return {RUN: generated_name(program, run)}
        return {RUN: run_name(program.namespace, program.name, token), TOKEN: token}

    def find_name(self, program: Any, token: str | None, options: Mapping[str, Any]) -> str | None:
        """Runs with a token or a chosen name are found by it (STY-144, STY-153)."""
        from perdure.dialects.story.resources.names import run_name

        if options.get("name"):
            return str(options["name"])
        return None if token is None else run_name(program.namespace, program.name, token)

    def assign_name(self, program: Any, run: RunId, options: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        """The name a run will use for itself (STY-014, STY-284)."""
        from perdure.dialects.story.run.run_start import generated_name

        return options.get("name") or labels.get(self.name_label) or generated_name(program, run)

    same_start = lazy(f"{_STORY}.triggers.requests:same_start")

    def exit_status(self, status: Status, outcome: Outcome) -> Status:
        """A run that somebody cancelled counts as cancelled; one that a step of it stopped as `Finished` does not."""
        if status is not Status.CANCELLED:
            return status
        from perdure.dialects.story.run.interruption import was_stopped

        return Status.FAILED if was_stopped(outcome) else status

    ended_steps = lazy(f"{_STORY}.run.step_end:ended_steps")
    retention = lazy(f"{_STORY}.plan.retention:retention")

    def is_clean(self, execution: Execution) -> bool:
        return execution.body.cleaned_at is not None

    goes_with = lazy(f"{_STORY}.plan.retention:goes_with")

    @property
    def settings(self) -> "Settings":
        return self._settings

    declares = lazy(f"{_STORY}.document.parser:declares")

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        from perdure.dialects.story.document.parser import parse

        return parse(
            text,
            around,
            self.load,
            self.provided,
            self.has_code,
            self._settings,
            self._refusal,
            self._document_kinds,
        )

    def foresee(self, text: bytes, around: ValidationContext) -> None:
        from perdure.dialects.story.document.parser import foresee

        foresee(text, around, self.provided)

    @property
    def has_code(self) -> Callable[[str, str], bool] | None:
        """Whether a template can be executed, by loaded code or by the language itself."""
        from perdure.dialects.story.plan.inline_stories import MAP_TEMPLATE

        implements = self._implements
        return (
            None
            if implements is None
            else lambda template, version: template == MAP_TEMPLATE or implements(template, version)
        )

    def with_all_code(self) -> "Story":
        return self._with_all_code

    @cached_property
    def _with_all_code(self) -> "Story":
        same = copy(self)
        same._implements = None
        return same

    def admitted(self, resource: dict[str, Any], warnings: Sequence[str] = ()) -> dict[str, Any] | None:
        """The status of a Story at admission (STY-006)."""
        if resource.get("kind") != "Story":
            return None
        from perdure.dialects.story.views.resource_status import admitted

        return admitted(resource, warnings)

    def users(self, kind: str) -> tuple[str, ...]:
        return ("Impulse",) if kind == "Story" else ()

    with_usage = lazy(f"{_STORY}.views.resource_status:with_usage")

    def provided(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Resources that nobody has to apply: those of loaded code, and the templates that Perdure ships."""
        if kind == "EngramCode":  # `engram_code.CODE`, without importing it
            template, _, version = name.rpartition("@")
            return {} if self.has_code is not None and self.has_code(template, version) else None
        if kind != "ImpulseTemplate":
            return self._provided(kind, namespace, name)
        from perdure.dialects.story.triggers.schedules import NAME, TEMPLATE

        return TEMPLATE if name == NAME else self._provided(kind, namespace, name)

    load = lazy(f"{_STORY}.plan.compiler:load")
    unpin = lazy(f"{_STORY}.plan.bundle:unpin")
    graph = lazy(f"{_STORY}.views.graph:draw")
    document_schema = lazy(f"{_STORY}.document.resource_schemas:document_schema")
    tracer = lazy(f"{_STORY}.views.trace:StoryTracer")
    net = lazy(f"{_STORY}.views.net:net_of")
    find_places = lazy(f"{_STORY}.document.parser:find_places")

    # Runs.

    @property
    def events(self) -> tuple[type[Event], ...]:
        from perdure.dialects.story.state.events import OWN_EVENTS

        return OWN_EVENTS

    @cached_property
    def shown_events(self) -> frozenset[type[Event]]:  # type: ignore[override]
        from perdure.dialects.story.state.folding import SHOWN_EVENTS

        return SHOWN_EVENTS

    def begin(self, program: Any) -> Any:
        from perdure.dialects.story.state.body import Body

        return Body(program.plan)

    accept = lazy(f"{_STORY}.run.inputs:accept")
    advance = lazy(f"{_STORY}.run.moves:advance")
    exhausted = lazy(f"{_STORY}.run.inputs:end_exhausted")
    refusal = lazy(f"{_STORY}.run.control:refusal")
    subjects = lazy(f"{_STORY}.views.message_subjects:subjects")
    phrase = lazy(f"{_STORY}.views.message_subjects:phrase")
    unreached = lazy(f"{_STORY}.views.message_subjects:unreached")
    obstacles = lazy(f"{_STORY}.run.migration:obstacles")
    moved = lazy(f"{_STORY}.run.migration:moved")
    evolve = lazy(f"{_STORY}.state.folding:evolve")
    freeze = lazy(f"{_STORY}.state.body:freeze")
    history_teller = lazy(f"{_STORY}.views.history:history_teller")
    awaits = lazy(f"{_STORY}.views.story_run:awaited_gates")
    show = lazy(f"{_STORY}.views.story_run:show")
    show_itself = lazy(f"{_STORY}.views.story_run:show_itself")
    step_reader = lazy(f"{_STORY}.views.steps:StoryStepReader")
    has_scope = lazy(f"{_STORY}.views.evaluation:has_scope")
    evaluate = lazy(f"{_STORY}.views.evaluation:evaluate")
    value_tracer = lazy(f"{_STORY}.views.provenance:StoryValues")
    schemas = lazy(f"{_STORY}.views.evaluation:schemas")
    written_arguments = lazy(f"{_STORY}.views.evaluation:written_arguments")
    delays = lazy(f"{_STORY}.views.steps:delays")
    cause = lazy(f"{_STORY}.views.steps:cause")
    line_of = lazy(f"{_STORY}.views.steps:line_of")
    resource_schema = lazy(f"{_STORY}.document.resource_schemas:schema_of")
    patched = lazy(f"{_STORY}.run.resource_patch:patched")

    def has_streams(self, execution: Execution) -> bool:
        return execution.body.topology is not None

    def forget(self, runs: Sequence[RunId]) -> None:
        self._remove_recordings(runs)

    def thaw(self, program: Any, frozen: bytes) -> Any:
        from perdure.dialects.story.state.body import thaw

        return thaw(program.plan, frozen)

    def resources(self, shown: Any) -> list[dict[str, Any]]:
        """The StoryRun, its StepRuns and their EffectClaims."""
        run = {name: shown[name] for name in ("apiVersion", "kind", "metadata", "spec", "status")}
        parts = (*shown.get("effectClaims", ()), *shown.get("transportBindings", ()))
        return [run, *shown["stepRuns"].values(), *parts]

    def holders(self, kind: str, name: str) -> list[str]:
        """Names of the runs that a resource may belong to: its name begins with the run's, unless that was too long
        (STY-014).
        """
        from perdure.dialects.story.resources.names import names_before

        return [name] if kind == "StoryRun" else names_before(name)

    def body_of(self, execution: Execution, texts: Mapping[bytes, bytes], ref: str, now: Instant) -> Any:
        """The value of a storage reference of the run, or the run's output."""
        from perdure.dialects.story.views.story_run import body_of

        return body_of(execution, texts, ref)
