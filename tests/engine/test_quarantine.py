"""A task that kills its process fails nobody else: invariant 27."""

from pathlib import Path

import pytest

from perdure.engine.settings import Settings
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Code, Failed, Succeeded
from perdure.kernel.tasks.assignments import Assignment
from perdure.stores.clocks import sources
from perdure.testing import World
from perdure.testing.world import RunInWorld
from perdure.workers.pool_worker import PoolWorker
from tests.engine.documents import drill
from tests.pools import pool_worker

DEADLY = drill({"call": "deadly", "deliveries": 3}, {"return": "lived"})
GOOD = drill({"call": "good", "deliveries": 3, "save": "x"}, {"return": "$x"})
BOTH = {"deadly", "good"}


def at_work(world: World, provider: str) -> list[Assignment]:
    return [assignment for assignment, _, _ in world.hands.waiting.values() if assignment.provider == provider]


async def die(world: World) -> None:
    await world.crash()
    await world.boot()


async def play(world: World, run: RunInWorld) -> int:
    """The deadly task ends its process whenever it has begun; others end well. How often the process died."""
    deaths = 0
    while (await world.run(run.id).status()) not in ("failed", "succeeded"):
        if at_work(world, "deadly"):
            deaths += 1
            await die(world)
        elif world.hands.waiting:
            world.hands.release(Succeeded(b'"done"'))
            await world.settle()
        else:
            await world.advance(60)
        assert deaths < 20, "it kills for ever"
    return deaths


async def told(run: RunInWorld, name: str) -> list[dict[str, object]]:
    return [event for event in await run.handle.history(raw=True) if event["event"] == name]


@pytest.mark.every_store
async def test_a_killer_among_others_ends_alone_and_fails_nobody(tmp_path: Path) -> None:
    """Invariant 27: after two deaths for which nobody is charged, and as many charges as its language allows."""
    async with World(tmp_path, held=BOTH) as world:
        others = [await world.start(GOOD) for _ in range(3)]
        killer = await world.start(DEADLY)
        others += [await world.start(GOOD) for _ in range(3)]
        deaths = await play(world, killer)
        while world.hands.waiting:
            world.hands.release(Succeeded(b'"done"'))
            await world.settle()

        assert (await killer.show())["outcome"]["code"] == Code.DELIVERIES_EXHAUSTED
        assert deaths == 2 + 3
        assert [await run.result() for run in others] == ["done"] * 6
        charged = [event["charged"] for event in await told(killer, "TaskRedelivered")]
        assert charged == [False, False, True, True]
        for run in others:
            assert not any(event["charged"] for event in await told(run, "TaskRedelivered"))


async def test_a_killer_within_one_run_fails_no_other_branch(tmp_path: Path) -> None:
    """Invariant 27: also the tasks of one run are told apart."""
    async with World(tmp_path, held=BOTH) as world:
        branch = [{"call": "good", "deliveries": 3, "catch": [{"set": {"seen": "failed"}}]}]
        await world.start(drill({"each": 5, "do": branch}, {"return": "all"}))
        killer = await world.start(DEADLY)
        assert await play(world, killer) == 2 + 3
        assert not [
            assignment
            for assignment in world.hands.performed
            if assignment.provider == "good" and assignment.delivery > 3
        ]


@pytest.mark.every_store
async def test_one_that_can_run_elsewhere_kills_the_engine_only_twice(tmp_path: Path) -> None:
    """Invariant 27: then it has a process of its own, whose deaths are charged; others are not held up meanwhile."""
    async with World(tmp_path, held=BOTH) as world:
        world.hands.importable = {"deadly"}
        good = await world.start(GOOD)
        killer = await world.start(DEADLY)
        for _ in range(2):
            await die(world)
        for n in range(3):
            (assignment,) = at_work(world, "deadly")
            assert assignment.apart and assignment.delivery == 3 + n
            world.hands.release(Failed(Code.WORKER_DIED, "the subprocess was ended by SIGKILL", True), assignment)
            await world.settle()

        assert (await killer.show())["outcome"]["code"] == Code.DELIVERIES_EXHAUSTED
        assert "3 times" in (await killer.show())["outcome"]["message"]
        (other,) = at_work(world, "good")
        world.hands.release(Succeeded(b'"done"'), other)
        await world.settle()
        assert await good.result() == "done"


