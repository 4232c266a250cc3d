"""Compile the bundle of a run into its program. Validates nothing: admission did."""

from typing import Any

from perdure.dialects.story.plan.helper_steps import helpers_of, name_conflict
from perdure.dialects.story.plan.program import Program, Step, StepPlan, object_at
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.plan.step_graph import BLOCKS, StepGraph, branches_of, name_of, steps_of
from perdure.dialects.story.resources.durations import BadDuration, read_positive
from perdure.dialects.story.resources.labels import HYBRID
from perdure.dialects.story.steps.step_kind import ENGRAM
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant


def load(text: bytes) -> Program:
    bundle = jsontext.decode(text)
    story = bundle["story"]
    spec = object_at(story, "spec")
    metadata = object_at(story, "metadata")
    graph = StepGraph(spec)
    steps: dict[str, Step] = {}
    for block in BLOCKS:
        for data in steps_of(spec.get(block)):
            name = name_of(data)
            if name is not None and name not in steps:
                step = _step(name, block, data)
                steps[name] = step
                steps.update((branch.name, branch) for branch in step.branches)
    settings = Settings.read(object_at(bundle, "settings"))
    helpers = helpers_of(story, steps, settings)
    plan = StepPlan(
        {
            block: tuple(
                step_name for step_name, compiled in steps.items() if compiled.block == block and not compiled.parent
            )
            for block in BLOCKS
        },
        {name: wait.all for name, wait in graph.waits.items()},
        {name: tuple(branch.name for branch in step.branches) for name, step in steps.items() if step.branches},
        frozenset(name for name, step in steps.items() if step.allows_failure),
        {name: helper.helps for name, helper in helpers.items()},
        is_hybrid=HYBRID in object_at(metadata, "labels"),
    )
    timeouts = object_at(spec, "policy", "timeouts")
    return Program(
        bundle=bundle,
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or "story",
        steps=steps,
        plan=plan,
        settings=settings,
        refusal=graph.refusal() or name_conflict(steps, helpers),
        bounds={name: _positive(timeouts.get(name)) for name in ("story", "step", "gracefulShutdownTimeout")},
        helpers=helpers,
    )


def _step(name: str, block: str, data: Any) -> Step:
    branches = tuple(
        Step(branch, block, ENGRAM, branch_data, parent=name)
        for branch_data in branches_of(data)
        if (branch := name_of(branch_data)) is not None
    )
    kind = ENGRAM if data.get("ref") is not None else str(data.get("type"))
    return Step(name, block, kind, data, branches=branches)


def _positive(text: Any) -> Instant | None:
    try:
        return read_positive(text)
    except BadDuration:
        return None
