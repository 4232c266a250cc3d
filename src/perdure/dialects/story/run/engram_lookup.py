"""What a step refers to: an Engram with its template, or another Story; checked again at run time (STY-021, STY-252).

Resources come from the bundle the run is pinned to. One that was missing then is asked for, and from its appearance on
recorded with the run (STY-255).
"""

from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story.plan.engram_code import CODE, WAYS, place_of, provider_for, run_of
from perdure.dialects.story.plan.execution_policy import ExecutionPolicy
from perdure.dialects.story.plan.inline_stories import inline_stories, without_stories
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.reference_grants import refuse
from perdure.dialects.story.resources.resource import Reference, Resource, merged, read_reference, spec_of, version_of
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.values.references import may_refer, places
from perdure.expressions.gotemplate import Structure
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn


class MissingResource(msgspec.Struct, frozen=True):
    """Not there (yet)."""

    kind: str
    target: Reference
    reason: Reason

    @property
    def message(self) -> str:
        where = self.target.name if self.kind == "EngramTemplate" else self.target.key
        return f"Waiting for {self.kind} '{where}' to be created"


class InvalidReference(msgspec.Struct, frozen=True):
    """There, or not; in any case not to be used."""

    reason: Reason
    message: str


class EngramAndTemplate:
    """An Engram and its template, as one reference leads to them. What follows from them is found out once."""

    def __init__(self, program: Program, reference: Reference, engram: Resource, template: Resource, name: str) -> None:
        self.program = program
        self.reference = reference
        self.engram = engram
        self.template = template
        self.template_name = name
        self.template_version = version_of(template)
        self.full_template_name = f"{name}@{self.template_version}"
        generation = (template.get("metadata") or {}).get("generation")
        self.template_generation = generation if isinstance(generation, int) else 1
        self.version = reference.version or version_of(engram)  # the pin, else the Engram's own (STY-225); or empty
        self.has_code = place_of(template) is not None  # else it is looked for among what is loaded
        self.provider = provider_for(template, name, self.template_version)
        self.run = run_of(template)
        spec = spec_of(template)
        self.input_schema: Any = spec.get("inputSchema")
        self.output_schema: Any = spec.get("outputSchema")
        declared = spec.get("declaredOutputKeys")
        self.declared_outputs = frozenset(declared) if isinstance(declared, list) else None
        self.base = object_at(engram, "spec", "with")
        self.own_secrets = object_at(engram, "spec", "secrets")

    @cached_property
    def execution(self) -> ExecutionPolicy:
        """Of all steps that say nothing about it themselves."""
        return ExecutionPolicy(self.program, _SILENT, self.engram, self.template)

    @cached_property
    def is_bundled(self) -> bool:
        """Whether the run's bundle holds both: then they stay what they are, for all runs of the program."""
        target, shelf = self.reference, self.program.resources
        return (
            shelf.find("Engram", target.namespace, target.name) is self.engram
            and shelf.find("EngramTemplate", "", self.template_name) is self.template
        )


_SILENT = Step("", "", "", {})


class ResolvedEngram:
    """An Engram with its template, as a step uses them."""

    __slots__ = ("_input", "_shared", "execution", "pair", "places", "secrets", "step", "stories", "written")

    def __init__(self, pair: EngramAndTemplate, step: Step) -> None:
        self.pair = pair
        self.step = step
        speaks = step.data.get("execution") is not None or step.has_side_effects
        self.execution = ExecutionPolicy(pair.program, step, pair.engram, pair.template) if speaks else pair.execution
        self.secrets = merged(pair.own_secrets, step.data.get("secrets") or {})  # by logical name
        given = merged(pair.base, step.given)  # STY-010
        self.stories = inline_stories(given)  # written in place: their templates are their own
        self.written = without_stories(given)  # what of the input is rendered
        self.places = [list(path) for path in places(self.written)] if may_refer(jsontext.encode(given)) else []
        self._input: Structure | None = None
        self._shared = b""

    @property
    def shared_arguments(self) -> bytes:
        """What of the task's arguments is the same in all runs, as the end of an object: see `engram_contract`."""
        if not self._shared:
            pair, storage = self.pair, self.execution.storage()
            rest = {
                "secrets": self.secrets,
                "story": {"name": pair.program.name, "namespace": pair.program.namespace},
                "engram": {"name": self.reference.name, "namespace": self.reference.namespace, "version": self.version},
                "template": {"name": self.template_name, "version": pair.template_version},
                **({} if pair.run is None else {"run": pair.run}),
                **({"storage": storage} if storage else {}),
            }
            self._shared = jsontext.encode(rest)[1:]
        return self._shared

    @property
    def input(self) -> Structure:
        """What is written, compiled. Raises `TemplateError`."""
        if self._input is None:
            self._input = Structure(self.written, self.pair.program.environment)
        return self._input

    @property
    def reference(self) -> Reference:
        return self.pair.reference

    @property
    def engram(self) -> Resource:
        return self.pair.engram

    @property
    def template(self) -> Resource:
        return self.pair.template

    @property
    def template_name(self) -> str:
        return self.pair.template_name

    @property
    def version(self) -> str:
        return self.pair.version


