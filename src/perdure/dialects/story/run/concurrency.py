"""Concurrency limits over many runs: of a Story, of its queue, of all (section 3.4), implemented by kernel permits.

A step requests one permit at a time, always in this order, so that no two steps can wait for each other.
"""

from typing import Any

import msgspec

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources import labels
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.turn import Turn

STORY = "story"


class ConcurrencyLimit(msgspec.Struct, frozen=True):
    scope: str
    word: str
    most: int


class QueuePlace(msgspec.Struct, frozen=True):
    """A run's place in a queue: the queue, its priority, and how fast waiting raises the priority."""

    queue: str
    priority: int
    ageing: Instant


def place_of(program: Program, options: dict[str, Any]) -> QueuePlace:
    """A sub-run uses the queue and priority of its own Story, or else its parent's (STY-076)."""
    queue = program.queue or options.get("queue") or "default"
    queue_settings = program.settings.queue(queue)
    priority = program.priority
    if priority is None:
        inherited = options.get("priority")
        priority = inherited if isinstance(inherited, int) else queue_settings.default_priority
    return QueuePlace(queue, priority, queue_settings.priority_aging_seconds * SECOND)


def queue_labels(program: Program, options: dict[str, Any]) -> dict[str, str]:
    """The labels that say in which queue and with which priority a run waits (STY-262)."""
    place = place_of(program, options)
    return {labels.QUEUE: place.queue, labels.QUEUE_PRIORITY: str(place.priority)}


def admit(turn: Turn, step: Step) -> bool:
    """Whether the step has a permit under every limit; otherwise it is queued for the next one."""
    body: Body = turn.body
    program: Program = turn.program
    if not program.has_limits:
        return True
    place = place_of(program, jsontext.decode(turn.state.options))
    limits = _limits(program, body.namespace, place)
    state = body.steps.get(step.name)
    granted = len(state.permits) if state is not None else 0
    if granted >= len(limits):
        return True
    limit = limits[granted]
    message = _why(turn, limit, place)
    permit = turn.request_permit(limit.scope, place.priority, limit.most, place.ageing)
    turn.emit(s.StepQueued(step.name, permit, message, turn.now))
    return False


def _why(turn: Turn, limit: ConcurrencyLimit, place: QueuePlace) -> str:
    """Why a step waits (STY-073). Permits that this run requested and the store does not know yet go first."""
    queue = turn.permit_queue(limit.scope)
    requested = sum(permit.scope == limit.scope and not permit.granted for permit in turn.state.permits.values())
    running = min(max(queue.held, limit.most), queue.held + requested)
    has_better = queue.highest is not None and queue.highest > place.priority
    if limit.word != STORY and has_better and running >= limit.most:  # priorities are a queue's (STY-075)
        return "Queued due to higher-priority work"
    return f"Queued due to {limit.word} concurrency limit ({running} running, limit {limit.most})"


def _limits(program: Program, namespace: str, place: QueuePlace) -> list[ConcurrencyLimit]:
    settings = program.settings
    limits = (
        ConcurrencyLimit(f"story:{namespace}/{program.name}", STORY, program.concurrency),
        ConcurrencyLimit(f"queue:{place.queue}", "queue", settings.queue(place.queue).concurrency),
        ConcurrencyLimit("stories", "global", settings.global_concurrency),
    )
    return [limit for limit in limits if limit.most > 0]
