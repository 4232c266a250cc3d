"""Resources that a step refers to: an Engram with its template, or a Story; checked again at run time (STY-021,
STY-252).

They come from the bundle that the run is pinned to. A resource that was missing then is requested, and recorded
with the run once it exists (STY-255).
"""

from functools import cached_property
from typing import Any

import msgspec

from perdure.dialects.story.plan.engram_code import CODE, WAYS, place_of, pool_of, provider_for, run_of
from perdure.dialects.story.plan.execution_policy import ExecutionPolicy, TaskSettings
from perdure.dialects.story.plan.inline_stories import MAP_TEMPLATE, inline_stories, without_stories
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.reference_grants import refuse
from perdure.dialects.story.resources.resource import (
    Reference,
    Resource,
    merged,
    metadata_of,
    read_reference,
    spec_of,
    version_of,
)
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.values.references import may_refer, places
from perdure.expressions.gotemplate import Structure
from perdure.kernel.documents.lookups import FROM_API, ORIGIN
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn


class MissingResource(msgspec.Struct, frozen=True):
    """A resource that does not exist yet."""

    kind: str
    target: Reference
    reason: Reason

    @property
    def message(self) -> str:
        name = self.target.name if self.kind == "EngramTemplate" else self.target.key
        return f"Waiting for {self.kind} '{name}' to be created"


class InvalidReference(msgspec.Struct, frozen=True):
    """A reference that must not be used, whether its target exists or not."""

    reason: Reason
    message: str


class EngramAndTemplate:
    """An Engram and its template as a reference leads to them. What follows from them is computed once."""

    def __init__(self, program: Program, reference: Reference, engram: Resource, template: Resource, name: str) -> None:
        self.program = program
        self.reference = reference
        self.engram = engram
        self.template = template
        self.template_name = name
        self.is_map = name == MAP_TEMPLATE
        self.template_version = version_of(template)
        self.full_template_name = f"{name}@{self.template_version}"
        generation = (template.get("metadata") or {}).get("generation")
        self.template_generation = generation if isinstance(generation, int) else 1
        self.version = reference.version or version_of(engram)  # the pin, or the Engram's version (STY-225), or empty
        is_elsewhere = bool(pool_of(engram, template))  # then its code is there too
        self.has_code = is_elsewhere or place_of(template) is not None  # otherwise loaded code is searched
        self.provider = provider_for(template, name, self.template_version)
        self.run = run_of(template)
        self.is_from_api = FROM_API in (metadata_of(engram).get(ORIGIN), metadata_of(template).get(ORIGIN))
        spec = spec_of(template)
        self.input_schema: Any = spec.get("inputSchema")
        self.output_schema: Any = spec.get("outputSchema")
        declared = spec.get("declaredOutputKeys")
        self.declared_outputs = frozenset(declared) if isinstance(declared, list) else None
        self.base = object_at(engram, "spec", "with")
        self.own_secrets = object_at(engram, "spec", "secrets")

    @cached_property
    def execution(self) -> ExecutionPolicy:
        """The execution policy of all steps that do not set their own."""
        return ExecutionPolicy(self.program, _NO_STEP, self.engram, self.template)

    @cached_property
    def is_bundled(self) -> bool:
        """Whether the bundle contains both: then they are the same for all runs of the program."""
        target, index = self.reference, self.program.resources
        return (
            index.find("Engram", target.namespace, target.name) is self.engram
            and index.find("EngramTemplate", "", self.template_name) is self.template
        )


_NO_STEP = Step("", "", "", {})


