"""Tasks and effects: invariants 11 to 16."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.engine import commands
from perdure.engine.settings import Settings
from perdure.engine.tasks import task_queues
from perdure.kernel import inputs as i
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.stores.pool_tasks import LeaseRequest
from perdure.testing import World
from tests.engine.documents import drill
from tests.pools import pool_worker

pytestmark = pytest.mark.every_store

SLOW = drill({"call": "slow", "retry": {"attempts": 2, "delay": "1s"}, "save": "x"}, {"return": "$x"})


async def test_a_crash_changes_the_delivery_and_never_the_attempt(tmp_path: Path) -> None:
    """Invariant 11: task, attempt, delivery and idempotency key are four different things."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(SLOW)
        await world.crash()
        await world.boot()
        world.hands.release(Failed("Busy", retryable=True))
        await world.advance(2)
        world.hands.release(Succeeded(b"1"))
        await world.settle()

        assert await run.result() == 1
        assert [(assignment.attempt, assignment.delivery) for assignment in world.hands.performed] == [
            (1, 1),
            (1, 2),
            (2, 1),
        ]
        assert len({assignment.idempotency_key for assignment in world.hands.performed}) == 1
        assert len({assignment.task for assignment in world.hands.performed}) == 2


async def test_a_result_is_accepted_by_task_attempt_and_delivery(tmp_path: Path) -> None:
    """Invariant 11: what an earlier delivery reports is stale."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(SLOW)
        first = world.hands.performed[0]
        await world.crash()
        await world.boot()
        assert world.engine is not None

        stale = i.TaskResult(first.task, first.attempt, first.delivery, Succeeded(b'"stale"'))
        answer = await world.engine.runtime.ask(run.id, stale)
        world.hands.release(Succeeded(b'"fresh"'))
        await world.settle()

        assert isinstance(answer, i.Refused)
        assert await run.result() == "fresh"


async def test_a_finished_task_never_runs_again(tmp_path: Path) -> None:
    async with World(tmp_path, held={"slow"}) as world:
        await world.start(drill({"call": "echo", "input": 1}, {"call": "slow"}))
        for _ in range(3):
            await world.crash()
            await world.boot()

        assert [assignment.provider for assignment in world.hands.performed].count("echo") == 1


async def test_redelivery_is_recorded_before_it_happens_and_capped(tmp_path: Path) -> None:
    """Invariant 12: a task that kills its process cannot do so for ever."""
    async with World(tmp_path, held={"deadly"}) as world:
        run = await world.start(drill({"call": "deadly", "deliveries": 3}))
        for _ in range(5):
            await world.crash()
            await world.boot()

        shown = await run.show()
        begun = [assignment.delivery for assignment in world.hands.performed]
        assert shown["outcome"]["code"] == "Platform.DeliveriesExhausted"
        assert begun == [1, 2, 3] if world.path.exists() else [1, 2, 3, 4, 5], "a file tells what its owner had at work"
        assert (await run.events()).count("TaskRedelivered") == len(begun) - 1


async def test_a_task_whose_provider_is_not_loaded_waits_visibly(tmp_path: Path) -> None:
    """Invariant 12: and costs no delivery while it waits."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"call": "later", "save": "x"}, {"return": "$x"}))
        assert world.engine is not None
        assert list(world.engine.runtime.waiting_for_provider(run.id).values()) == ["later"]
        assert await run.status() == "running"

        world.hands.functions["later"] = lambda arguments, input: "here now"
        world.engine.runtime.providers_changed()
        await world.settle()

        assert await run.result() == "here now"
        assert [assignment.delivery for assignment in world.hands.performed] == [1]


async def test_waiting_for_a_provider_over_restarts_costs_no_delivery(tmp_path: Path) -> None:
    """Invariant 12."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"call": "later", "deliveries": 2}, {"return": "ok"}))
        for _ in range(4):
            await world.crash()
            await world.boot()
        world.hands.functions["later"] = lambda arguments, input: None
        assert world.engine is not None
        world.engine.runtime.providers_changed()
        await world.settle()

        assert await run.result() == "ok"


async def test_a_cancelled_task_settles_when_its_worker_agrees(tmp_path: Path) -> None:
    """Invariant 13."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"call": "slow"}))
        await run.cancel("enough")

        assert await run.status() == "cancelled"
        assert [assignment.provider for assignment in world.hands.cancelled] == ["slow"]


async def test_a_cancelled_task_settles_when_its_grace_ends(tmp_path: Path) -> None:
    """Invariant 13: a worker that does not listen is given up."""
    async with World(tmp_path, held={"deaf"}) as world:
        world.hands.cancel = lambda assignment: None  # type: ignore[method-assign]
        run = await world.start(drill({"call": "deaf", "grace": "3s"}))
        await run.cancel()
        assert await run.status() == "running"
        await world.advance(3)

        assert await run.status() == "cancelled"