async def test_the_end_of_the_engine_is_no_charge_for_what_works_elsewhere(tmp_path: Path) -> None:
    """Invariant 27: a task in a process of its own cannot have ended the engine."""
    async with World(tmp_path, held=BOTH) as world:
        world.hands.importable = {"deadly"}
        await world.start(GOOD)
        killer = await world.start(DEADLY)
        for _ in range(8):
            await die(world)

        assert at_work(world, "deadly")
        assert not any(event["charged"] for event in await told(killer, "TaskRedelivered"))


@pytest.mark.every_store
async def test_isolated_tasks_are_never_suspects(tmp_path: Path) -> None:
    """Invariant 27."""
    async with World(tmp_path, held=BOTH) as world:
        world.hands.isolated = {"good"}
        run = await world.start(drill({"call": "good", "deliveries": 1, "save": "x"}, {"return": "$x"}))
        for _ in range(4):
            await die(world)
        assert [assignment.delivery for assignment in world.hands.performed] == [1, 2, 3, 4, 5]
        assert {event["suspicion"] for event in await told(run, "TaskRedelivered")} == {0}
        world.hands.release(Succeeded(b'"done"'))
        await world.settle()
        assert await run.result() == "done"


@pytest.mark.every_store
async def test_an_orderly_stop_charges_nobody(tmp_path: Path) -> None:
    """Invariant 27: a task that was at work then is delivered again, and nothing is held against it."""
    async with World(tmp_path, held=BOTH) as world:
        run = await world.start(drill({"call": "good", "deliveries": 1, "save": "x"}, {"return": "$x"}))
        for _ in range(4):
            await world.close()
            await world.boot()

        assert [assignment.delivery for assignment in world.hands.performed] == [1, 2, 3, 4, 5]
        assert {assignment.suspicion for assignment in world.hands.performed} == {0}
        world.hands.release(Succeeded(b'"done"'))
        await world.settle()
        assert await run.result() == "done"


