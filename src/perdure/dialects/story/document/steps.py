"""One step, in whatever block or branch it stands (STY-024 to 043, STY-229)."""

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
from perdure.kernel import jsontext
from perdure.kernel.problems import guess

REMOVED_TYPES = ("switch", "throttle", "batch")


class StepType:
    """The `type` of a step (STY-023)."""

    def validate(self, cursor: Cursor) -> None:
        word = cursor.value
        if word == "" or (isinstance(word, str) and word in TYPES):
            return
        if isinstance(word, str) and word in REMOVED_TYPES:
            cursor.problem(INVALID, f"step type '{word}' was removed")
            return
        near = guess(word, tuple(TYPES)) if isinstance(word, str) else ""
        cursor.problem(INVALID, f"unsupported value {shown(word)} (expected {listed(TYPES)}){near}")

    def tidy(self, value: object) -> object:
        return value


_STEP = FieldsShape(
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
    """The form of a step; branches of a parallel one have it too."""

    def validate(self, cursor: Cursor) -> None:
        _STEP.validate(cursor)
        for branch in branches_at(cursor):
            _STEP.validate(branch)

    def tidy(self, value: Any) -> Any:
        step = _STEP.tidy(value)
        given = step.get("with") if isinstance(step, dict) else None
        if not isinstance(given, dict):
            return step
        member = branches_member(step)
        if member and isinstance(given.get(member), list):
            given = {**given, member: [_STEP.tidy(branch) for branch in given[member]]}
        for kind in kinds_in(step):
            given = kind.tidy(given)
        step["with"] = given
        return step


def branches_at(step: Cursor) -> Iterator[Cursor]:
    """The branches of a step whose kind has some; valid or not."""
    member = branches_member(step.value) if isinstance(step.value, dict) else ""
    if member:
        yield from step.at("with", member).items()


def validate_step(cursor: Cursor, block: str, tale: StoryContext) -> None:
    if not isinstance(cursor.value, dict):
        return
    step = cursor.value
    name = step["name"] if isinstance(step.get("name"), str) else ""
    _kind(cursor, name, tale)
    _needs(cursor, name, block, tale)
    _requires(cursor, name, block, tale)
    _sizes(cursor, tale)
    _transport(cursor, name, tale)
    _cache(cursor)
    _unused_members(cursor, name)
    for kind in kinds_in(step):
        kind.check(cursor, name, block, tale)
    _templates(cursor, name, block, tale)
    for branch in branches_at(cursor):
        if isinstance(branch.value, dict):
            _validate_branch(branch, name, block, tale)


def _validate_branch(branch: Cursor, parent: str, block: str, tale: StoryContext) -> None:
    name = str(branch.value.get("name") or "")
    _requires(branch, parent, block, tale)
    _cache(branch)
    _transport(branch, name, tale)
    STEP_KINDS[ENGRAM].check(branch, name, block, tale)
    _templates(branch, parent, block, tale)


def _kind(cursor: Cursor, name: str, tale: StoryContext) -> None:
    ref, kind = cursor.value.get("ref"), cursor.value.get("type")
    if ref is not None and kind:
        cursor.problem(INVALID, f"step '{name}' must not set both ref and type")
    if ref is None and not kind:
        cursor.problem(INVALID, f"step '{name}' must set either ref or type")
    if tale.is_streaming and any(one.is_batch_only for one in kinds_in(cursor.value)):
        cursor.at("type").problem(INVALID, f"step '{name}' of type '{kind}' is only supported for batch stories")


def _needs(cursor: Cursor, name: str, block: str, tale: StoryContext) -> None:
    visible = tale.graph.visible(block)
    for one in cursor.at("needs").items():
        if not isinstance(one.value, str):
            continue
        if one.value == name:
            one.problem(INVALID, f"step '{name}' cannot depend on itself in needs")
        elif visible.get(one.value) != one.value:
            parent = visible.get(one.value)
            hint = f"It is a branch of step {parent!r}; name that one." if parent else ""
            near = "" if parent else guess(one.value, tuple(visible))
            one.problem(INVALID, f"step '{name}' lists unknown dependency '{one.value}' in needs{near}", hint=hint)


def _requires(cursor: Cursor, name: str, block: str, tale: StoryContext) -> None:
    """STY-038: of a branch, `name` is the step it stands in."""
    if not cursor.value.get("requires"):
        return
    visible = tale.graph.visible(block)
    upstream = tale.graph.needed(name) if name in tale.graph.nodes else frozenset()
    for one in cursor.at("requires").items():
        if not isinstance(one.value, str):
            continue
        parts = one.value.split(".")
        if parts[0] != "steps":
            one.problem(INVALID, f"a requires path must start with 'steps.', not {shown(one.value)}")
        elif len(parts) < 3 or not all(parts):
            one.problem(
                INVALID, f"a requires path has at least 3 segments, steps.<name>.<field>, not {shown(one.value)}"
            )
        elif parts[1] not in visible:
            one.problem(INVALID, f"requires references unknown step {shown(parts[1])}{guess(parts[1], tuple(visible))}")
        elif visible[parts[1]] not in upstream:
            step = shown(parts[1])
            one.problem(
                INVALID, f"requires references step {step} which is not upstream (add it to needs or needs chain)"
            )


def _sizes(cursor: Cursor, tale: StoryContext) -> None:
    check_size(cursor.at("with"), "with", tale.context.settings.max_with_bytes)


def check_size(cursor: Cursor, what: str, most: int) -> None:
    """STY-029"""
    if cursor.value is None:
        return
    size = len(jsontext.encode(cursor.value))
    if size > most:
        cursor.problem(INVALID, f"'{what}' block size of {size} bytes exceeds maximum allowed size of {most} bytes")


def _transport(cursor: Cursor, name: str, tale: StoryContext) -> None:
    if cursor.value.get("transport") is None:
        return
    lane = cursor.at("transport")
    if isinstance(lane.value, str) and lane.value.strip() and lane.value not in tale.transports:
        message = f"step '{name}' references unknown transport {shown(lane.value)}{guess(lane.value, tale.transports)}"
        lane.problem(TRANSPORT_REFERENCE, message)


def _cache(cursor: Cursor) -> None:
    """STY-229"""
    if cursor.value.get("sideEffects") is not True:
        return
    cache = cursor.at("execution", "cache")
    if cache.value is not None:
        cache.problem(INVALID, "cache cannot be used on a step with sideEffects: a hit would skip the effect")


def _unused_members(cursor: Cursor, name: str) -> None:
    """STY-130, STY-224"""
    if cursor.value.get("ref") is not None:
        return
    for kind in kinds_in(cursor.value):
        for path in kind.unused_members:
            member = cursor.at(*path)
            if member.value is not None:
                what = f"step '{name}' of type '{cursor.value['type']}': {'.'.join(path)}"
                member.warn(DOUBTFUL, f"{what} has no effect here, only on Engrams")


# Templates.


def _templates(cursor: Cursor, name: str, block: str, tale: StoryContext) -> None:
    """`name` is the step that waits for what is read: of a branch, its parent."""
    streams = tale.streams(block)
    step = cursor.value
    makes_edges = any(kind.makes_edges for kind in kinds_in(step))
    runtime = template_roots.STREAMING_RUNTIME
    given = template_roots.STREAMING_STATIC if streams else template_roots.BATCH
    sight = _VisibleSteps(name, block, tale)
    if branches_member(step):
        cursor = Cursor(cursor.report, {**step, "with": _without_branches(step)}, cursor.path)
    elif inline_stories(step.get("with")):
        cursor = Cursor(cursor.report, {**step, "with": without_stories(step["with"])}, cursor.path)
    sight.check(cursor, "if", runtime if streams else template_roots.BATCH, is_edge=True)
    templates.check_condition(cursor.at("if"))
    sight.check(cursor, "with", given, is_edge=makes_edges)
    sight.check(cursor, "idempotencyKeyTemplate", template_roots.BATCH)
    if step.get("execution") is not None:
        templates.check(cursor.at("execution", "cache", "key"), template_roots.CACHE_KEY)
    if step.get("postExecution") is not None:
        _verification(cursor.at("postExecution", "condition"), str(step.get("name") or ""))
    if step.get("runtime") is None:
        return
    if not tale.is_streaming and not _is_bridged(cursor, tale):
        message = "runtime is only supported for realtime stories or bridged realtime steps"
        cursor.at("runtime").problem(INVALID, message)
        return
    sight.check(cursor, "runtime", runtime)


def _verification(cursor: Cursor, own: str) -> None:
    """STY-216"""
    for other in sorted(templates.check(cursor, template_roots.BATCH).steps - {own}):
        if find_aliased({own: None}, other) is None:
            cursor.warn(
                DOUBTFUL, f"step '{own}' reads step '{other}' after execution, where only its own output is to be seen"
            )


def _without_branches(step: Any) -> Any:
    given, branches = step.get("with"), branches_member(step)
    return {name: member for name, member in given.items() if name != branches} if isinstance(given, dict) else given


def _is_bridged(cursor: Cursor, tale: StoryContext) -> bool:
    """STY-037"""
    if isinstance(cursor.value.get("transport"), str) and cursor.value["transport"].strip():
        return True
    target = read_reference(cursor.value.get("ref"), tale.namespace)
    engram = tale.context.find("Engram", target) if target is not None else None
    return engram is not None and (engram.get("spec") or {}).get("mode") in ("deployment", "statefulset")


class _VisibleSteps(msgspec.Struct, frozen=True):
    """Which steps the templates of one step may read (STY-043)."""

    name: str
    block: str
    tale: StoryContext

    def check(self, step: Cursor, member: str, scope: Environment, *, is_edge: bool = False) -> None:
        if step.value.get(member) is not None:
            cursor = step.at(member)
            self._steps(cursor, templates.check(cursor, scope), is_edge)

    def _steps(self, cursor: Cursor, read: References, is_edge: bool) -> None:
        if not read.steps:
            return
        graph = self.tale.graph
        visible = graph.visible(self.block)
        upstream = graph.upstream(self.name) if self.name in graph.nodes else frozenset()
        for written in sorted(read.steps):
            meant = find_aliased(visible, written)
            if meant is None:
                message = f"step '{self.name}' references unknown step '{written}' in a template"
                near = guess(written, tuple(visible))
                if is_edge:
                    cursor.problem(INVALID, message + near)
                else:
                    cursor.warn(DOUBTFUL, message + near)
            elif not is_edge and self._is_beside(visible[meant], upstream):
                message = f"step '{self.name}' references step '{written}' which is not upstream"
                cursor.warn(DOUBTFUL, message, hint="Add it to needs.")

    def _is_beside(self, meant: str, upstream: frozenset[str]) -> bool:
        """Not waited for: neither upstream nor of a block that ended before."""
        return meant not in upstream and self.tale.graph.nodes[meant].block == self.block