async def test_a_cancelled_task_settles_when_its_process_is_gone(tmp_path: Path) -> None:
    """Invariant 13: it is not handed out again."""
    async with World(tmp_path, held={"deaf"}) as world:
        world.hands.cancel = lambda assignment: None  # type: ignore[method-assign]
        run = await world.start(drill({"call": "deaf"}))
        await run.cancel()
        await world.crash()
        await world.boot()

        assert await run.status() == "cancelled"
        assert len(world.hands.performed) == 1


async def test_an_effect_that_was_completed_never_happens_again(tmp_path: Path) -> None:
    """Invariant 14."""
    async with World(tmp_path, held={"slow"}) as world:
        await world.start(SLOW)
        _, port, _ = next(iter(world.hands.waiting.values()))
        assert not (await port.claim_effect("charge")).completed
        await port.complete_effect("charge", b'"receipt 7"')
        await world.crash()
        await world.boot()
        _, port, _ = next(iter(world.hands.waiting.values()))
        claim = await port.claim_effect("charge")

        assert (claim.completed, claim.result) == (True, b'"receipt 7"')


@pytest.mark.parametrize("hold", [False, True])
async def test_an_effect_whose_holder_is_gone_is_in_doubt(tmp_path: Path, hold: bool) -> None:
    """Invariant 14: run again under the same key, or held for an operator: never silently."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"call": "slow", "hold_effects": hold}))
        first, port, _ = next(iter(world.hands.waiting.values()))
        await port.claim_effect("charge")
        await world.crash()
        await world.boot()
        second, port, _ = next(iter(world.hands.waiting.values()))
        claim = await port.claim_effect("charge")

        assert (claim.completed, claim.in_doubt) == (False, True)
        assert first.idempotency_key == second.idempotency_key
        assert (1 if hold else 2) == (await run.events()).count("EffectClaimed")


async def test_a_stale_delivery_records_no_effect(tmp_path: Path) -> None:
    """Invariant 14."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(SLOW)
        first, _, _ = next(iter(world.hands.waiting.values()))
        await world.crash()
        await world.boot()
        assert world.engine is not None
        ask = world.engine.runtime.ask

        claimed = await ask(run.id, i.EffectClaim(first.task, first.delivery, "charge"))
        done = await ask(run.id, i.EffectDone(first.task, first.delivery, "charge", b"1"))

        assert isinstance(claimed, i.Refused)
        assert isinstance(done, i.Refused)
        assert "EffectClaimed" not in await run.events()


async def test_an_effect_that_failed_is_released(tmp_path: Path) -> None:
    """Invariant 14."""
    async with World(tmp_path, held={"slow"}) as world:
        await world.start(SLOW)
        _, port, _ = next(iter(world.hands.waiting.values()))
        await port.claim_effect("charge")
        await port.release_effect("charge")
        again = await port.claim_effect("charge")

        assert (again.completed, again.in_doubt) == (False, False)


async def test_waiting_for_a_child_holds_no_worker(tmp_path: Path) -> None:
    """Invariant 15: it is a command, never a task."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"child": drill({"sleep": "1h"}, {"return": 1}), "save": "x"}, {"return": "$x"}))
        assert world.engine is not None
        assert world.engine.runtime.tasks_in_flight == 0
        assert not world.engine.runtime.is_open_here(run.id), "the waiting parent is not even in memory"
        await world.advance(3601)

        assert await run.result() == 1
        assert world.hands.performed == []


async def test_a_report_is_answered_after_it_is_recorded_and_survives(tmp_path: Path) -> None:
    """Invariant 16: what a leaseholder reports is kernel state before it goes on."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"call": "slow"}, {"return": "$report"}))
        _, port, _ = next(iter(world.hands.waiting.values()))
        answer = await port.report(b'{"task": 3}')
        await world.crash()
        await world.boot()
        world.hands.release(Succeeded(b"null"))
        await world.settle()

        assert answer is not None and b"report" in answer
        assert await run.result() == {"task": 3}


# Leased tasks: work for other processes, on the same store.


