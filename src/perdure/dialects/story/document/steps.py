"""Validation of one step, in any block or branch (STY-024 to 043, STY-229)."""

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, TRANSPORT_REFERENCE, Cursor, listed
from perdure.dialects.story.document.policies import OVERRIDES, SECRETS, TEXTS
from perdure.dialects.story.document.shapes import (
    BooleanShape,
    FieldsShape,
    KubernetesShape,
    NameShape,
    ObjectShape,
    ReferenceShape,
    TextShape,
    shown,
)
from perdure.dialects.story.plan.inline_stories import inline_stories, without_stories
from perdure.dialects.story.resources.resource import read_reference
from perdure.dialects.story.steps import STEP_KINDS, TYPES, branches_member, kinds_in
from perdure.dialects.story.steps.step_kind import ENGRAM
from perdure.dialects.story.values import template_roots
from perdure.expressions.gotemplate import Environment, References
from perdure.expressions.gotemplate.aliases import find_aliased
from perdure.kernel.documents.problems import guess
from perdure.kernel.json_values import jsontext

REMOVED_TYPES = ("switch", "throttle", "batch")


class StepType:
    """The `type` of a step (STY-023)."""

    def validate(self, cursor: Cursor) -> None:
        type_name = cursor.value
        if type_name == "" or (isinstance(type_name, str) and type_name in TYPES):
            return
        if isinstance(type_name, str) and type_name in REMOVED_TYPES:
            cursor.problem(INVALID, f"step type '{type_name}' was removed")
            return
        near = guess(type_name, tuple(TYPES)) if isinstance(type_name, str) else ""
        cursor.problem(INVALID, f"unsupported value {shown(type_name)} (expected {listed(TYPES)}){near}")

    def tidy(self, value: object) -> object:
        return value


STEP = FieldsShape(
    {
        "name": NameShape(),
        "id": KubernetesShape(NameShape()),
        "needs": TEXTS,
        "type": StepType(),
        "ref": ReferenceShape(),
        "if": TextShape(),
        "allowFailure": BooleanShape(),
        "sideEffects": BooleanShape(),
        "requires": TEXTS,
        "idempotencyKeyTemplate": TextShape(most=512),
        "with": ObjectShape(),
        "runtime": ObjectShape(),
        "transport": TextShape(),
        "secrets": SECRETS,
        "execution": OVERRIDES,
        "postExecution": FieldsShape(
            {"condition": TextShape(least=1), "failureMessage": TextShape()}, required=("condition",)
        ),
    },
    required=("name",),
)


class StepShape:
    """The shape of a step and of the branches of a parallel step."""

    def validate(self, cursor: Cursor) -> None:
        STEP.validate(cursor)
        for branch in branches_at(cursor):
            STEP.validate(branch)

    def tidy(self, value: Any) -> Any:
        step = STEP.tidy(value)
        with_block = step.get("with") if isinstance(step, dict) else None
        if not isinstance(with_block, dict):
            return step
        member = branches_member(step)
        if member and isinstance(with_block.get(member), list):
            with_block = {**with_block, member: [STEP.tidy(branch) for branch in with_block[member]]}
        for kind in kinds_in(step):
            with_block = kind.tidy(with_block)
        step["with"] = with_block
        return step


def branches_at(step: Cursor) -> Iterator[Cursor]:
    """The branches of a step whose kind has branches, valid or not."""
    member = branches_member(step.value) if isinstance(step.value, dict) else ""
    if member:
        yield from step.at("with", member).items()


def validate_step(cursor: Cursor, block: str, story: StoryContext) -> None:
    if not isinstance(cursor.value, dict):
        return
    step = cursor.value
    name = step["name"] if isinstance(step.get("name"), str) else ""
    _kind(cursor, name, story)
    _needs(cursor, name, block, story)
    _requires(cursor, name, block, story)
    _sizes(cursor, story)
    _transport(cursor, name, story)
    _cache(cursor)
    _unused_members(cursor, name)
    if story.streams(block):
        _unchecked_members(cursor, name)
    for kind in kinds_in(step):
        kind.check(cursor, name, block, story)
    _templates(cursor, name, block, story)
    for branch in branches_at(cursor):
        if isinstance(branch.value, dict):
            _validate_branch(branch, name, block, story)


def _validate_branch(branch: Cursor, parent: str, block: str, story: StoryContext) -> None:
    name = str(branch.value.get("name") or "")
    _requires(branch, parent, block, story)
    _cache(branch)
    _transport(branch, name, story)
    STEP_KINDS[ENGRAM].check(branch, name, block, story)
    _templates(branch, parent, block, story)