class ResolvedEngram:
    """An Engram with its template, as used by a step."""

    __slots__ = (
        "_input",
        "_schedule",
        "_shared",
        "checks_output",
        "execution",
        "input_template",
        "input_template",
        "pair",
        "places",
        "secrets",
        "step",
        "stories",
    )

    def __init__(self, pair: EngramAndTemplate, step: Step) -> None:
        self.pair = pair
        self.step = step
        has_own_policy = step.data.get("execution") is not None or step.has_side_effects
        self.execution = (
            ExecutionPolicy(pair.program, step, pair.engram, pair.template) if has_own_policy else pair.execution
        )
        self.secrets = merged(pair.own_secrets, step.data.get("secrets") or {})  # by logical name
        with_block = merged(pair.base, step.with_block)  # STY-010
        self.stories = inline_stories(with_block)  # written inside the step; their templates are not rendered here
        self.input_template = without_stories(with_block)  # the part of the input that is rendered
        self.places = (
            [list(path) for path in places(self.input_template)] if may_refer(jsontext.encode(with_block)) else []
        )
        checks = (pair.output_schema, pair.declared_outputs, step.data.get("postExecution"))
        self.checks_output = any(check is not None for check in checks)
        self._input: Structure | None = None
        self._shared = b""
        self._schedule: TaskSettings | None = None

    @property
    def schedule(self) -> TaskSettings:
        if self._schedule is None:
            self._schedule = TaskSettings.of(self.execution, self.pair.provider)
        return self._schedule

    @property
    def shared_arguments(self) -> bytes:
        """The task arguments that are the same in all runs, encoded as the end of an object: see `engram_contract`."""
        if not self._shared:
            pair, storage = self.pair, self.execution.storage()
            arguments = {
                "secrets": self.secrets,
                "story": {"name": pair.program.name, "namespace": pair.program.namespace},
                "engram": {"name": self.reference.name, "namespace": self.reference.namespace, "version": self.version},
                "template": {"name": self.template_name, "version": pair.template_version},
                **({} if pair.run is None else {"run": pair.run}),
                **({ORIGIN: FROM_API} if pair.is_from_api else {}),
                **({"storage": storage} if storage else {}),
            }
            self._shared = jsontext.encode(arguments)[1:]
        return self._shared

    @property
    def input(self) -> Structure:
        """The compiled input. Raises `TemplateError`."""
        if self._input is None:
            self._input = Structure(self.input_template, self.pair.program.environment)
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
    def is_map(self) -> bool:
        return self.pair.is_map

    @property
    def version(self) -> str:
        return self.pair.version


def find_engram(turn: Turn, step: Step) -> ResolvedEngram | MissingResource | InvalidReference:
    """The Engram that a step executes; if all of it is in the bundle, it is resolved once for all runs."""
    program: Program = turn.program
    cached: ResolvedEngram | None = program.engrams.get(step.name)
    if cached is not None:
        return cached
    target = read_reference(step.data.get("ref"), program.namespace)
    if target is None:
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, f"step '{step.name}' does not refer to an Engram")
    pair = program.pairs.get(target) or _find_pair(turn, step, target)
    if not isinstance(pair, EngramAndTemplate):
        return pair
    if problem := _mode_problem(program, step, pair):
        return InvalidReference(Reason.INVALID_CONFIGURATION, problem)
    engram = ResolvedEngram(pair, step)
    if pair.is_bundled:
        program.pairs[target] = pair
        program.engrams[step.name] = engram
    return engram


def _find_pair(turn: Turn, step: Step, target: Reference) -> EngramAndTemplate | MissingResource | InvalidReference:
    program: Program = turn.program
    if problem := refuse("Story", program.namespace, "Engram", target, program.resources, program.settings):
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, problem)
    engram = find(turn, "Engram", target.namespace, target.name)
    if engram is None and step.purpose:  # a helper step: its template is enough
        engram = {"kind": "Engram", "spec": {"templateRef": {"name": target.name}}}
    if engram is None:
        return MissingResource("Engram", target, Reason.REFERENCE_NOT_FOUND)
    if problem := _misfit("Engram", target, engram):
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, problem)
    template_ref = read_reference(spec_of(engram).get("templateRef"), "")
    if template_ref is None:
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, f"Engram '{target.key}' does not name a template")
    template = find(turn, "EngramTemplate", "", template_ref.name)
    if template is None:
        return MissingResource("EngramTemplate", Reference(template_ref.name, ""), Reason.TEMPLATE_NOT_FOUND)
    if problem := _misfit("EngramTemplate", template_ref, template):
        return InvalidReference(Reason.ENGRAM_REFERENCE_INVALID, problem)
    return EngramAndTemplate(program, target, engram, template, template_ref.name)


def mode_of(engram: Resource) -> str:
    return spec_of(engram).get("mode") or "job"


def _mode_problem(program: Program, step: Step, pair: EngramAndTemplate) -> str | None:
    """Why an Engram of this mode cannot execute the step (STY-011, STR-020)."""
    mode = mode_of(pair.engram)
    if mode == "job" or program.streams(step.block):  # a job in a stream has a StepRun for each packet (STR-067)
        return None
    return f"Engram '{pair.reference.key}' runs as a {mode}; a batch step needs mode job"