async def test_a_leased_task_is_done_by_a_worker_elsewhere(tmp_path: Path) -> None:
    """Invariant 12: work for remote workers is a row, written with the commit that schedules it."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"call": "echo", "input": [1, 2], "pool": "gpu", "save": "x"}, {"return": "$x"}))
        assert world.engine is not None
        assert await run.status() == "running"
        worker = pool_worker(world)
        assert await worker.take() == 1
        await worker.finish()
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert await run.result() == [1, 2]


async def test_a_lease_that_ends_without_a_result_is_handed_on_as_the_next_delivery(tmp_path: Path) -> None:
    """Invariants 11 and 12."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"call": "slow", "pool": "gpu", "save": "x"}, {"return": "$x"}))
        assert world.engine is not None
        store = world.engine.store
        (first,) = await store.lease(LeaseRequest(["gpu"], "w1", 5, world.clock.now() + 30 * SECOND))
        assert await store.lease(LeaseRequest(["gpu"], "w2", 5, world.clock.now() + 30 * SECOND)) == []
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        await world.engine.runtime.expire_leases()
        await world.settle()
        (second,) = await store.lease(LeaseRequest(["gpu"], "w2", 5, world.clock.now() + 30 * SECOND))
        from perdure.stores.commit_types import Message

        def letter(lease: Any, value: bytes) -> Message:
            result = i.TaskResult(lease.task, 1, lease.delivery, Succeeded(value))
            return Message(run.id, world.clock.now(), i.encode(result))

        assert not await store.report(first.lease, letter(first, b'"late"'))
        assert await store.report(second.lease, letter(second, b'"good"'))
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert (first.delivery, second.delivery) == (1, 2)
        assert await run.result() == "good"


async def test_cancelling_a_leased_task_reaches_its_worker_with_the_heartbeat(tmp_path: Path) -> None:
    """Invariant 13."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"call": "slow", "pool": "gpu"}))
        assert world.engine is not None
        worker = pool_worker(world)
        await worker.take()
        await run.cancel("stop")
        await worker.beat()
        await worker.finish()
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert await run.status() == "cancelled"
        assert len(world.hands.cancelled) == 1


async def test_a_leased_task_that_nobody_took_is_cancelled_at_once(tmp_path: Path) -> None:
    """Invariant 13."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"call": "slow", "pool": "gpu"}))
        await run.cancel()
        await world.settle()

        assert await run.status() == "cancelled"


async def test_one_run_with_many_ready_tasks_does_not_starve_others(tmp_path: Path) -> None:
    """Fair hand-out: runs take turns."""
    from perdure.engine.settings import Settings

    async with World(tmp_path, held={"slow"}, settings=Settings(tasks_in_flight=4)) as world:
        assert world.engine is not None
        await world.start(drill({"each": 100, "do": [{"call": "slow"}]}))
        small = await world.start(drill({"call": "slow"}, {"return": "quick"}))
        for _ in range(6):
            world.hands.release(Succeeded(b"1"))
            await world.settle()

        assert await small.status() == "succeeded"


async def test_a_cancel_of_a_wide_run_stops_everything(tmp_path: Path) -> None:
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"each": 500, "do": [{"call": "slow"}]}))
        await run.cancel("enough")

        assert await run.status() == "cancelled"
        assert world.hands.waiting == {}
        await run.cancel("again")  # asked before: nothing new
        assert await run.status() == "cancelled"


async def test_a_result_that_was_accepted_before_the_cancel_stands(tmp_path: Path) -> None:
    """Invariant 13."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(drill({"call": "slow", "save": "x"}, {"sleep": "1h"}))
        world.hands.release(Succeeded(b'"accepted"'))
        await asyncio.sleep(0)
        await run.cancel()

        shown = await run.show()
        assert shown["variables"]["x"] == "accepted"
        assert shown["status"] == "cancelled"


async def test_a_language_whose_tasks_wait_does_not_keep_others_from_the_worker(tmp_path: Path) -> None:
    """PBK-197: a worker has few places for Playbooks; what waits for one takes nothing from a drill."""
    book = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: wide, path: wide}
workflow:
  - step: each
    loop: {in: "{{ range(20) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 20}}
    tool: {kind: echo}
"""
    hands: dict[str, Any] = {"functions": {"plain": lambda arguments, input: input}, "held": {"echo"}}
    async with World(tmp_path, **hands, settings=Settings(tasks_in_flight=5)) as world:
        assert world.engine is not None
        wide = await world.engine.start(book.encode())
        await world.settle()
        assert len(world.hands.waiting) == 5

        other = await world.start(drill({"call": "plain", "input": 7, "save": "x"}, {"return": "$x"}))
        assert await other.result() == 7
        while world.hands.waiting:
            world.hands.release(Succeeded(b"1"))
            await world.settle()
        assert (await wide.show())["status"] == "success"


