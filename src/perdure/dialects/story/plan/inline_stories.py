"""Stories written inside of a step, where an Engram maps or reduces with them (STY-271).

Their templates are theirs: the Story around them renders nothing in them and waits for nothing they read.
"""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.resources.resource import merged

MAP_TEMPLATE = "map-reduce-adapter"
STAGES = ("map", "reduce")


def inline_stories(given: Any) -> dict[str, Any]:
    """By stage, the specs of the Stories that stand in a step's `with`."""
    found: dict[str, Any] = {}
    if not isinstance(given, dict):
        return found
    for stage in STAGES:
        if stage not in given:
            continue
        told = given[stage]
        story = told.get("story") if isinstance(told, dict) else None
        if isinstance(story, dict) and isinstance(story.get("steps"), list):
            found[stage] = story
    return found


def without_stories(given: Any) -> Any:
    """What is left of a `with` for the Story around it."""
    inside = inline_stories(given)
    if not inside:
        return given
    cut = {stage: {name: value for name, value in given[stage].items() if name != "story"} for stage in inside}
    return {**given, **cut}


def with_stories(rendered: dict[str, Any], stories: Mapping[str, Any]) -> dict[str, Any]:
    """What was left out, back in its place."""
    whole: dict[str, Any] = merged(rendered, {stage: {"story": story} for stage, story in stories.items()})
    return whole
