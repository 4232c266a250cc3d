"""How templates meet offloaded data in a Story: as the operator says, or as the Story itself insists (STY-207)."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.resource import annotations_of, spec_of

FORCED = "bubustack.io/controller-resolve"


def reads_in_process(story: Mapping[str, Any], settings: Settings) -> bool:
    return settings.offloaded_data == "controller" or str(annotations_of(story).get(FORCED)).lower() == "true"


def injects(story: Mapping[str, Any], settings: Settings) -> bool:
    """Whether what looks inside is evaluated by a helper step: always, or where a Story has storage of its own, which
    is beyond the reach of this process.
    """
    if not reads_in_process(story, settings):
        return settings.offloaded_data == "inject"
    policy = spec_of(story).get("policy")
    execution = policy.get("execution") if isinstance(policy, dict) else None
    return any(isinstance(one, dict) and bool(one.get("storage")) for one in (policy, execution))
