"""Helper steps that the engine adds to a Story whose templates read offloaded data (STY-207, `inject`), or whose map
runs over items that only a worker can read (STY-220).

    materialize-<purpose>-<step>     evaluates one template of a step in a worker, where the data is
    materialize-story-output         the same for the run's output

They are known before a run starts, and are created when a template needs one. The step they help waits meanwhile.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.story.plan.offload_policy import injects
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.steps.step_kind import ENGRAM

IF, KEY, OUTPUT, ITEMS = "if", "idempotency-key", "story-output", "map-items"
"""Purposes of helpers; further ones are defined by step kinds (`StepKind.purposes`)."""


def helper_name(purpose: str, step: str) -> str:
    return compose("materialize", purpose, step) if step else compose("materialize", purpose)


def helpers_of(story: Mapping[str, Any], steps: Mapping[str, Step], settings: Settings) -> dict[str, Step]:
    """Every helper that the Story may need, by name."""
    data = {"ref": {"name": settings.materialize_engram}}
    is_injecting = injects(story, settings)
    helpers = [
        Step(helper_name(purpose, step.name), step.block, ENGRAM, data, purpose=purpose, helps=step.name)
        for step in steps.values()
        for purpose in _purposes(step, is_injecting)
    ]
    if is_injecting:
        helpers.append(Step(helper_name(OUTPUT, ""), "finally", ENGRAM, data, purpose=OUTPUT))
    return {helper.name: helper for helper in helpers}


def _purposes(step: Step, is_injecting: bool) -> Iterator[str]:
    kind = STEP_KINDS[step.kind]
    yield from kind.required_purposes(step)
    if not is_injecting:
        return
    if step.condition:
        yield IF
    if step.data.get("idempotencyKeyTemplate"):
        yield KEY
    yield from kind.purposes


def name_conflict(steps: Mapping[str, Step], helpers: Mapping[str, Step]) -> str | None:
    """Why a step has the name of a helper: a name stands for one step of a run (STY-014)."""
    conflicts = sorted(steps.keys() & helpers.keys())
    return f"step name '{conflicts[0]}' is reserved for a step that the engine adds" if conflicts else None