def _kind(cursor: Cursor, name: str, story: StoryContext) -> None:
    ref, kind = cursor.value.get("ref"), cursor.value.get("type")
    if ref is not None and kind:
        cursor.problem(INVALID, f"step '{name}' must not set both ref and type")
    if ref is None and not kind:
        cursor.problem(INVALID, f"step '{name}' must set either ref or type")
    if story.is_streaming and any(step_kind.is_batch_only for step_kind in kinds_in(cursor.value)):
        cursor.at("type").problem(INVALID, f"step '{name}' of type '{kind}' is only supported for batch stories")


def _needs(cursor: Cursor, name: str, block: str, story: StoryContext) -> None:
    visible = story.graph.visible(block)
    for need in cursor.at("needs").items():
        if not isinstance(need.value, str):
            continue
        if need.value == name:
            need.problem(INVALID, f"step '{name}' cannot depend on itself in needs")
        elif visible.get(need.value) != need.value:
            parent = visible.get(need.value)
            hint = f"It is a branch of step {parent!r}; use that name." if parent else ""
            near = "" if parent else guess(need.value, tuple(visible))
            need.problem(INVALID, f"step '{name}' lists unknown dependency '{need.value}' in needs{near}", hint=hint)


def _requires(cursor: Cursor, name: str, block: str, story: StoryContext) -> None:
    """Check a step's requires paths (STY-038). For a branch, `name` is the step that contains it."""
    if not cursor.value.get("requires"):
        return
    visible = story.graph.visible(block)
    for requirement in cursor.at("requires").items():
        if not isinstance(requirement.value, str):
            continue
        parts = requirement.value.split(".")
        if parts[0] != "steps":
            requirement.problem(INVALID, f"a requires path must start with 'steps.', not {shown(requirement.value)}")
        elif len(parts) < 3 or not all(parts):
            requirement.problem(
                INVALID,
                f"a requires path has at least 3 segments, steps.<name>.<field>, not {shown(requirement.value)}",
            )
        elif parts[1] not in visible:
            requirement.problem(
                INVALID, f"requires references unknown step {shown(parts[1])}{guess(parts[1], tuple(visible))}"
            )
        elif not story.graph.is_needed(name, visible[parts[1]]):
            step = shown(parts[1])
            requirement.problem(
                INVALID, f"requires references step {step} which is not upstream (add it to needs or needs chain)"
            )


def _sizes(cursor: Cursor, story: StoryContext) -> None:
    check_size(cursor.at("with"), "with", story.context.settings.max_with_bytes)


def check_size(cursor: Cursor, block_name: str, limit: int) -> None:
    """Check the size limit of a block (STY-029)."""
    if cursor.value is None:
        return
    size = len(jsontext.encode(cursor.value))
    if size > limit:
        cursor.problem(
            INVALID, f"'{block_name}' block size of {size} bytes exceeds maximum allowed size of {limit} bytes"
        )


def _transport(cursor: Cursor, name: str, story: StoryContext) -> None:
    if cursor.value.get("transport") is None:
        return
    transport = cursor.at("transport")
    if isinstance(transport.value, str) and transport.value.strip() and transport.value not in story.transports:
        near = guess(transport.value, story.transports)
        message = f"step '{name}' references unknown transport {shown(transport.value)}{near}"
        transport.problem(TRANSPORT_REFERENCE, message)


def _cache(cursor: Cursor) -> None:
    """A step with side effects must not be cached (STY-229)."""
    if cursor.value.get("sideEffects") is not True:
        return
    cache = cursor.at("execution", "cache")
    if cache.value is not None:
        cache.problem(INVALID, "cache cannot be used on a step with sideEffects: a hit would skip the effect")


def _unused_members(cursor: Cursor, name: str) -> None:
    """Warn about members that have no effect on steps of this kind (STY-130, STY-224)."""
    if cursor.value.get("ref") is not None:
        return
    for kind in kinds_in(cursor.value):
        for path in kind.unused_members:
            member = cursor.at(*path)
            if member.value is not None:
                subject = f"step '{name}' of type '{cursor.value['type']}': {'.'.join(path)}"
                member.warn(DOUBTFUL, f"{subject} has no effect here; it only applies to Engrams")


def _unchecked_members(cursor: Cursor, name: str) -> None:
    """Refuse what nothing would ever check while packets flow (STR-019)."""
    for path in (("requires",), ("postExecution",), ("execution", "cache")):
        member = cursor.at(*path)
        if member.value is not None:
            member.problem(INVALID, f"step '{name}' of a streaming story must not set {'.'.join(path)}")


