"""The history in canonical names: order, envelopes, gap-free numbers (section 11)."""

from collections import Counter
from typing import Any

import pytest

from perdure.dialects.playbook.chronicle import chronicle
from perdure.kernel.codec import decode_turns
from tests.dialects.playbook.cases import Case, all_cases, play
from tests.dialects.playbook.world import World, playbook

REQUIRED = {
    *("event_id", "execution_id", "event_type", "timestamp", "source", "seq", "entity_type", "entity_id"),
    *("status", "payload"),
}
ENTITIES = ("playbook", "workflow", "token", "step", "task", "loop", "next", "policy", "ctx", "result", "command")


def told(world: World) -> list[dict[str, Any]]:
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]
    return list(chronicle("run", turns))


def test_the_order_of_names_is_canonical() -> None:
    """PBK-165 PBK-145 PBK-163."""
    text = playbook(
        "workflow: [{step: a, tool: {kind: say, name: t}, next: {arcs: [{step: b}]}}, {step: b, next: {arcs: []}}]"
    )
    world = World(text, work={"say": lambda _: 1})
    world.run()

    token = ["token.created", "policy.admit.evaluated"]
    start = ["step.scheduled", "step.started"]
    task = ["task.started", "task.attempt.started", "task.attempt.done", "policy.task.evaluated", "task.done"]
    assert [event["event_type"] for event in told(world)] == [
        *("playbook.execution.requested", "playbook.request.evaluated", "playbook.started", "workflow.started"),
        *(*token, *start, *task, "step.done", "next.evaluated"),
        *(*token, *start, "step.done"),
        *("workflow.finished", "playbook.finished", "playbook.processed"),
    ]


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_every_history_is_well_formed(case: Case) -> None:
    """PBK-160 PBK-161 PBK-110 PBK-145: one boundary per step-run, three closing events, nothing after them."""
    events = told(play(case))

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(set(event) >= REQUIRED and event["entity_type"] in ENTITIES for event in events)
    assert len({event["event_id"] for event in events}) == len(events)
    names = Counter(event["event_type"] for event in events)
    ended = names["step.done"] + names["step.failed"] + names["loop.done"] + names["command.cancelled"]
    assert names["step.started"] == ended
    assert [event["event_type"] for event in events[-3:]] == [
        *("workflow.finished", "playbook.finished", "playbook.processed")
    ]
    assert names["playbook.processed"] == 1