async def test_a_suspect_that_was_not_begun_is_handed_out_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Invariant 27: its begin would be recorded. So nothing is written, and its delivery is still to be had."""
    async with World(tmp_path, held=BOTH, settings=Settings(tasks_in_flight=1)) as world:
        run = await world.start(drill({"each": 3, "do": [{"call": "good"}]}, {"return": "all"}))
        for _ in range(3):
            await die(world)

        redelivered = [event["task"] for event in await told(run, "TaskRedelivered")]
        assert len(redelivered) == 3 + 2, "all might have begun at first; then only the one that had"
        (unbegun,) = set(redelivered) - set(redelivered[3:])
        while world.hands.waiting:
            world.hands.release(Succeeded(b"1"))
            await world.settle()
        assert [assignment.delivery for assignment in world.hands.performed if assignment.task == unbegun] == [2]
        assert await run.result() == "all"


async def test_the_begin_of_a_suspect_is_recorded_and_that_of_others_is_not(tmp_path: Path) -> None:
    """Invariant 27: the usual way costs nothing."""
    async with World(tmp_path, held=BOTH) as world:
        run = await world.start(GOOD)
        other = await world.start(GOOD)
        await die(world)
        for _ in range(2):
            world.hands.release(Succeeded(b"1"))
        await world.settle()
        fresh = await world.start(GOOD)
        world.hands.release(Succeeded(b"1"))
        await world.settle()

        for suspect in (run, other):
            names = await suspect.events()
            assert names.index("TaskRedelivered") < names.index("TaskBegun") < names.index("TaskEnded")
            assert names.count("TaskBegun") == 1
        assert "TaskBegun" not in await fresh.events()


async def test_nothing_else_begins_while_a_task_is_alone(tmp_path: Path) -> None:
    """Invariant 27: for a minute at first; who outlives it is cleared by one degree."""
    async with World(tmp_path, held=BOTH) as world:
        first, second = await world.start(GOOD), await world.start(GOOD)
        for _ in range(2):
            await die(world)
        (alone,) = at_work(world, "good")
        fresh = await world.start(drill({"call": "deadly"}, {"return": "ran"}))
        await world.advance(59)
        assert at_work(world, "good") == [alone] and not at_work(world, "deadly")

        await world.advance(2)
        assert at_work(world, "deadly"), "its time is over"
        cleared = await told(world.run(alone.run), "TaskCleared")
        assert [event["suspicion"] for event in cleared] == [1]
        world.hands.release(Succeeded(b'"fresh"'), at_work(world, "deadly")[0])
        world.hands.release(Succeeded(b'"first"'), alone)
        await world.settle()
        assert await fresh.result() == "ran"
        (remaining,) = at_work(world, "good")
        assert remaining.run != alone.run
        world.hands.release(Succeeded(b'"second"'))
        await world.settle()
        assert sorted([await first.result(), await second.result()]) == ["first", "second"]


async def test_the_time_alone_doubles_with_each_loss(tmp_path: Path) -> None:
    """Invariant 27: so that one which always kills after a while is found out."""
    async with World(tmp_path, held=BOTH) as world:
        for _ in range(2):
            await world.start(GOOD)
        killer = await world.start(DEADLY)
        deaths = 0
        while await killer.status() != "failed":
            while not at_work(world, "deadly"):
                if world.hands.waiting:
                    world.hands.release(Succeeded(b"1"))
                    await world.settle()
                else:
                    await world.advance(1)
            if deaths < 2:
                await world.start(GOOD)
            else:
                await world.advance(90)  # longer than the first time alone
                if deaths == 2:
                    await world.start(GOOD)
            deaths += 1
            await die(world)
            assert deaths < 20

        assert (await killer.show())["outcome"]["code"] == Code.DELIVERIES_EXHAUSTED
        assert [event["charged"] for event in await told(killer, "TaskRedelivered")][:3] == [False, False, False]


async def test_others_are_not_held_up_for_ever_by_one_that_waits_to_be_alone(tmp_path: Path) -> None:
    """Invariant 27: while something takes long to end, those who were held up go on for as long."""
    async with World(tmp_path, held={"good", "long", "quick"}) as world:
        await world.start(drill({"call": "long"}))
        waits = await world.start(GOOD)
        for _ in range(2):
            await die(world)
        await world.advance(61)  # one of the two has outlived its time alone, and works on
        (first,) = (assignment for assignment, _, _ in world.hands.waiting.values())
        await world.advance(61)  # others had their turn
        quick = await world.start(drill({"call": "quick"}, {"return": "ran"}))
        assert not at_work(world, "quick"), "held up, so that the other one may be alone"
        await world.advance(121)
        assert at_work(world, "quick")
        world.hands.release(Succeeded(b"1"), at_work(world, "quick")[0])
        world.hands.release(Succeeded(b"1"), first)
        await world.advance(300)

        assert await quick.result() == "ran"
        assert len(world.hands.waiting) == 1, "now the other one is alone"
        assert waits.id


async def test_a_suspect_that_is_cancelled_before_it_begins_alone_is_over(tmp_path: Path) -> None:
    """Invariants 13 and 27."""
    async with World(tmp_path, held=BOTH) as world:
        runs = [await world.start(GOOD) for _ in range(3)]
        for _ in range(2):
            await die(world)
        (alone,) = at_work(world, "good")
        waiting = [run for run in runs if run.id != alone.run]
        for run in waiting:
            await run.cancel()
        assert [await run.status() for run in waiting] == ["cancelled"] * 2
        await world.run(alone.run).cancel()
        fresh = await world.start(drill({"call": "deadly"}))

        assert at_work(world, "deadly")[0].run == fresh.id


async def test_a_restart_of_the_machine_charges_nobody(tmp_path: Path) -> None:
    """Invariant 27: the lock files say in which life of the machine their owner lived."""
    async with World(tmp_path, held=BOTH) as world:
        run = await world.start(drill({"call": "good", "deliveries": 1, "save": "x"}, {"return": "$x"}))
        for _ in range(4):
            await world.crash()
            for path in tmp_path.glob("*-owner*"):
                path.write_text("an earlier life of the machine")
            await world.boot()

        assert {event["suspicion"] for event in await told(run, "TaskRedelivered")} == {0}
        world.hands.release(Succeeded(b'"done"'))
        await world.settle()
        assert await run.result() == "done"


async def test_a_fork_of_a_suspect_is_none(tmp_path: Path) -> None:
    """Invariants 20 and 27: what was open is issued anew."""
    async with World(tmp_path, held=BOTH) as world:
        run = await world.start(GOOD)
        await world.start(GOOD)
        for _ in range(2):
            await die(world)
        assert world.engine is not None
        seq = len(await run.events())
        fork = await world.engine.fork(run.id, at=seq)
        await world.settle()
        assert {task.suspicion for task in world.hands.performed if task.run == RunId(fork.id)} <= {0}


# Pools: the same per worker.

POOLED = drill({"call": "deadly", "pool": "gpu", "deliveries": 3}, {"return": "lived"})


class Workers:
    """Workers on leased tasks, one after the other under the same clock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._count = 0

    async def come(self) -> PoolWorker:
        self._count += 1
        assert self.world.engine is not None
        worker = pool_worker(self.world, f"w{self._count}", lease=30 * SECOND)
        await worker.take()
        return worker

    async def hear(self) -> None:
        """The engine takes up what workers have sent."""
        assert self.world.engine is not None
        await self.world.engine.runtime.read_inbox()
        await self.world.settle()

    async def silence(self) -> None:
        """Nobody renews anything for longer than a lease."""
        await self.hear()
        assert self.world.engine is not None
        self.world.clock.move_to(self.world.clock.now() + 31 * SECOND)
        await self.world.engine.runtime.expire_leases()
        await self.world.settle()