async def test_a_run_whose_tasks_never_end_keeps_no_other_run_out(tmp_path: Path) -> None:
    """Invariant 33: when others have waited for long some of its tasks need no place; it gets no more for it."""
    wide = drill({"each": 40, "do": [{"call": "slow"}]})
    async with World(tmp_path, held={"slow"}, settings=Settings(tasks_in_flight=8)) as world:
        await world.start(wide)
        await world.settle()
        assert len(world.hands.performed) == 8
        good = await world.start(drill({"call": "slow"}, {"return": "good"}))
        await world.advance(9)
        assert len(world.hands.performed) == 8
        await world.advance(2)

        begun = [assignment.run for assignment in world.hands.performed]
        assert len(begun) == 9 and begun[8] == good.id
        await world.advance(60)
        assert len(world.hands.performed) == 9
        world.hands.release(Succeeded(b"1"), world.hands.performed[8])
        await world.settle()
        assert await good.result() == "good"


LARGE_TASKS = drill(
    {"call": "echo", "input": "x" * 100_000, "save": "text"},
    {"each": 6, "do": [{"call": "slow", "input": "$text"}], "save": "all"},
    {"return": "$all"},
)


async def test_tasks_with_large_arguments_wait_for_room_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 33: a thousand tasks with 1 MB each took 1.7 GB. They begin as others of their family end."""
    monkeypatch.setattr(commands, "LARGE_IN_HAND", 250_000)
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(LARGE_TASKS)
        other = await world.start(drill({"call": "slow", "input": "y" * 300_000, "save": "x"}, {"return": "$x"}))
        at_once = [len(world.hands.waiting)]
        world.hands.release(Succeeded(b"0"))
        await world.settle()
        at_once.append(len(world.hands.waiting))
        await world.crash()
        await world.boot()
        at_once.append(len(world.hands.waiting))
        while world.hands.waiting:
            world.hands.release(Succeeded(b"1"))
            await world.settle()

        assert at_once == [3, 3, 3], "two of the run, and one of another family although it is too large"
        assert await other.result() == 1
        assert sorted(await run.result()) == [0, 1, 1, 1, 1, 1], "values come in any order"


async def test_tasks_wait_until_large_results_of_their_family_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 33: a thousand results of 1 MB that came faster than they could be stored took 1.1 GB."""
    monkeypatch.setattr(task_queues, "MOST_UNRECORDED", 250_000)
    async with World(tmp_path) as world:
        sizes: list[int] = []

        def make(arguments: Any, input: Any) -> str:
            assert world.engine is not None
            recorder = world.engine.runtime.scheduler.recorder
            sizes.append(sum(recorder.unrecorded_bytes(run) for run in recorder._slots))
            return "x" * 100_000

        world.hands.functions["make"] = make
        run = await world.start(drill({"each": 12, "do": [{"call": "make"}], "save": "all"}, {"return": "$all"}))
        await world.settle()

        assert await run.result() == ["x" * 100_000] * 12
        assert len(sizes) == 12 and max(sizes) < 400_000


def test_a_family_whose_results_are_not_recorded_lets_others_pass() -> None:
    sizes = {RunId("a"): 0, RunId("b"): 0}
    unrecorded = task_queues.UnrecordedResults(sizes.__getitem__)
    queue = task_queues.TaskQueue(10, unrecorded)
    queue.order.update(dict.fromkeys(sizes))
    assert queue.next_run() == "a"

    unrecorded.add(RunId("a"))
    sizes[RunId("a")] = task_queues.MOST_UNRECORDED + 1
    assert [queue.next_run(), queue.next_run()] == ["b", "b"]
    sizes[RunId("b")] = sizes[RunId("a")]
    unrecorded.add(RunId("b"))
    assert queue.next_run() is None
    sizes[RunId("a")] = 0
    assert queue.next_run() == "a" and list(unrecorded.runs) == ["b"]


async def test_a_task_that_waits_for_room_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "LARGE_IN_HAND", 100)
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(LARGE_TASKS)
        assert world.engine is not None and len(world.hands.waiting) == 1
        await world.engine.cancel(run.id)
        await world.settle()

        assert (await world.engine.find(run.id)).status.is_final
        assert len(world.hands.performed) == 2
        assert not world.engine.runtime.scheduler.commands._large


async def test_a_task_that_waits_for_room_is_given_back_unstarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 27: an orderly stop costs it no delivery."""
    monkeypatch.setattr(commands, "LARGE_IN_HAND", 100)
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(LARGE_TASKS)
        begun = world.hands.performed[-1]
        await world.close()
        await world.boot()
        while world.hands.waiting:
            world.hands.release(Succeeded(b"1"))
            await world.settle()

        assert await run.result() == [1] * 6
        others = [task for task in world.hands.performed[1:] if task.task != begun.task]
        assert [task.delivery for task in others] == [1] * 5
