"""A Story as a whole (section 2.1)."""

from typing import Any

from perdure.dialects.story.document import streaming, templates
from perdure.dialects.story.document.context import CheckContext, ResourceCase, StoryContext
from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor
from perdure.dialects.story.document.policies import POLICY, RETRY, StorageShape
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import (
    BooleanShape,
    ChoiceShape,
    FieldsShape,
    IntegerShape,
    JsonSchemaShape,
    ListShape,
    NameShape,
    ObjectShape,
    TextShape,
    shown,
)
from perdure.dialects.story.document.steps import StepShape, branches_at, check_size, validate_step
from perdure.dialects.story.plan.step_graph import BLOCKS, StepGraph
from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.resources.resource import Resource
from perdure.dialects.story.values import template_roots
from perdure.expressions.gotemplate.aliases import find_aliased
from perdure.kernel import jsontext
from perdure.kernel.problems import guess

LARGEST = 1_048_576

STORY = FieldsShape(
    {
        "version": TextShape(most=64),
        "pattern": ChoiceShape(("batch", "streaming"), (("realtime", "streaming"),)),
        "concurrency": FieldsShape(
            {
                "mode": ChoiceShape(("serial", "cancelPrevious", "parallel")),
                "scope": ChoiceShape(("storyrun", "participant")),
            }
        ),
        "inputsSchema": JsonSchemaShape("Story inputs"),
        "outputsSchema": JsonSchemaShape("Story outputs"),
        "output": ObjectShape(),
        "steps": ListShape(StepShape(), 1, 100),
        "compensations": ListShape(StepShape(), 0, 50),
        "finally": ListShape(StepShape(), 0, 50),
        "policy": FieldsShape(
            {
                "timeouts": FieldsShape(
                    {"story": TextShape(), "step": TextShape(), "gracefulShutdownTimeout": TextShape()}
                ),
                "with": ObjectShape(),
                "retries": FieldsShape({"stepRetryPolicy": RETRY, "continueOnStepFailure": BooleanShape()}),
                "concurrency": IntegerShape(),
                "queue": NameShape(),
                "priority": IntegerShape(0),
                "storage": StorageShape(),
                "execution": POLICY,
            }
        ),
        "transports": ListShape(
            FieldsShape(
                {
                    "name": TextShape(),
                    "transportRef": TextShape(),
                    "description": TextShape(),
                    "streaming": streaming.SETTINGS,
                    "settings": ObjectShape(),
                }
            )
        ),
    },
    required=("steps",),
)


def too_large(resource: Resource) -> str | None:
    """The one problem that is told alone (STY-019, STY-022)."""
    size = len(jsontext.encode(resource))
    return f"story size of {size} bytes exceeds maximum allowed size of {LARGEST} bytes" if size > LARGEST else None


def validate_story(case: ResourceCase) -> None:
    _validate_spec(case.spec, case.name, case.namespace, case.context)


def _validate_inline(cursor: Cursor, name: str, tale: StoryContext) -> None:
    """A Story written inside of a step (STY-271): it is started as any other, so it is judged as any other."""
    STORY.validate(cursor)
    _validate_spec(cursor, name, tale.namespace, tale.context)
    if cursor.value.get("pattern") in ("streaming", "realtime"):
        cursor.at("pattern").problem(INVALID, "a Story inside of a step must be a batch story")


def _validate_spec(cursor: Cursor, name: str, namespace: str, around: CheckContext) -> None:
    spec = cursor.value
    graph = StepGraph(spec)
    transports = tuple(_transports(cursor, graph))
    is_streaming = spec.get("pattern") in ("streaming", "realtime")
    tale = StoryContext(name, namespace, is_streaming, graph, transports, around, _validate_inline)
    _names(cursor)
    for block in BLOCKS:
        for step in cursor.at(block).items():
            validate_step(step, block, tale)
        if cycle := graph.cycle(block):
            steps = ", ".join(cycle)
            cursor.at(block).problem(INVALID, f"{block} contains a dependency cycle involving step(s): {steps}")
    _output(cursor.at("output"), graph, around)
    _policy(cursor.at("policy"), graph, around)
    if spec.get("concurrency") is not None and not is_streaming:
        cursor.at("concurrency").warn(DOUBTFUL, "spec.concurrency is for streaming stories: it has no effect here")


def _names(cursor: Cursor) -> None:
    """STY-024: once over the three blocks, branches included."""
    seen: set[str] = set()
    for block in BLOCKS:
        for step in cursor.at(block).items():
            for one in (step, *branches_at(step)):
                name = one.value.get("name") if isinstance(one.value, dict) else None
                if not isinstance(name, str):
                    continue
                if name in seen:
                    one.at("name").problem(INVALID, f"duplicate step name '{name}'")
                seen.add(name)


def _output(cursor: Cursor, graph: StepGraph, around: CheckContext) -> None:
    if cursor.value is None:
        return
    check_size(cursor, "output", around.settings.max_with_bytes)
    refuse_secrets(cursor)
    visible = graph.visible("finally")
    for written in sorted(templates.check(cursor, template_roots.OUTPUT).steps):
        if find_aliased(visible, written) is None:
            near = guess(written, tuple(visible))
            cursor.warn(DOUBTFUL, f"the output references unknown step '{written}' in a template{near}")


def _policy(cursor: Cursor, graph: StepGraph, around: CheckContext) -> None:
    for word in ("story", "step", "gracefulShutdownTimeout"):
        span = cursor.at("timeouts", word)
        if not isinstance(span.value, str) or not span.value.strip():
            continue
        try:
            length = read_duration(span.value)
        except BadDuration as refusal:
            span.problem(INVALID, str(refusal))
            continue
        if length < 0 or (length == 0 and word != "gracefulShutdownTimeout"):
            span.problem(INVALID, "duration must be positive")
    given = cursor.at("with")
    if given.value is not None:
        check_size(given, "policy.with", around.settings.max_with_bytes)
        templates.check(given, template_roots.BATCH)
    templates.check(cursor.at("execution", "cache", "key"), template_roots.CACHE_KEY)


def _transports(cursor: Cursor, graph: StepGraph) -> dict[str, Any]:
    """STY-040"""
    declared: dict[str, Any] = {}
    for one in cursor.at("transports").items():
        if not isinstance(one.value, dict):
            continue
        name = one.value.get("name")
        if not isinstance(name, str) or not name.strip():
            one.problem(INVALID, "a transport must have a name")
        elif name in declared:
            one.at("name").problem(
                INVALID, f"transport name {shown(name)} is duplicated; names must be unique per story"
            )
        else:
            NameShape().validate(one.at("name"))
            declared[name] = one.value
        target = one.value.get("transportRef")
        if target is None or (isinstance(target, str) and not target.strip()):
            one.problem(INVALID, f"transport '{name or ''}' must set transportRef")
        settings = one.at("streaming")
        if isinstance(settings.value, dict):
            streaming.check(settings, tuple(graph.nodes))
    return declared
