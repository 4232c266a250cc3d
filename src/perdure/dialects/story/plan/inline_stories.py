"""Stories written inside a step whose Engram maps or reduces with them (STY-271).

The outer Story neither renders their templates nor waits for what those read.
"""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.resources.resource import merged

MAP_TEMPLATE = "map-reduce-adapter"
STAGES = ("map", "reduce")


def inline_stories(with_block: Any) -> dict[str, Any]:
    """The specs of the Stories inside a step's `with`, by stage."""
    specs: dict[str, Any] = {}
    if not isinstance(with_block, dict):
        return specs
    for stage in STAGES:
        if stage not in with_block:
            continue
        stage_block = with_block[stage]
        story = stage_block.get("story") if isinstance(stage_block, dict) else None
        if isinstance(story, dict) and isinstance(story.get("steps"), list):
            specs[stage] = story
    return specs


def without_stories(with_block: Any) -> Any:
    """A step's `with` without the Stories inside it, as the outer Story sees it."""
    stories = inline_stories(with_block)
    if not stories:
        return with_block
    cut = {stage: {name: value for name, value in with_block[stage].items() if name != "story"} for stage in stories}
    return {**with_block, **cut}


def with_stories(rendered: dict[str, Any], stories: Mapping[str, Any]) -> dict[str, Any]:
    """Put back the Stories that `without_stories` removed."""
    complete: dict[str, Any] = merged(rendered, {stage: {"story": story} for stage, story in stories.items()})
    return complete
