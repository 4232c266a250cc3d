"""Validation of a whole Story (section 2.1)."""

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
from perdure.dialects.story.plan.program import object_at
from perdure.dialects.story.plan.step_graph import BLOCKS, StepGraph
from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.resources.resource import Resource
from perdure.dialects.story.values import template_roots
from perdure.kernel.documents.problems import guess
from perdure.kernel.json_values import jsontext
from perdure.streams.stream_graph import HARD_CAP

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
    """The size problem, which is reported alone (STY-019, STY-022)."""
    size = len(jsontext.encode(resource))
    return f"story size of {size} bytes exceeds maximum allowed size of {LARGEST} bytes" if size > LARGEST else None


def validate_story(case: ResourceCase) -> None:
    _validate_spec(case.spec, case.name, case.namespace, case.context)


def _validate_inline(cursor: Cursor, name: str, story: StoryContext) -> None:
    """Validate a Story that is written inside a step (STY-271); it is started like any other Story."""
    STORY.validate(cursor)
    _validate_spec(cursor, name, story.namespace, story.context)
    if cursor.value.get("pattern") in ("streaming", "realtime"):
        cursor.at("pattern").problem(INVALID, "a Story inside a step must be a batch story")


def _validate_spec(cursor: Cursor, name: str, namespace: str, context: CheckContext) -> None:
    spec = cursor.value
    graph = StepGraph(spec)
    declared = _transports(cursor, graph)
    transports = tuple(declared)
    is_streaming = spec.get("pattern") in ("streaming", "realtime")
    story = StoryContext(
        name, namespace, is_streaming, graph, transports, context, _validate_inline, spec.get("inputsSchema")
    )
    _names(cursor)
    for block in BLOCKS:
        for step in cursor.at(block).items():
            validate_step(step, block, story)
        if cycle := graph.cycle(block):
            steps = ", ".join(cycle)
            cursor.at(block).problem(INVALID, f"{block} contains a dependency cycle involving step(s): {steps}")
    if is_streaming:
        _topology(cursor.at("steps"), declared)
    _output(cursor.at("output"), story)
    _policy(cursor.at("policy"), graph, context)
    if spec.get("concurrency") is not None and not is_streaming:
        cursor.at("concurrency").warn(
            DOUBTFUL, "spec.concurrency only applies to streaming stories and has no effect here"
        )


def _names(cursor: Cursor) -> None:
    """Check that step names are unique over the three blocks, branches included (STY-024)."""
    names: set[str] = set()
    for block in BLOCKS:
        for step in cursor.at(block).items():
            for named_step in (step, *branches_at(step)):
                name = named_step.value.get("name") if isinstance(named_step.value, dict) else None
                if not isinstance(name, str):
                    continue
                if name in names:
                    named_step.at("name").problem(INVALID, f"duplicate step name '{name}'")
                names.add(name)


def _topology(steps: Cursor, transports: dict[str, Any]) -> None:
    """Fan-outs and quorums that no Transport can make possible (STR-019, STR-138)."""
    upstreams: dict[str, set[str]] = {}
    named = {}
    for step in steps.items():
        if isinstance(step.value, dict) and isinstance(name := step.value.get("name"), str):
            needs = step.value.get("needs")
            named[name] = step
            upstreams[name] = (
                {needed for needed in needs if isinstance(needed, str)} if isinstance(needs, list) else set()
            )
    only = next(iter(transports)) if len(transports) == 1 else ""
    for name, step in named.items():
        downstreams = sum(name in above for above in upstreams.values())
        if downstreams > HARD_CAP:
            step.problem(INVALID, f"step '{name}' has {downstreams} downstream steps; the limit is {HARD_CAP}")
        fan_in = object_at(transports, str(step.value.get("transport") or only), "streaming", "fanIn")
        quorum = fan_in.get("quorum") if fan_in.get("mode") == "quorum" else None
        count = len(upstreams[name])
        if isinstance(quorum, int) and 1 < count < quorum:
            step.problem(INVALID, f"step '{name}' joins {count} steps; a quorum of {quorum} never comes")


def _output(cursor: Cursor, story: StoryContext) -> None:
    if cursor.value is None:
        return
    check_size(cursor, "output", story.context.settings.max_with_bytes)
    refuse_secrets(cursor)
    visible = story.graph.visible("finally")
    references = templates.check(cursor, template_roots.OUTPUT)
    story.check_inputs(cursor, references.members("inputs"))
    for step_name in sorted(references.steps):
        if story.graph.find("finally", step_name) is None:
            near = guess(step_name, tuple(visible))
            cursor.warn(DOUBTFUL, f"the output references unknown step '{step_name}' in a template{near}")


def _policy(cursor: Cursor, graph: StepGraph, context: CheckContext) -> None:
    for field in ("story", "step", "gracefulShutdownTimeout"):
        timeout = cursor.at("timeouts", field)
        if not isinstance(timeout.value, str) or not timeout.value.strip():
            continue
        try:
            duration = read_duration(timeout.value)
        except BadDuration as refusal:
            timeout.problem(INVALID, str(refusal))
            continue
        if duration < 0 or (duration == 0 and field != "gracefulShutdownTimeout"):
            timeout.problem(INVALID, "duration must be positive")
    with_block = cursor.at("with")
    if with_block.value is not None:
        check_size(with_block, "policy.with", context.settings.max_with_bytes)
        templates.check(with_block, template_roots.BATCH)
    templates.check(cursor.at("execution", "cache", "key"), template_roots.CACHE_KEY)


def _transports(cursor: Cursor, graph: StepGraph) -> dict[str, Any]:
    """Check the transports that a Story declares (STY-040)."""
    declared: dict[str, Any] = {}
    for transport in cursor.at("transports").items():
        if not isinstance(transport.value, dict):
            continue
        name = transport.value.get("name")
        if not isinstance(name, str) or not name.strip():
            transport.problem(INVALID, "a transport must have a name")
        elif name in declared:
            transport.at("name").problem(
                INVALID, f"transport name {shown(name)} is duplicated; names must be unique per story"
            )
        else:
            NameShape().validate(transport.at("name"))
            declared[name] = transport.value
        target = transport.value.get("transportRef")
        if target is None or (isinstance(target, str) and not target.strip()):
            transport.problem(INVALID, f"transport '{name or ''}' must set transportRef")
        settings = transport.at("streaming")
        if isinstance(settings.value, dict):
            streaming.check(settings, tuple(graph.nodes))
    return declared