@pytest.mark.every_store
async def test_a_killer_among_others_in_a_pool_ends_alone_too(tmp_path: Path) -> None:
    """Invariant 27: what its worker had begun stands in the log, and only what was alone there is charged."""
    async with World(tmp_path, held=BOTH) as world:
        workers = Workers(world)
        killer = await world.start(POOLED)
        good = await world.start(drill({"call": "good", "pool": "gpu", "deliveries": 1, "save": "x"}, {"return": "$x"}))
        deaths = 0
        while await killer.status() != "failed":
            worker = await workers.come()
            while not at_work(world, "deadly"):
                world.hands.release(Succeeded(b'"done"'))
                await worker.finish()
                await worker.take()
            deaths += 1
            world.hands.waiting.clear()
            await workers.silence()
            assert deaths < 10
        while await good.status() != "succeeded":
            worker = await workers.come()
            world.hands.release(Succeeded(b'"done"'))
            await worker.finish()
            assert world.engine is not None
            await world.engine.runtime.read_inbox()
            await world.settle()

        assert deaths == 2 + 3
        assert (await killer.show())["outcome"]["code"] == Code.DELIVERIES_EXHAUSTED
        assert await good.result() == "done"


@pytest.mark.every_store
async def test_a_worker_that_stops_in_order_gives_everything_back_and_charges_nobody(tmp_path: Path) -> None:
    """Invariant 27: another worker has it at once, and it is as suspicious as before."""
    async with World(tmp_path, held=BOTH) as world:
        workers = Workers(world)
        run = await world.start(drill({"call": "good", "pool": "gpu", "deliveries": 1, "save": "x"}, {"return": "$x"}))
        for _ in range(2):
            await workers.come()
            await workers.silence()
        for _ in range(3):
            worker = await workers.come()
            await worker.close()
            await workers.hear()
        worker = await workers.come()
        world.hands.release(Succeeded(b'"done"'), at_work(world, "good")[-1])
        await worker.finish()
        await workers.hear()

        assert await run.result() == "done"
        told_of = [(event["suspicion"], event["charged"]) for event in await told(run, "TaskRedelivered")]
        assert told_of == [(1, False), *[(2, False)] * 4]