# Templates.


def _templates(cursor: Cursor, name: str, block: str, story: StoryContext) -> None:
    """Check a step's templates. `name` is the step that waits for what they read; for a branch, that is its parent."""
    streams = story.streams(block)
    step = cursor.value
    makes_edges = any(kind.makes_edges for kind in kinds_in(step))
    runtime = template_roots.STREAMING_RUNTIME
    with_scope = template_roots.STREAMING_STATIC if streams else template_roots.BATCH
    visible_steps = _VisibleSteps(name, block, story)
    if branches_member(step):
        cursor = Cursor(cursor.report, {**step, "with": _without_branches(step)}, cursor.path)
    elif inline_stories(step.get("with")):
        cursor = Cursor(cursor.report, {**step, "with": without_stories(step["with"])}, cursor.path)
    visible_steps.check(cursor, "if", runtime if streams else template_roots.BATCH, is_edge=True)
    templates.check_condition(cursor.at("if"))
    visible_steps.check(cursor, "with", with_scope, is_edge=makes_edges)
    visible_steps.check(cursor, "idempotencyKeyTemplate", template_roots.BATCH)
    if step.get("execution") is not None:
        templates.check(cursor.at("execution", "cache", "key"), template_roots.CACHE_KEY)
    if step.get("postExecution") is not None:
        _verification(cursor.at("postExecution", "condition"), str(step.get("name") or ""))
        templates.check_condition(cursor.at("postExecution", "condition"))
    if step.get("runtime") is None:
        return
    if not story.is_streaming and not _is_bridged(cursor, story):
        message = "runtime is only supported for realtime stories or bridged realtime steps"
        cursor.at("runtime").problem(INVALID, message)
        return
    visible_steps.check(cursor, "runtime", runtime)


def _verification(cursor: Cursor, step_name: str) -> None:
    """Warn about other steps in a postExecution condition, which can only read the step's own output (STY-216)."""
    for other in sorted(templates.check(cursor, template_roots.BATCH).steps - {step_name}):
        if find_aliased({step_name: None}, other) is None:
            cursor.warn(
                DOUBTFUL,
                f"step '{step_name}' reads step '{other}' after execution, but only its own output is available there",
            )


def _without_branches(step: Any) -> Any:
    with_block, branches = step.get("with"), branches_member(step)
    return (
        {name: member for name, member in with_block.items() if name != branches}
        if isinstance(with_block, dict)
        else with_block
    )


def _is_bridged(cursor: Cursor, story: StoryContext) -> bool:
    """Whether a batch step is connected to a realtime transport (STY-037)."""
    if isinstance(cursor.value.get("transport"), str) and cursor.value["transport"].strip():
        return True
    target = read_reference(cursor.value.get("ref"), story.namespace)
    engram = story.context.find("Engram", target) if target is not None else None
    return engram is not None and (engram.get("spec") or {}).get("mode") in ("deployment", "statefulset")


class _VisibleSteps(msgspec.Struct, frozen=True):
    """Which steps the templates of one step may read (STY-043)."""

    name: str
    block: str
    story: StoryContext

    def check(self, step: Cursor, member: str, scope: Environment, *, is_edge: bool = False) -> None:
        if step.value.get(member) is not None:
            cursor = step.at(member)
            references = templates.check(cursor, scope)
            self.story.check_inputs(cursor, references.members("inputs"))
            self._steps(cursor, references, is_edge)

    def _steps(self, cursor: Cursor, references: References, is_edge: bool) -> None:
        if not references.steps:
            return
        graph = self.story.graph
        visible = graph.visible(self.block)
        for name in sorted(references.steps):
            target = graph.find(self.block, name)
            if target is None:
                message = f"step '{self.name}' references unknown step '{name}' in a template"
                near = guess(name, tuple(visible))
                if is_edge:
                    cursor.problem(INVALID, message + near)
                else:
                    cursor.warn(DOUBTFUL, message + near)
            elif not is_edge and self._is_beside(visible[target]):
                message = f"step '{self.name}' references step '{name}' which is not upstream"
                cursor.warn(DOUBTFUL, message, hint="Add it to needs.")

    def _is_beside(self, step_name: str) -> bool:
        """Whether a step is not waited for: neither upstream nor in an earlier block."""
        graph = self.story.graph
        return graph.nodes[step_name].block == self.block and not graph.is_upstream(self.name, step_name)
