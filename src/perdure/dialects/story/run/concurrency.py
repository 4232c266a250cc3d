"""Places under limits over many runs: of the Story, of its queue, of all (section 3.4). Kept by the kernel's permits.

A step asks for one permit at a time, always in this order, so that no two can wait for each other.
"""

from typing import Any

import msgspec

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources import labels
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import SECOND, Instant

STORY = "story"


class ConcurrencyLimit(msgspec.Struct, frozen=True):
    scope: str
    word: str
    most: int


class QueuePlace(msgspec.Struct, frozen=True):
    """Where a run stands in line: its queue, its priority there, and how fast waiting raises it."""

    queue: str
    priority: int
    ageing: Instant


def place_of(program: Program, options: dict[str, Any]) -> QueuePlace:
    """A sub-run stands where its own Story says, else where its parent stands (STY-076)."""
    queue = program.queue or options.get("queue") or "default"
    served = program.settings.queue(queue)
    priority = program.priority
    if priority is None:
        inherited = options.get("priority")
        priority = inherited if isinstance(inherited, int) else served.default_priority
    return QueuePlace(queue, priority, served.priority_aging_seconds * SECOND)


def marks_of(program: Program, options: dict[str, Any]) -> dict[str, str]:
    """The labels that tell where a run and its steps stand in line (STY-262)."""
    place = place_of(program, options)
    return {labels.QUEUE: place.queue, labels.QUEUE_PRIORITY: str(place.priority)}


def admit(turn: Turn, step: Step) -> bool:
    """Whether the step has a place under every limit; otherwise it is queued for the next one."""
    body: Body = turn.body
    program: Program = turn.program
    if not program.has_limits:
        return True
    place = place_of(program, jsontext.decode(turn.state.options))
    limits = _limits(program, body.namespace, place)
    state = body.steps.get(step.name)
    held = len(state.permits) if state is not None else 0
    if held >= len(limits):
        return True
    limit = limits[held]
    message = _why(turn, limit, place)
    permit = turn.request_permit(limit.scope, place.priority, limit.most, place.ageing)
    turn.emit(s.StepQueued(step.name, permit, message, turn.now))
    return False


def _why(turn: Turn, limit: ConcurrencyLimit, place: QueuePlace) -> str:
    """What keeps a step back as it takes its place in line (STY-073). What this run has just asked for, and the store
    does not know yet, goes before it.
    """
    line = turn.permit_queue(limit.scope)
    asked = sum(permit.scope == limit.scope and not permit.granted for permit in turn.state.permits.values())
    running = min(max(line.held, limit.most), line.held + asked)
    has_better = line.highest is not None and line.highest > place.priority
    if limit.word != STORY and has_better and running >= limit.most:  # priorities are a queue's (STY-075)
        return "Queued due to higher-priority work"
    return f"Queued due to {limit.word} concurrency limit ({running} running, limit {limit.most})"


def _limits(program: Program, namespace: str, place: QueuePlace) -> list[ConcurrencyLimit]:
    settings = program.settings
    known = (
        ConcurrencyLimit(f"story:{namespace}/{program.name}", STORY, program.concurrency),
        ConcurrencyLimit(f"queue:{place.queue}", "queue", settings.queue(place.queue).concurrency),
        ConcurrencyLimit("stories", "global", settings.global_concurrency),
    )
    return [limit for limit in known if limit.most > 0]