def find_story(
    turn: Turn, step: Step, story_ref: Any
) -> tuple[Reference, Resource] | MissingResource | InvalidReference:
    program: Program = turn.program
    target = read_reference(story_ref, program.namespace)
    if target is None:
        return InvalidReference(Reason.STORY_REFERENCE_INVALID, f"step '{step.name}' does not refer to a Story")
    if problem := refuse("Story", program.namespace, "Story", target, program.resources, program.settings):
        return InvalidReference(Reason.STORY_REFERENCE_INVALID, problem)
    story = find(turn, "Story", target.namespace, target.name)
    if story is None:
        return MissingResource("Story", target, Reason.REFERENCE_NOT_FOUND)
    if problem := _misfit("Story", target, story):
        return InvalidReference(Reason.STORY_REFERENCE_INVALID, problem)
    return target, story


def _misfit(kind: str, reference: Reference, resource: Resource) -> str | None:
    if not reference.fits(resource):
        return f"{kind} '{reference.name}' has version '{version_of(resource)}', expected '{reference.version}'"
    if not reference.means(resource):
        return f"{kind} '{reference.name}' is not the one with uid '{reference.uid}'"
    return None


def find(turn: Turn, kind: str, namespace: str, name: str) -> Resource | None:
    """A resource from the bundle, or as found later in this run."""
    program: Program = turn.program
    body: Body = turn.body
    bundled = program.resources.find(kind, namespace, name)
    if bundled is not None:
        return bundled
    recorded = body.found_resources.get(f"{kind}/{namespace}/{name}")
    return None if recorded is None else jsontext.decode(turn.text(recorded))


def retry_lookup(turn: Turn, missing: MissingResource) -> bool:
    """Whether the missing resource is in the catalog by now; if so, it is recorded with the run."""
    target = missing.target
    resource = turn.resource(missing.kind, target.namespace, target.name)
    if resource is None:
        return False
    turn.emit(s.ResourceFound(missing.kind, target.namespace, target.name, turn.keep(jsontext.encode(resource))))
    return True


def is_held_back(state: StepState) -> bool:
    """Whether a blocked step still has or requests the permit for what it waits for."""
    return state.phase is StoryPhase.BLOCKED and bool(state.permits or state.awaited)


def release_waiter(turn: Turn, state: StepState) -> None:
    for permit in [*state.permits, state.awaited]:
        turn.release_permit(permit)


def lacks_code(turn: Turn, engram: ResolvedEngram) -> bool:
    """Whether neither loaded code nor the template's annotations can execute it (STY-009)."""
    pair = engram.pair
    if pair.has_code:
        return False
    has_code = getattr(turn.execution.dialect, "has_code", None)
    if has_code is not None and not has_code(pair.template_name, pair.template_version):
        return True
    pair.has_code = True  # loaded code stays loaded
    return False


def block_for_code(turn: Turn, step: Step, engram: ResolvedEngram) -> None:
    """Block until a process with the code takes over the run (STY-118): code is not in the catalog."""
    program: Program = turn.program
    message = (
        f"Waiting for code of EngramTemplate '{engram.pair.full_template_name}': no loaded code implements it. {WAYS}"
    )
    if program.settings.missing_references == "fail":
        end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.TEMPLATE_NOT_FOUND)
        return
    is_new = step.name not in turn.body.steps
    permit = turn.await_resource(CODE, "", engram.pair.full_template_name)
    turn.emit(s.StepBlocked(step.name, Reason.TEMPLATE_NOT_FOUND, message, turn.now, permit))
    if is_new:
        turn.emit(s.Noted(step.name, "JobTemplateBlocked", message, turn.now))


def block(turn: Turn, step: Step, missing: MissingResource) -> None:
    """Wait, using no resources, until the resource exists (STY-118)."""
    program: Program = turn.program
    if program.settings.missing_references == "fail":
        end_step(turn, step.name, StoryPhase.FAILED, missing.message, reason=missing.reason)
        return
    target = missing.target
    permit = turn.await_resource(missing.kind, target.namespace, target.name)
    turn.emit(s.StepBlocked(step.name, missing.reason, missing.message, turn.now, permit))
    kind = "JobTemplateBlocked" if missing.kind == "EngramTemplate" else "ReferenceNotFound"
    turn.emit(s.Noted(step.name, kind, missing.message, turn.now))
