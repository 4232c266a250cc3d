"""`status` of a Story (STY-006), and the conditions of runs and steps (STY-108, STY-109)."""

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
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.state.step_errors import LONGEST_CONDITION
from perdure.dialects.story.triggers.requests import target_of
from perdure.kernel.json_values.values import Instant
from perdure.kernel.secrets.secret_masking import cut


def admitted(story: Resource, warnings: Sequence[str]) -> dict[str, Any]:
    """The status of a Story that passed admission."""
    total = sum(1 for block in BLOCKS for _ in steps_of(spec_of(story).get(block)))
    return {
        "validationStatus": "valid",
        "validationErrors": [],
        "validationWarnings": list(warnings),
        "stepsTotal": total,
    }


def with_usage(story: Resource, impulses: Iterable[Resource], runs: int) -> Resource:
    """A Story with its usage in the status, counted when it is read."""
    metadata = metadata_of(story)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "ValidationPassed",
        "message": "the Story was admitted",
        "lastTransitionTime": metadata.get("creationTimestamp"),
        "observedGeneration": metadata.get("generation", 1),
    }
    used = sum(1 for impulse in impulses if _starts(impulse, story))
    status = {**(story.get("status") or {}), "usageCount": used, "triggers": runs, "conditions": [ready]}
    return {**story, "status": status}


def _starts(impulse: Resource, story: Resource) -> bool:
    target = read_reference(target_of(spec_of(impulse)).get("storyRef"), namespace_of(impulse))
    return target is not None and (target.namespace, target.name) == (namespace_of(story), name_of(story))


_DEGRADED = (StoryPhase.FAILED, StoryPhase.TIMEOUT, StoryPhase.ABORTED)


def conditions(
    phase: StoryPhase, reason: str, message: str, since: Instant, ended_at: Instant | None, degraded: str = ""
) -> list[dict[str, Any]]:
    """The conditions of a run or step that was created at `since`; each changes at most once, at the end."""
    is_ready = phase is StoryPhase.SUCCEEDED
    is_degraded = phase in _DEGRADED or bool(degraded)
    last = since if ended_at is None else ended_at

    def condition(kind: str, holds: bool, changed: bool, why: str = "") -> dict[str, Any]:
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": str(why or reason),
            "message": cut(message, LONGEST_CONDITION),
            "lastTransitionTime": timestamp(last if changed else since),
            "observedGeneration": 1,
        }

    return [
        condition("Ready", is_ready, is_ready),
        condition("Progressing", not phase.is_terminal, phase.is_terminal),
        condition("Degraded", is_degraded, is_degraded, degraded),
    ]
