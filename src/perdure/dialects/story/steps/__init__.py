"""The kinds of steps. Each is loaded when the first step of its kind is met."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from perdure.dialects.story.steps.step_kind import ENGRAM, StepKind

TYPES: dict[str, str] = {
    "condition": "perdure.dialects.story.steps.condition:Condition",
    "parallel": "perdure.dialects.story.steps.parallel:Parallel",
    "sleep": "perdure.dialects.story.steps.sleep:Sleep",
    "stop": "perdure.dialects.story.steps.stop:Stop",
    "executeStory": "perdure.dialects.story.steps.execute_story:ExecuteStory",
    "wait": "perdure.dialects.story.steps.wait:Wait",
    "gate": "perdure.dialects.story.steps.gate:GateStep",
}
"""By the word in `type`, the module and class of the kind."""


class _StepKinds(dict[str, StepKind]):
    def __missing__(self, name: str) -> StepKind:
        target = "perdure.dialects.story.steps.engram:EngramStep" if name == ENGRAM else TYPES[name]
        module, _, class_name = target.partition(":")
        kind: StepKind = getattr(import_module(module), class_name)()
        self[name] = kind
        return kind


STEP_KINDS = _StepKinds()
"""By `type`, or `ENGRAM`."""


def kinds_in(step: Mapping[str, Any]) -> list[StepKind]:
    """The kinds that a step as written names with `ref` and `type`: exactly one, if it is valid."""
    kinds = [STEP_KINDS[ENGRAM]] if step.get("ref") is not None else []
    word = step.get("type")
    if isinstance(word, str) and word in TYPES:
        kinds.append(STEP_KINDS[word])
    return kinds


def branches_member(step: Mapping[str, Any]) -> str:
    """The member of its `with` that lists branches; empty if its kind has none."""
    return next((kind.branches_member for kind in kinds_in(step) if kind.branches_member), "")
