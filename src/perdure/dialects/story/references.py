"""What a step refers to: an Engram with its template, or another Story; checked again at run time (STY-021, STY-252).

Resources come from the bundle the run is pinned to. One that was missing then is asked for, and from its appearance on
recorded with the run (STY-255).
"""

from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story import events as s
from perdure.dialects.story.body import Body, StepState
from perdure.dialects.story.code import WAYS, place_of, provider_for, run_of
from perdure.dialects.story.ending import end_step
from perdure.dialects.story.inline_stories import inline_stories, without_stories
from perdure.dialects.story.merging import merged
from perdure.dialects.story.permissions import refuse
from perdure.dialects.story.phases import Phase, Reason
from perdure.dialects.story.policies import Execution
from perdure.dialects.story.program import Program, Step
from perdure.dialects.story.resources import Reference, Resource, read_reference, spec_of, version_of
from perdure.expressions.gotemplate import Structure
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import SECOND, Instant

SOONEST_LOOK: Instant = 10 * SECOND
LATEST_LOOK: Instant = 60 * SECOND


class Missing(msgspec.Struct, frozen=True):
    """Not there (yet)."""

    kind: str
    target: Reference
    reason: Reason

    @property
    def message(self) -> str:
        where = self.target.name if self.kind == "EngramTemplate" else self.target.key
        return f"Waiting for {self.kind} '{where}' to be created"


class Invalid(msgspec.Struct, frozen=True):
    """There, or not; in any case not to be used."""

    reason: Reason
    message: str


class Engram(msgspec.Struct, frozen=True, dict=True):
    """An Engram with its template, as a step uses them. What follows from them is found out once, for all runs."""

    program: Program
    step: Step
    reference: Reference
    engram: Resource
    template: Resource
    template_name: str

    @cached_property
    def version(self) -> str:
        """The pin, else the Engram's own (STY-225); empty when neither says."""
        return self.reference.version or version_of(self.engram)

    @cached_property
    def template_version(self) -> str:
        return version_of(self.template)

    @property
    def template_generation(self) -> int:
        found = (self.template.get("metadata") or {}).get("generation")
        return found if isinstance(found, int) else 1

    @cached_property
    def full_template_name(self) -> str:
        return f"{self.template_name}@{self.template_version}"

    @cached_property
    def execution(self) -> Execution:
        return Execution(self.program, self.step, self.engram, self.template)

    @cached_property
    def has_place(self) -> bool:
        """Whether its template says where its code is."""
        return place_of(self.template) is not None

    @cached_property
    def provider(self) -> str:
        return provider_for(self.template, self.template_name, self.template_version)

    @cached_property
    def run(self) -> dict[str, Any] | None:
        return run_of(self.template)

    @cached_property
    def input_schema(self) -> Any:
        return spec_of(self.template).get("inputSchema")

    @cached_property
    def output_schema(self) -> Any:
        return spec_of(self.template).get("outputSchema")

    @cached_property
    def declared_outputs(self) -> frozenset[Any] | None:
        found = spec_of(self.template).get("declaredOutputKeys")
        return frozenset(found) if isinstance(found, list) else None

    @cached_property
    def secrets(self) -> Any:
        """Of Engram and step: by logical name."""
        own = spec_of(self.engram).get("secrets")
        return merged(own if isinstance(own, dict) else {}, self.step.data.get("secrets") or {})

    @cached_property
    def given(self) -> dict[str, Any]:
        """The input as it is written: the Engram's `with` and the step's over it (STY-010)."""
        base = spec_of(self.engram).get("with")
        whole: dict[str, Any] = merged(base if isinstance(base, dict) else {}, self.step.given)
        return whole

    @cached_property
    def stories(self) -> dict[str, Any]:
        """Stories written in place, whose templates are their own."""
        return inline_stories(self.given)

    @cached_property
    def written(self) -> Any:
        """What of it is rendered."""
        return without_stories(self.given)

    @cached_property
    def input(self) -> Structure:
        """The same, compiled. Raises `TemplateError`."""
        return Structure(self.written, self.program.environment)


def find_engram(turn: Turn, step: Step) -> Engram | Missing | Invalid:
    """What a step executes; where all of it is in the bundle it is found once, for all runs."""
    program: Program = turn.program
    known: Engram | None = program.engrams.get(step.name)
    if known is not None:
        return known
    found = _look_for_engram(turn, step)
    if isinstance(found, Engram) and _is_bundled(program, found):
        program.engrams[step.name] = found
    return found


def _is_bundled(program: Program, found: Engram) -> bool:
    target = found.reference
    return (
        program.shelf.find("Engram", target.namespace, target.name) is found.engram
        and program.shelf.find("EngramTemplate", "", found.template_name) is found.template
    )