def find_engram(turn: Turn, step: Step) -> ResolvedEngram | MissingResource | InvalidReference:
    """What a step executes; where all of it is in the bundle it is found once, for all runs."""
    program: Program = turn.program
    known: ResolvedEngram | None = program.engrams.get(step.name)
    if known is not None:
        return known
    target = read_reference(step.data.get("ref"), program.namespace)
    if target is None:
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, f"step '{step.name}' refers to no Engram")
    pair = program.pairs.get(target) or _find_pair(turn, step, target)
    if not isinstance(pair, EngramAndTemplate):
        return pair
    found = ResolvedEngram(pair, step)
    if pair.is_bundled:
        program.pairs[target] = pair
        program.engrams[step.name] = found
    return found


def _find_pair(turn: Turn, step: Step, target: Reference) -> EngramAndTemplate | MissingResource | InvalidReference:
    program: Program = turn.program
    if problem := refuse("Story", program.namespace, "Engram", target, program.resources, program.settings):
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, problem)
    engram = find(turn, "Engram", target.namespace, target.name)
    if engram is None and step.purpose:  # the engine's own: where nobody has one, its template is enough
        engram = {"kind": "Engram", "spec": {"templateRef": {"name": target.name}}}
    if engram is None:
        return MissingResource("Engram", target, Reason.REFERENCE_NOT_FOUND)
    if problem := _misfit("Engram", target, engram):
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, problem)
    wanted = read_reference(spec_of(engram).get("templateRef"), "")
    if wanted is None:
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, f"Engram '{target.key}' names no template")
    template = find(turn, "EngramTemplate", "", wanted.name)
    if template is None:
        return MissingResource("EngramTemplate", Reference(wanted.name, ""), Reason.TEMPLATE_NOT_FOUND)
    if problem := _misfit("EngramTemplate", wanted, template):
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, problem)
    mode = spec_of(engram).get("mode", "job")
    if mode != "job":  # STY-011
        message = f"Engram '{target.key}' runs as a {mode}; a batch step needs mode job"
        return InvalidReference(Reason.INVALID_CONFIGURATION, message)
    return EngramAndTemplate(program, target, engram, template, wanted.name)


def find_story(turn: Turn, step: Step, given: Any) -> tuple[Reference, Resource] | MissingResource | InvalidReference:
    program: Program = turn.program
    target = read_reference(given, program.namespace)
    if target is None:
        return InvalidReference(Reason.STORY_REFERENCE_INVALID, f"step '{step.name}' refers to no Story")
    if problem := refuse("Story", program.namespace, "Story", target, program.resources, program.settings):
        return InvalidReference(Reason.STORY_REFERENCE_INVALID, problem)
    story = find(turn, "Story", target.namespace, target.name)
    if story is None:
        return MissingResource("Story", target, Reason.REFERENCE_NOT_FOUND)
    if problem := _misfit("Story", target, story):
        return InvalidReference(Reason.STORY_REFERENCE_INVALID, problem)
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
    held = program.resources.find(kind, namespace, name)
    if held is not None:
        return held
    later = body.found.get(f"{kind}/{namespace}/{name}")
    return None if later is None else jsontext.decode(turn.text(later))


def retry_lookup(turn: Turn, missing: MissingResource) -> bool:
    """Whether the missing resource is in the catalog by now; then it is the run's own from here on."""
    target = missing.target
    found = turn.resource(missing.kind, target.namespace, target.name)
    if found is None:
        return False
    turn.emit(s.ResourceFound(missing.kind, target.namespace, target.name, turn.keep(jsontext.encode(found))))
    return True


def is_held_back(state: StepState) -> bool:
    """Whether a blocked step still has, or asks for, the permit that stands for what it waits for."""
    return state.phase is Phase.BLOCKED and bool(state.permits or state.awaited)


def release_waiter(turn: Turn, state: StepState) -> None:
    for permit in [*state.permits, state.awaited]:
        turn.release_permit(permit)


def lacks_code(turn: Turn, found: ResolvedEngram) -> bool:
    """Whether nothing that is loaded here, and nothing the template says, does its work (STY-009)."""
    pair = found.pair
    if pair.has_code:
        return False
    known = getattr(turn.execution.dialect, "has_code", None)
    if known is not None and not known(pair.template_name, pair.template_version):
        return True
    pair.has_code = True  # what is loaded stays loaded
    return False


def block_for_code(turn: Turn, step: Step, found: ResolvedEngram) -> None:
    """Code comes with a process, not with the catalog: whoever takes the run up and has it says so (STY-118)."""
    program: Program = turn.program
    message = (
        f"Waiting for code of EngramTemplate '{found.pair.full_template_name}': nothing here implements it. {WAYS}"
    )
    if program.settings.missing_references == "fail":
        end_step(turn, step.name, Phase.FAILED, message, reason=Reason.TEMPLATE_NOT_FOUND)
        return
    is_new = step.name not in turn.body.steps
    permit = turn.await_resource(CODE, "", found.pair.full_template_name)
    turn.emit(s.StepBlocked(step.name, Reason.TEMPLATE_NOT_FOUND, message, turn.now, permit))
    if is_new:
        turn.emit(s.Noted(step.name, "JobTemplateBlocked", message, turn.now))


def block(turn: Turn, step: Step, missing: MissingResource) -> None:
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
