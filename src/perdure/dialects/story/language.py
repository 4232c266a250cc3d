"""The door to Stories. Cheap to open, for every command of the tool pays for it: what stands behind it is imported
when the first Story is met.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perdure.kernel import inputs as i
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution
from perdure.kernel.graph import Graph
from perdure.kernel.outcomes import Cancelled, Outcome, Status
from perdure.kernel.resource_kinds import Kind
from perdure.kernel.turn import Turn
from perdure.kernel.validation import Declared, Judged, Surroundings
from perdure.kernel.values import Instant, RunId

if TYPE_CHECKING:
    from perdure.dialects.story.plan.settings import Settings


class Story:
    """The language, given what loaded code stands for: resources by kind, namespace and name, and whether a template
    has something to run; and the operator's settings, as they are written.
    """

    name = "story"
    late_cancel_is_nothing = True  # STY-188
    version = 1
    edition = 1
    name_label = "bubustack.io/storyrun"

    def __init__(
        self,
        provided: Callable[[str, str, str], dict[str, Any] | None] = lambda kind, namespace, name: None,
        implements: Callable[[str, str], bool] | None = None,
        settings: Mapping[str, Any] | None = None,
        refusal: Callable[[str, str], str | None] = lambda provider, namespace: None,
    ) -> None:
        """`refusal`: why the operator does not let a namespace use a provider; None where it may."""
        self._refusal = refusal
        self._provided = provided
        self._implements = implements
        self._given = settings or {}

    # Documents.

    @property
    def kinds(self) -> tuple[Kind, ...]:
        from perdure.dialects.story.resources.kinds import KINDS

        return tuple(KINDS.values())

    @cached_property
    def _settings(self) -> "Settings":
        from perdure.dialects.story.plan.settings import Settings

        return Settings.read(self._given)

    def recognizes(self, text: bytes) -> bool:
        return b"bubustack.io/" in text

    def title(self, program: Any) -> str:
        return str(program.name)

    def secret_names(self, program: Any) -> tuple[str, ...]:
        names: tuple[str, ...] = program.secret_names
        return names

    def namespace_of(self, program: Any) -> str:
        return str(program.namespace)

    def unfit(self, program: Any, given: Any) -> str | None:
        """STY-283: an input is data, and data name no secret."""
        from perdure.dialects.story.values.references import places

        for path in places(given, is_written=False):
            where = ".".join(map(str, path)) or "it"
            return f"{where} is a reference to a secret or a config map, which a run's input may not have"
        return None

    def labels(self, program: Any, run: RunId, token: str | None) -> dict[str, str]:
        """The StoryRun's name, by which people and other resources find it."""
        from perdure.dialects.story.resources.labels import RUN, TOKEN
        from perdure.dialects.story.resources.names import run_name
        from perdure.dialects.story.run.run_start import generated_name

        if token is None:
            return {RUN: generated_name(program, run)}
        return {RUN: run_name(program.namespace, program.name, token), TOKEN: token}

    def name_run(self, program: Any, token: str | None, options: Mapping[str, Any]) -> tuple[str, str] | None:
        """Runs under a token, and those whose name was chosen, are found by it (STY-144, STY-153)."""
        from perdure.dialects.story.resources.names import run_name

        namespace = options.get("namespace") or program.namespace
        if options.get("name"):
            return namespace, options["name"]
        return None if token is None else (namespace, run_name(program.namespace, program.name, token))

    def names(self, program: Any, run: RunId, options: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, str]:
        """STY-014, STY-284: as its run will call itself."""
        from perdure.dialects.story.run.run_start import generated_name

        name = options.get("name") or labels.get(self.name_label) or generated_name(program, run)
        return options.get("namespace") or program.namespace, name

    def same_start(self, program: Any, given: bytes, options: Mapping[str, Any]) -> bytes:
        from perdure.dialects.story.triggers.requests import same_start

        return same_start(program, given, options)

    def exit_status(self, status: Status, outcome: Outcome) -> Status:
        """The exit code follows the phase: `Finished` is an end like others, only `Canceled` is cancelled."""
        is_finished = status is Status.CANCELLED and isinstance(outcome, Cancelled)
        return Status.FAILED if is_finished else status

    def keeping(self, program: Any) -> Any:
        from perdure.dialects.story.plan.retention import keeping

        return keeping(program)

    def is_clean(self, execution: Execution) -> bool:
        return execution.body.cleaned_at is not None

    def goes_with(self, execution: Execution) -> Any:
        from perdure.dialects.story.plan.retention import goes_with

        return goes_with(execution)

    @property
    def settings(self) -> "Settings":
        return self._settings

    def declares(self, text: bytes, file: str = "") -> list[Declared]:
        from perdure.dialects.story.document.parser import declares

        return declares(text, file)

    def parse(self, text: bytes, around: Surroundings | None = None) -> Judged:
        from perdure.dialects.story.document.parser import parse

        return parse(text, around, self.load, self.provided, self.has_code, self._settings, self._refusal)

    def foresee(self, text: bytes, around: Surroundings) -> None:
        from perdure.dialects.story.document.parser import foresee

        foresee(text, around, self.provided)

    @property
    def has_code(self) -> Callable[[str, str], bool] | None:
        """Whether a template can be executed: by loaded code, or by the language itself."""
        from perdure.dialects.story.plan.inline_stories import MAP_TEMPLATE

        known = self._implements
        return None if known is None else lambda template, version: template == MAP_TEMPLATE or known(template, version)

    def admitted(self, resource: dict[str, Any], warnings: Sequence[str] = ()) -> dict[str, Any] | None:
        """STY-006, as far as admission knows it."""
        if resource.get("kind") != "Story":
            return None
        from perdure.dialects.story.views.story_status import admitted

        return admitted(resource, warnings)

    def users(self, kind: str) -> tuple[str, ...]:
        return ("Impulse",) if kind == "Story" else ()

    def tallied(self, resource: dict[str, Any], users: Sequence[dict[str, Any]], runs: int) -> dict[str, Any]:
        from perdure.dialects.story.views.story_status import tallied

        return tallied(resource, users, runs)

    def provided(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """What nobody has to apply: what stands for loaded code, and the templates that Perdure brings along."""
        if kind == "EngramCode":  # see `code.CODE`; named here, for nothing is imported before a Story is met
            template, _, version = name.rpartition("@")
            return {} if self.has_code is not None and self.has_code(template, version) else None
        if kind != "ImpulseTemplate":
            return self._provided(kind, namespace, name)
        from perdure.dialects.story.triggers.schedules import NAME, TEMPLATE

        return TEMPLATE if name == NAME else self._provided(kind, namespace, name)

    def load(self, text: bytes) -> Any:
        from perdure.dialects.story.plan.compiler import load

        return load(text)

    def graph(self, program: Any) -> Graph:
        from perdure.dialects.story.views.graph import draw

        return draw(program)

    # Runs.

    @property
    def events(self) -> tuple[type[Event], ...]:
        from perdure.dialects.story.state.events import OWN_EVENTS

        return OWN_EVENTS

    def begin(self, program: Any) -> Any:
        from perdure.dialects.story.state.body import Body

        return Body(program.plan)

    @cached_property
    def accept(self) -> Callable[[Turn, i.Input], None]:
        from perdure.dialects.story.dialect import accept

        return accept

    @cached_property
    def advance(self) -> Callable[[Turn], bool]:
        from perdure.dialects.story.run.moves import advance

        return advance

    def exhausted(self, turn: Turn, reason: str, count: int) -> None:
        from perdure.dialects.story.dialect import exhausted

        exhausted(turn)

    def refusal(self, execution: Execution, given: i.Signal | i.Steer | i.Reopen) -> str | None:
        from perdure.dialects.story.run.control import refusal

        return refusal(execution, given)

    def subjects(self, given: i.Signal | i.Steer | i.Reopen) -> frozenset[str]:
        from perdure.dialects.story.views.message_subjects import subjects

        return subjects(given)

    def phrase(self, given: i.Signal | i.Steer | i.Reopen) -> str:
        from perdure.dialects.story.views.message_subjects import phrase

        return phrase(given)

    def unreached(self, execution: Execution, given: i.Signal | i.Steer | i.Reopen) -> str:
        from perdure.dialects.story.views.message_subjects import unreached

        return unreached(execution, given)

    @cached_property
    def evolve(self) -> Callable[[Any, Event], None]:
        from perdure.dialects.story.state.folding import evolve

        return evolve

    def freeze(self, body: Any) -> bytes:
        from perdure.dialects.story.state.body import freeze

        return freeze(body)

    def thaw(self, program: Any, frozen: bytes) -> Any:
        from perdure.dialects.story.state.body import thaw

        return thaw(program.plan, frozen)

    def chronicle(self, run: RunId, turns: Iterable[tuple[Instant, list[Event]]]) -> Iterable[dict[str, Any]]:
        """The history in the language's own event names."""
        from perdure.dialects.story.views.history import chronicle

        return chronicle(run, turns)

    def resources(self, shown: Any) -> list[dict[str, Any]]:
        """The StoryRun, its StepRuns, their EffectClaims."""
        run = {name: shown[name] for name in ("apiVersion", "kind", "metadata", "spec", "status")}
        return [run, *shown["stepRuns"].values(), *shown.get("effectClaims", ())]

    def holders(self, kind: str, name: str) -> list[str]:
        """What belongs to a run begins with its name, unless it was too long to stand there whole (STY-014)."""
        from perdure.dialects.story.resources.names import names_before

        return [name] if kind == "StoryRun" else names_before(name)

    def patched(self, execution: Execution, kind: str, patch: dict[str, Any]) -> list[i.Input]:
        from perdure.dialects.story.run.resource_patch import patched

        return patched(execution, kind, patch)

    def body_of(self, execution: Execution, texts: Mapping[bytes, bytes], ref: str, now: Instant) -> Any:
        """What a storage reference of the run stands for, or the run's output."""
        from perdure.dialects.story.views.story_run import body_of

        return body_of(execution, texts, ref)

    def awaits(self, execution: Execution) -> list[str]:
        from perdure.dialects.story.views.story_run import awaited_gates

        return awaited_gates(execution)

    def show(self, execution: Execution, texts: Mapping[bytes, bytes]) -> Any:
        from perdure.dialects.story.views.story_run import show

        return show(execution, texts)