def _look_for_engram(turn: Turn, step: Step) -> Engram | Missing | Invalid:
    program: Program = turn.program
    target = read_reference(step.data.get("ref"), program.namespace)
    if target is None:
        return Invalid(Reason.ENGRAM_REFERENCE_INVALID, f"step '{step.name}' refers to no Engram")
    if problem := refuse("Story", program.namespace, "Engram", target, program.shelf, program.settings):
        return Invalid(Reason.ENGRAM_REFERENCE_INVALID, problem)
    engram = find(turn, "Engram", target.namespace, target.name)
    if engram is None and step.purpose:  # the engine's own: where nobody has one, its template is enough
        engram = {"kind": "Engram", "spec": {"templateRef": {"name": target.name}}}
    if engram is None:
        return Missing("Engram", target, Reason.REFERENCE_NOT_FOUND)
    if problem := _misfit("Engram", target, engram):
        return Invalid(Reason.ENGRAM_REFERENCE_INVALID, problem)
    wanted = read_reference(spec_of(engram).get("templateRef"), "")
    if wanted is None:
        return Invalid(Reason.ENGRAM_REFERENCE_INVALID, f"Engram '{target.key}' names no template")
    template = find(turn, "EngramTemplate", "", wanted.name)
    if template is None:
        return Missing("EngramTemplate", Reference(wanted.name, ""), Reason.TEMPLATE_NOT_FOUND)
    if problem := _misfit("EngramTemplate", wanted, template):
        return Invalid(Reason.ENGRAM_REFERENCE_INVALID, problem)
    mode = spec_of(engram).get("mode", "job")
    if mode != "job":  # STY-011
        message = f"Engram '{target.key}' runs as a {mode}; a batch step needs mode job"
        return Invalid(Reason.INVALID_CONFIGURATION, message)
    return Engram(program, step, target, engram, template, wanted.name)


def find_story(turn: Turn, step: Step, given: Any) -> tuple[Reference, Resource] | Missing | Invalid:
    program: Program = turn.program
    target = read_reference(given, program.namespace)
    if target is None:
        return Invalid(Reason.STORY_REFERENCE_INVALID, f"step '{step.name}' refers to no Story")
    if problem := refuse("Story", program.namespace, "Story", target, program.shelf, program.settings):
        return Invalid(Reason.STORY_REFERENCE_INVALID, problem)
    story = find(turn, "Story", target.namespace, target.name)
    if story is None:
        return Missing("Story", target, Reason.REFERENCE_NOT_FOUND)
    if problem := _misfit("Story", target, story):
        return Invalid(Reason.STORY_REFERENCE_INVALID, problem)
    return target, story


def _misfit(kind: str, wanted: Reference, found: Resource) -> str | None:
    if not wanted.fits(found):
        return f"{kind} '{wanted.name}' has version '{version_of(found)}', expected '{wanted.version}'"
    if not wanted.means(found):
        return f"{kind} '{wanted.name}' is not the one with uid '{wanted.uid}'"
    return None


def find(turn: Turn, kind: str, namespace: str, name: str) -> Resource | None:
    """From the bundle, or as it was found later in this run."""
    program: Program = turn.program
    body: Body = turn.body
    held = program.shelf.find(kind, namespace, name)
    if held is not None:
        return held
    later = body.found.get(f"{kind}/{namespace}/{name}")
    return None if later is None else jsontext.decode(turn.text(later))


def look_again(turn: Turn, missing: Missing) -> bool:
    """Whether the missing resource is in the catalog by now; then it is the run's own from here on."""
    target = missing.target
    found = turn.resource(missing.kind, target.namespace, target.name)
    if found is None:
        return False
    turn.emit(s.ResourceFound(missing.kind, target.namespace, target.name, turn.keep(jsontext.encode(found))))
    return True


def is_held_back(state: StepState) -> bool:
    """Whether a blocked step still has the permit that stood for what it waited for."""
    return state.phase is Phase.BLOCKED and bool(state.permits)


def release_waiter(turn: Turn, state: StepState) -> None:
    for permit in list(state.permits):
        turn.release_permit(permit)


def lacks_code(turn: Turn, found: Engram) -> bool:
    """Whether nothing that is loaded here, and nothing the template says, does its work (STY-009)."""
    if found.has_place:
        return False
    known = getattr(turn.execution.dialect, "has_code", None)
    return known is not None and not known(found.template_name, found.template_version)


def block_for_code(turn: Turn, step: Step, found: Engram) -> None:
    """Code comes with a process, not with the catalog: it is looked for again, ever less often."""
    program: Program = turn.program
    message = f"Waiting for code of EngramTemplate '{found.full_template_name}': nothing here implements it. {WAYS}"
    if program.settings.missing_references == "fail":
        end_step(turn, step.name, Phase.FAILED, message, reason=Reason.TEMPLATE_NOT_FOUND)
        return
    state = turn.body.steps.get(step.name)
    waited = 0 if state is None else turn.now - state.started_at
    poll = turn.set_timer(turn.now + min(max(waited, SOONEST_LOOK), LATEST_LOOK))
    turn.emit(s.StepBlocked(step.name, Reason.TEMPLATE_NOT_FOUND, message, turn.now, 0, poll))
    if state is None:
        turn.emit(s.Noted(step.name, "JobTemplateBlocked", message, turn.now))


def block(turn: Turn, step: Step, missing: Missing) -> None:
    """Wait, without costing anything, until the resource appears (STY-118)."""
    program: Program = turn.program
    if program.settings.missing_references == "fail":
        end_step(turn, step.name, Phase.FAILED, missing.message, reason=missing.reason)
        return
    target = missing.target
    permit = turn.await_resource(missing.kind, target.namespace, target.name)
    turn.emit(s.StepBlocked(step.name, missing.reason, missing.message, turn.now, permit))
    kind = "JobTemplateBlocked" if missing.kind == "EngramTemplate" else "ReferenceNotFound"
    turn.emit(s.Noted(step.name, kind, missing.message, turn.now))