@pytest.mark.every_store
async def test_a_lost_lease_is_judged_by_its_row_though_the_run_has_heard_nothing(tmp_path: Path) -> None:
    """Invariant 27: the begin of a suspect of a pool is no event of its run, and counts all the same."""
    async with World(tmp_path, held=BOTH) as world:
        workers = Workers(world)
        killer = await world.start(POOLED)
        for _ in range(5):
            await workers.come()
            assert at_work(world, "deadly")
            await workers.silence()

        assert not await told(killer, "TaskBegun")
        told_of = [(event["suspicion"], event["charged"]) for event in await told(killer, "TaskRedelivered")]
        assert told_of == [(1, False), (2, False), (3, True), (4, True)]
        assert (await killer.show())["outcome"]["code"] == Code.DELIVERIES_EXHAUSTED


@pytest.mark.every_store
async def test_who_outlives_its_time_alone_in_a_pool_is_cleared(tmp_path: Path) -> None:
    """Invariant 27: from then on it works beside others, and its loss is not charged."""
    async with World(tmp_path, held=BOTH) as world:
        workers = Workers(world)
        run = await world.start(POOLED)
        for _ in range(2):
            await workers.come()
            await workers.silence()
        worker = await workers.come()
        for _ in range(3):
            world.clock.move_to(world.clock.now() + 25 * SECOND)
            await worker.beat()
        await workers.silence()

        (cleared,) = await told(run, "TaskCleared")
        assert (cleared["suspicion"], cleared["uncharged"]) == (1, False)
        assert [event["charged"] for event in await told(run, "TaskRedelivered")] == [False] * 3


@pytest.mark.every_store
async def test_a_restart_of_the_machine_charges_nobody_who_was_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 27: the begin says in which boot of the machine it was, in the log and on the row of a lease."""
    async with World(tmp_path, held=BOTH) as world:
        workers = Workers(world)
        here = await world.start(DEADLY)
        await world.start(GOOD)
        pooled = await world.start(POOLED)
        for boot in range(6):
            await workers.come()
            await world.crash()
            world.hands.waiting.clear()
            if boot > 1:
                monkeypatch.setattr(sources, "machine", lambda boot=boot: f"boot-{boot}")
                for path in tmp_path.glob("*-owner*"):  # the log has to say it
                    path.unlink()
            await world.boot()
            await workers.silence()
            await world.advance(1)

        assert any(event["machine"] for event in await told(here, "TaskBegun")), (
            "it was alone when the machine restarted"
        )
        assert not any(event["charged"] for event in await told(here, "TaskRedelivered"))
        assert [event["charged"] for event in await told(pooled, "TaskRedelivered")] == [False] * 6


async def test_leases_that_end_without_a_death_charge_nobody(tmp_path: Path) -> None:
    """Invariant 27: a worker that was only late speaks for the task that was alone with it."""
    async with World(tmp_path, held=BOTH) as world:
        workers = Workers(world)
        run = await world.start(drill({"call": "good", "pool": "gpu", "deliveries": 2, "save": "x"}, {"return": "$x"}))
        for _ in range(8):
            worker = await workers.come()
            await workers.silence()
            await worker.beat()
            assert world.engine is not None
            await world.engine.runtime.read_inbox()
            await world.settle()
        worker = await workers.come()
        world.hands.release(Succeeded(b'"done"'))
        await worker.finish()
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert await run.result() == "done"
        assert await told(run, "TaskCleared")


async def test_a_suspect_of_a_pool_may_have_a_process_of_its_own(tmp_path: Path) -> None:
    """Invariant 27: its deaths are charged, and the worker goes on with the rest."""
    async with World(tmp_path, held=BOTH) as world:
        world.hands.importable = {"deadly"}
        workers = Workers(world)
        killer = await world.start(POOLED)
        for _ in range(2):
            await workers.come()
            await workers.silence()
        for _ in range(3):
            worker = await workers.come()
            (assignment,) = at_work(world, "deadly")
            assert assignment.apart
            world.hands.release(Failed(Code.WORKER_DIED, "the subprocess exited with code 9", True), assignment)
            await worker.finish()
            assert world.engine is not None
            await world.engine.runtime.read_inbox()
            await world.settle()

        assert (await killer.show())["outcome"]["code"] == Code.DELIVERIES_EXHAUSTED
