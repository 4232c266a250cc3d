"""The history in canonical names: order, envelopes, gap-free numbers (section 11)."""

from collections import Counter
from typing import Any

import pytest

from perdure.dialects.playbook.views.history import history
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from tests.dialects.playbook.cases import Case, all_cases, play
from tests.dialects.playbook.world import Answer, World, playbook

REQUIRED = {
    *("event_id", "execution_id", "event_type", "timestamp", "source", "seq", "entity_type", "entity_id"),
    *("status", "payload"),
}
ENTITIES = ("playbook", "workflow", "token", "step", "task", "loop", "next", "policy", "ctx", "result", "command")


STATUSES = ("in_progress", "success", "error", "skipped", "paused")
NAMES = {
    *("playbook.execution.requested", "playbook.request.evaluated", "playbook.started", "workflow.started"),
    *("token.created", "policy.admit.evaluated", "token.pending", "token.discarded", "step.scheduled"),
    *("command.claimed", "command.released", "step.started", "loop.started", "loop.iteration.scheduled"),
    *("loop.frame.claimed", "loop.iteration.started", "loop.iteration.done", "loop.iteration.failed", "task.started"),
    *("task.attempt.started", "task.attempt.done", "task.attempt.failed", "policy.task.evaluated", "task.done"),
    *("task.failed", "ctx.patched", "result.stored", "result.manifest.updated", "step.done", "step.failed"),
    *("loop.done", "next.evaluated", "workflow.quiesced", "workflow.waiting", "workflow.finished"),
    *("playbook.finished", "playbook.processed", "playbook.paused", "playbook.resumed", "execution.cancelled"),
    *("command.cancelled", "loop.fanout.started", "loop.shard.enqueued", "loop.shard.started", "loop.shard.done"),
    *("loop.shard.failed", "loop.fanin.completed"),
}


def told(world: World) -> list[dict[str, Any]]:
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]
    return list(history("run", turns))


def test_the_order_of_names_is_canonical() -> None:
    """PBK-165 PBK-145 PBK-163."""
    text = playbook(
        "workflow: [{step: a, tool: {kind: say, name: t}, next: {arcs: [{step: b}]}}, {step: b, next: {arcs: []}}]"
    )
    world = World(text, work={"say": lambda _: 1})
    world.run()

    token = ["token.created", "policy.admit.evaluated"]
    start = ["step.scheduled", "command.claimed", "step.started"]
    task = ["task.started", "task.attempt.started", "task.attempt.done", "policy.task.evaluated", "task.done"]
    assert [event["event_type"] for event in told(world)] == [
        *("playbook.execution.requested", "playbook.request.evaluated", "playbook.started", "workflow.started"),
        *(*token, *start, *task, "step.done", "next.evaluated"),
        *(*token, "step.scheduled", "step.started", "step.done"),
        *("workflow.finished", "playbook.finished", "playbook.processed"),
    ]


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_every_history_is_well_formed(case: Case) -> None:
    """PBK-160 PBK-161 PBK-110 PBK-145 PBK-168: what began has ended, once; nothing follows the closing events."""
    events = told(play(case))

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(set(event) >= REQUIRED and event["entity_type"] in ENTITIES for event in events)
    assert len({event["event_id"] for event in events}) == len(events)
    assert all(event["event_type"] in NAMES for event in events)
    assert all(event["source"] in ("server", "worker") and event["status"] in STATUSES for event in events)
    assert all(len(jsontext.encode(event["payload"])) <= 65_536 for event in events)
    names = Counter(event["event_type"] for event in events)
    for what in ("task", "task.attempt", "loop.iteration", "loop.shard"):
        assert names[f"{what}.started"] == names[f"{what}.done"] + names[f"{what}.failed"], what
    ended = names["step.done"] + names["step.failed"] + names["loop.done"] + names["command.cancelled"]
    assert names["step.started"] == ended
    assert [event["event_type"] for event in events[-3:]] == [
        *("workflow.finished", "playbook.finished", "playbook.processed")
    ]
    assert names["playbook.processed"] == 1


def by_name(world: World, *names: str) -> list[dict[str, Any]]:
    return [event for event in told(world) if event["event_type"] in names]


def test_the_whole_table_is_told_by_the_cases_together() -> None:
    """PBK-163: no name of the language is only promised."""
    result = {event["event_type"] for case in all_cases() for event in told(play(case))}

    assert NAMES - result == {"command.released"}  # see the test of lost workers


