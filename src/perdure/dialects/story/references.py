"""What a step refers to: an Engram with its template, or another Story; checked again at run time (STY-021, STY-252).

Resources come from the bundle the run is pinned to. One that was missing then is asked for, and from its appearance on
recorded with the run (STY-255).
"""

from dataclasses import dataclass
from typing import Any

from perdure.dialects.story import events as s
from perdure.dialects.story.body import Body, StepState
from perdure.dialects.story.code import WAYS, place_of
from perdure.dialects.story.ending import end_step
from perdure.dialects.story.permissions import refuse
from perdure.dialects.story.phases import Phase, Reason
from perdure.dialects.story.program import Program, Step
from perdure.dialects.story.resources import Reference, Resource, read_reference, spec_of, version_of
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import SECOND, Instant

SOONEST_LOOK: Instant = 10 * SECOND
LATEST_LOOK: Instant = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Missing:
    """Not there (yet)."""

    kind: str
    target: Reference
    reason: Reason

    @property
    def message(self) -> str:
        where = self.target.name if self.kind == "EngramTemplate" else self.target.key
        return f"Waiting for {self.kind} '{where}' to be created"


@dataclass(frozen=True, slots=True)
class Invalid:
    """There, or not; in any case not to be used."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Engram:
    """An Engram with its template, as a step uses them."""

    reference: Reference
    engram: Resource
    template: Resource
    template_name: str

    @property
    def version(self) -> str:
        """The pin, else the Engram's own (STY-225); empty when neither says."""
        return self.reference.version or version_of(self.engram)

    @property
    def template_version(self) -> str:
        return version_of(self.template)

    @property
    def template_generation(self) -> int:
        found = (self.template.get("metadata") or {}).get("generation")
        return found if isinstance(found, int) else 1


def find_engram(turn: Turn, step: Step) -> Engram | Missing | Invalid:
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
    return Engram(target, engram, template, wanted.name)


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
    known = getattr(turn.execution.dialect, "has_code", None)
    return (
        place_of(found.template) is None
        and known is not None
        and not known(found.template_name, found.template_version)
    )


def block_for_code(turn: Turn, step: Step, found: Engram) -> None:
    """Code comes with a process, not with the catalog: it is looked for again, ever less often."""
    program: Program = turn.program
    name = f"{found.template_name}@{found.template_version}"
    message = f"Waiting for code of EngramTemplate '{name}': nothing here implements it. {WAYS}"
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
