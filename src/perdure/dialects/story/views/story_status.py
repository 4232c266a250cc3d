"""`status` of a Story (STY-006): what admission found, and who uses it, counted when somebody looks."""

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.dialects.story.plan.step_graph import BLOCKS, steps_of
from perdure.dialects.story.resources.resource import (
    Resource,
    metadata_of,
    name_of,
    namespace_of,
    read_reference,
    spec_of,
)


def admitted(story: Resource, warnings: Sequence[str]) -> dict[str, Any]:
    total = sum(1 for block in BLOCKS for _ in steps_of(spec_of(story).get(block)))
    return {
        "validationStatus": "valid",
        "validationErrors": [],
        "validationWarnings": list(warnings),
        "stepsTotal": total,
    }


def with_usage(story: Resource, impulses: Iterable[Resource], runs: int) -> Resource:
    metadata = metadata_of(story)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "ValidationPassed",
        "message": "the Story was admitted",
        "lastTransitionTime": metadata.get("creationTimestamp"),
        "observedGeneration": metadata.get("generation", 1),
    }
    used = sum(1 for one in impulses if _starts(one, story))
    status = {**(story.get("status") or {}), "usageCount": used, "triggers": runs, "conditions": [ready]}
    return {**story, "status": status}


def _starts(impulse: Resource, story: Resource) -> bool:
    target = read_reference(spec_of(impulse).get("storyRef"), namespace_of(impulse))
    return target is not None and (target.namespace, target.name) == (namespace_of(story), name_of(story))