def test_results_are_stored_before_anything_speaks_of_them() -> None:
    """PBK-170 PBK-165: persist before emit; the event carries the reference, and no event a body."""
    text = playbook("""
workflow:
  - step: a
    loop: {in: [1, 2], iterator: n}
    tool: {kind: say, spec: {result: {inline_max_bytes: 10}}}
    spec: {result: {inline_max_bytes: 100}}
""")
    world = World(text, work={"say": lambda _: "x" * 500})
    world.run()

    names = ("result.stored", "task.attempt.done", "result.manifest.updated", "loop.done")
    events = by_name(world, *names)
    assert [event["event_type"] for event in events] == [*names[:2], *names[:2], *names[2:]]
    reference = events[0]["payload"]["reference"]
    assert events[1]["payload"]["outcome"]["result"] == reference and events[0]["entity_id"] == reference["ref"]
    assert events[5]["payload"]["stats"] == {"total": 2, "success": 2, "failed": 0}
    assert "x" * 100 not in str([event for event in told(world) if event["event_type"] != "result.stored"]).replace(
        str(reference["preview"]), ""
    ).replace(str(events[2]["payload"]["reference"]["preview"]), "")


def test_shards_are_named_in_every_event_that_concerns_them() -> None:
    """PBK-132 PBK-136: events of fan-out, with the identity of loop and shard."""
    (case,) = [case for case in all_cases() if case.name == "loop-fanout"]
    world = play(case)

    (begun,) = by_name(world, "loop.fanout.started")
    (over,) = by_name(world, "loop.fanin.completed")
    assert begun["loop_id"] == over["loop_id"] == begun["step_run_id"]
    assert over["payload"] == {"status": "partial", "succeeded": 4, "failed": 1, "loop_id": begun["loop_id"]}
    shards = by_name(world, "loop.shard.enqueued", "loop.shard.started", "loop.shard.done", "loop.shard.failed")
    for event in (*shards, *by_name(world, "task.started", "task.attempt.done")):
        if "iteration" in event:
            index = event["iteration"]
            assert event["shard_id"] == f"{begun['loop_id']}/{index}"
            assert (event["iter_index"], event["iter_key"]) == (index, str(index))
    assert Counter(event["event_type"] for event in shards) == {
        "loop.shard.enqueued": 7,
        "loop.shard.started": 7,
        "loop.shard.done": 4,
        "loop.shard.failed": 3,
    }
    assert not by_name(world, "loop.iteration.started")


def test_a_lost_worker_gives_its_lease_back() -> None:
    """PBK-161 PBK-194: leases with their epoch; heartbeats are not logged."""
    text = playbook("workflow: [{step: s, tool: {kind: hang}}]")
    world = World(text, work={"hang": lambda _: Answer(1, after=SECOND)})
    world.pass_time(0)
    (task,) = world.execution.state.tasks

    world.tell(i.TaskLost(task, 1, "the process is gone"))
    world.tell(i.TaskLost(task, 2, "the process is gone"))

    assert not [event for event in told(world) if "lease_epoch" in event["payload"]], "it stands in the envelope"
    assert [event["lease_epoch"] for event in by_name(world, "step.started")] == [1]
    leases = by_name(world, "command.claimed", "command.released")
    assert [(event["event_type"], event["lease_epoch"]) for event in leases] == [
        ("command.claimed", 1),
        *(("command.released", 1), ("command.claimed", 2)),
        *(("command.released", 2), ("command.claimed", 3)),
    ]


def test_who_says_what() -> None:
    """PBK-161 PBK-163: workers tell of tasks, the server of everything it ends itself."""
    text = playbook("""
workflow:
  - {step: a, tool: {kind: say}, next: {arcs: [{step: b}]}}
  - {step: b, next: {arcs: [{step: c}]}}
  - {step: c, tool: {kind: hang}, spec: {timeout: 5}}
""")
    world = World(text, work={"say": lambda _: 1, "hang": lambda _: Answer(after=60 * SECOND)})
    world.run()

    sources = {(event["event_type"], event["step"]): event["source"] for event in told(world) if "step" in event}
    assert sources.items() >= {
        ("step.started", "a"): "worker",
        ("step.done", "a"): "worker",
        ("step.started", "b"): "server",
        ("step.done", "b"): "server",
        ("task.started", "c"): "worker",
        ("step.failed", "c"): "server",
    }.items()  # fmt: skip
    (inputs,) = [event["payload"]["inputs"] for event in by_name(world, "task.started") if event["step"] == "a"]
    assert inputs == {}
