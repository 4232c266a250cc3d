"""How templates meet offloaded data in a Story: as the operator says, or as the Story itself insists (STY-207)."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.resources import annotations_of
from perdure.dialects.story.settings import Settings

FORCED = "bubustack.io/controller-resolve"


def reads_in_process(story: Mapping[str, Any], settings: Settings) -> bool:
    return settings.offloaded_data == "controller" or str(annotations_of(story).get(FORCED)).lower() == "true"


def injects(story: Mapping[str, Any], settings: Settings) -> bool:
    """Whether what looks inside is evaluated by a helper step."""
    return settings.offloaded_data == "inject" and not reads_in_process(story, settings)
