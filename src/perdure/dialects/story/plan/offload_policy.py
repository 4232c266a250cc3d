"""How templates of a Story read offloaded data: by the operator's setting or the Story's annotation (STY-207)."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.resource import annotations_of, spec_of

FORCED = "bubustack.io/controller-resolve"


def reads_in_process(story: Mapping[str, Any], settings: Settings) -> bool:
    return settings.offloaded_data == "controller" or str(annotations_of(story).get(FORCED)).lower() == "true"


def injects(story: Mapping[str, Any], settings: Settings) -> bool:
    """Whether helper steps evaluate templates that read offloaded data: always, or if the Story has its own storage,
    which this process cannot access.
    """
    if not reads_in_process(story, settings):
        return settings.offloaded_data == "inject"
    policy = spec_of(story).get("policy")
    execution = policy.get("execution") if isinstance(policy, dict) else None
    return any(isinstance(block, dict) and bool(block.get("storage")) for block in (policy, execution))
