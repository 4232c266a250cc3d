"""The step kinds. Each is loaded when the first step of its kind is met."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from perdure.dialects.story.steps.step_kind import ENGRAM, StepKind

TYPES: dict[str, str] = {
    "condition": "perdure.dialects.story.steps.condition:ConditionStep",
    "parallel": "perdure.dialects.story.steps.parallel:ParallelStep",
    "sleep": "perdure.dialects.story.steps.sleep:SleepStep",
    "stop": "perdure.dialects.story.steps.stop:StopStep",
    "executeStory": "perdure.dialects.story.steps.execute_story:ExecuteStoryStep",
    "wait": "perdure.dialects.story.steps.wait:WaitStep",
    "gate": "perdure.dialects.story.steps.gate:GateStep",
}
"""Module and class of each kind, by the value of `type`."""


class _StepKinds(dict[str, StepKind]):
    def __missing__(self, name: str) -> StepKind:
        target = "perdure.dialects.story.steps.engram:EngramStep" if name == ENGRAM else TYPES[name]
        module, _, class_name = target.partition(":")
        kind: StepKind = getattr(import_module(module), class_name)()
        self[name] = kind
        return kind


STEP_KINDS = _StepKinds()
"""Step kinds by `type`, or `ENGRAM`."""


def kinds_in(step: Mapping[str, Any]) -> list[StepKind]:
    """The kinds that a step names with `ref` and `type`: exactly one, if the step is valid."""
    kinds = [STEP_KINDS[ENGRAM]] if step.get("ref") is not None else []
    type_name = step.get("type")
    if isinstance(type_name, str) and type_name in TYPES:
        kinds.append(STEP_KINDS[type_name])
    return kinds


def branches_member(step: Mapping[str, Any]) -> str:
    """The member of a step's `with` that lists branches; empty if its kind has none."""
    return next((kind.branches_member for kind in kinds_in(step) if kind.branches_member), "")
