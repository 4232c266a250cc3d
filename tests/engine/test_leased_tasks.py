"""Tasks that leave the process: leases, answers, effects and order, on a real store and a fake clock."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.engine.runs import resident_runs
from perdure.engine.runs.effects import recorded_answer
from perdure.engine.runs.run_views import checksum, fold_stored, load
from perdure.engine.settings import Settings
from perdure.engine.slot import Slot
from perdure.engine.tasks.lease_errors import LeaseAnswered, LeaseGone
from perdure.engine.tasks.leased_tasks import LeasedTasks, parcel_of
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.stores.pool_tasks import ANSWERS_KEPT, LeaseRequest, TaskLease
from perdure.stores.protocol import StoredRun
from perdure.testing import World
from tests.engine.documents import drill
from tests.engine.test_control_messages import elsewhere

CALL = drill({"call": "train", "pool": "gpu", "save": "x"}, {"return": "$x"})
DONE = Succeeded(b'"done"')


def tasks_of(world: World, lease: int = 60 * SECOND) -> LeasedTasks:
    assert world.engine is not None
    return LeasedTasks(world.engine, lease)


async def lease_one(tasks: LeasedTasks, worker: str = "w1", **more: Any) -> TaskLease:
    (lease,) = await tasks.lease(LeaseRequest(["gpu"], worker, 1, 0, **more))
    return lease


@pytest.mark.every_store
async def test_the_first_answer_counts_and_the_same_again_is_the_same(tmp_path: Path) -> None:
    """SRV-033: 200 and 200; other content is a conflict; later than an hour it is gone."""
    async with World(tmp_path) as world:
        run = await world.start(CALL)
        tasks = tasks_of(world)
        lease = await lease_one(tasks)
        await asyncio.gather(tasks.end(lease, DONE), tasks.end(lease, DONE))
        assert await run.result() == "done"
        again = await tasks.find(lease.lease)
        await tasks.end(again, DONE)
        with pytest.raises(LeaseAnswered):
            await tasks.end(again, Succeeded(b'"other"'))
        with pytest.raises(LeaseAnswered):
            await tasks.end(again, Failed("Train.Broken"))
        with pytest.raises(LeaseGone):
            await tasks.find_open(lease.lease)

        assert world.engine is not None
        world.clock.move_to(world.clock.now() + ANSWERS_KEPT + SECOND)
        await world.engine.runtime.expire_leases()
        with pytest.raises(LeaseGone):
            await tasks.find(lease.lease)


@pytest.mark.every_store
async def test_a_lease_that_ends_is_handed_on_and_its_late_answer_is_gone(tmp_path: Path) -> None:
    """SRV-033: recorded as the next delivery before it happens; the lease has a new number."""
    async with World(tmp_path) as world:
        run = await world.start(CALL)
        tasks = tasks_of(world, 30 * SECOND)
        first = await lease_one(tasks)
        assert world.engine is not None
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        await world.engine.runtime.expire_leases()
        await world.settle()
        second = await lease_one(tasks, "w2")

        assert (first.delivery, second.delivery) == (1, 2) and first.lease != second.lease
        assert len(bytes.fromhex(second.lease)) == 16
        with pytest.raises(LeaseGone):
            await tasks.end(first, DONE)
        await tasks.end(second, Succeeded(b'"second"'))
        assert await run.result() == "second"


@pytest.mark.every_store
async def test_a_released_task_costs_no_delivery_unless_it_was_touched(tmp_path: Path) -> None:
    """SRV-033: a release after a claim is a conflict."""
    async with World(tmp_path) as world:
        run = await world.start(CALL)
        tasks = tasks_of(world)
        first = await lease_one(tasks)
        await tasks.release(first)
        with pytest.raises(LeaseGone):
            await tasks.find(first.lease)
        second = await lease_one(tasks)
        assert (second.delivery, second.lease != first.lease) == (1, True)
        assert not (await tasks.claim_effect(second, "pay")).completed
        with pytest.raises(Conflict):
            await tasks.release(second)
        await tasks.release(second, has_begun=True)  # it was stopped: that is a delivery, and nobody is charged
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()
        third = await lease_one(tasks)

        assert third.delivery == 2
        assert (await tasks.claim_effect(third, "pay")).in_doubt
        await tasks.end(third, DONE)
        assert await run.result() == "done"


@pytest.mark.every_store
async def test_effects_are_claimed_once_for_each_lease(tmp_path: Path) -> None:
    """SRV-033: a lost answer is not doubt; the next delivery finds what was completed."""
    async with World(tmp_path) as world:
        await world.start(CALL)
        tasks = tasks_of(world, 30 * SECOND)
        first = await lease_one(tasks)
        for _ in range(2):
            claim = await tasks.claim_effect(first, "pay")
            assert (claim.completed, claim.in_doubt) == (False, False)
        for _ in range(2):
            await tasks.complete_effect(first, "pay", b'{"paid": 1}')
        await tasks.claim_effect(first, "mail")
        await tasks.release_effect(first, "mail")
        await tasks.claim_effect(first, "print")
        assert world.engine is not None
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        await world.engine.runtime.expire_leases()
        await world.settle()
        with pytest.raises(LeaseGone):
            await tasks.claim_effect(first, "pay")
        second = await lease_one(tasks)

        assert (await tasks.claim_effect(second, "pay")).result == b'{"paid": 1}'
        assert not (await tasks.claim_effect(second, "mail")).in_doubt
        for _ in range(2):  # the answer may be lost: it stays the same
            assert (await tasks.claim_effect(second, "print")).in_doubt


async def test_an_effect_is_claimed_through_a_server_that_does_not_own_the_run(tmp_path: Path) -> None:
    """SRV-072: the answer is what the owner has recorded; what it has not recorded is not answered as done."""
    async with World(tmp_path) as world:
        run = await world.start(CALL)
        lease = await lease_one(tasks_of(world))
        async with elsewhere(world) as observer:
            there = LeasedTasks(observer, 60 * SECOND)
            claim = await there.claim_effect(lease, "pay")
            assert (claim.completed, claim.in_doubt) == (False, False)
            row = await observer.find(run.id)
            before = await load(observer.store, observer.languages, row)
            await there.complete_effect(lease, "pay", b"1")
            after = await load(observer.store, observer.languages, row)

    about = (lease.task, lease.delivery)
    assert recorded_answer(before, i.EffectClaim(*about, "pay")) == i.EffectClaimAnswer(completed=False)
    assert recorded_answer(before, i.EffectClaim(*about, "mail")) is None
    assert recorded_answer(before, i.EffectDone(*about, "pay", b"1")) is None
    assert recorded_answer(before, i.EffectRelease(*about, "pay")) is None
    assert isinstance(recorded_answer(before, i.EffectDone(*about, "mail", b"1")), i.Refused)
    assert recorded_answer(after, i.EffectDone(*about, "pay", b"1")) == i.ACCEPTED
    assert recorded_answer(after, i.EffectClaim(*about, "pay")) == i.EffectClaimAnswer(True, result=b"1")


@pytest.mark.every_store
async def test_a_request_under_a_key_gets_the_same_tasks_again(tmp_path: Path) -> None:
    """SRV-033: a lost answer of a lease request costs no delivery."""
    async with World(tmp_path) as world:
        for _ in range(3):
            await world.start(CALL)
        tasks = tasks_of(world)
        first = await tasks.lease(LeaseRequest(["gpu"], "w1", 2, 0, key="k"))
        again = await tasks.lease(LeaseRequest(["gpu"], "w1", 2, 0, key="k"))
        other = await tasks.lease(LeaseRequest(["gpu"], "w1", 2, 0, key="l"))

        assert [leased.lease for leased in first] == [leased.lease for leased in again] and len(first) == 2
        assert len(other) == 1


@pytest.mark.every_store
async def test_the_oldest_offer_is_first_and_runs_take_turns(tmp_path: Path) -> None:
    """SRV-033: a run with many tasks does not starve those that come later, whatever their names."""
    async with World(tmp_path) as world:
        wide = await world.start(drill({"each": 50, "do": [{"call": "train", "pool": "gpu"}]}))
        tasks = tasks_of(world)
        taken = [lease.run for lease in await tasks.lease(LeaseRequest(["gpu"], "w1", 10, 0))]
        world.clock.move_to(world.clock.now() + SECOND)
        late = [await world.start(CALL) for _ in range(3)]
        then = [lease.run for lease in await tasks.lease(LeaseRequest(["gpu"], "w1", 5, 0))]

        assert set(taken) == {wide.id}
        assert sorted(then[:4]) == sorted([wide.id, *(run.id for run in late)])
        rest = await tasks.lease(LeaseRequest(["gpu"], "w1", 100, 0))
        assert len(taken) + len(then) + len(rest) == 53


@pytest.mark.every_store
async def test_a_worker_gets_only_what_it_can_do_and_may_see(tmp_path: Path) -> None:
    """SRV-022, SRV-073: by pool, provider, namespace, and what it can open."""
    async with World(tmp_path) as world:
        await world.start(CALL)
        tasks = tasks_of(world)
        for refused in (
            LeaseRequest(["cpu"], "w1", 5, 0),
            LeaseRequest(["gpu"], "w1", 5, 0, ["render"]),
            LeaseRequest(["gpu"], "w1", 5, 0, []),
            LeaseRequest(["gpu"], "w1", 5, 0, None, None, ["shop"]),
        ):
            assert await tasks.lease(refused) == []
        lease = await lease_one(tasks, providers=["train", "render"], opens=[], namespaces=["default", "shop"])
        assert parcel_of(lease).assignment.provider == "train"


@pytest.mark.every_store
async def test_whoever_waits_is_woken_by_an_offer(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        tasks = tasks_of(world)
        waiting = asyncio.ensure_future(tasks.lease(LeaseRequest(["gpu"], "w1", 1, 0), 60.0))
        await asyncio.sleep(0)
        run = await world.start(CALL)
        (lease,) = await waiting
        await tasks.end(lease, DONE)
        assert await run.result() == "done"
        assert await tasks.lease(LeaseRequest(["gpu"], "w1", 1, 0), 0.01) == []

        async def gone() -> bool:
            return True

        await world.start(CALL)
        assert await tasks.lease(LeaseRequest(["gpu"], "w1", 1, 0), 60.0, gone) == []


@pytest.mark.every_store
async def test_a_large_result_is_kept_beside_the_log(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(CALL)
        tasks = tasks_of(world)
        lease = await lease_one(tasks)
        await tasks.end(lease, Succeeded(b'"' + b"x" * 200_000 + b'"'))
        assert await run.result() == "x" * 200_000


async def test_an_operator_sends_a_provider_to_a_pool_and_that_is_recorded(tmp_path: Path) -> None:
    """SRV-030: the pool of the document, then the route, then this process; decided when the task is scheduled."""
    settings = Settings(routes={"train": "far", "echo": "far"})
    async with World(tmp_path, settings=settings) as world:
        routed = await world.start(drill({"call": "train", "save": "x"}, {"return": "$x"}))
        named = await world.start(CALL)
        assert world.engine is not None
        assert [backlog.pool for backlog in await world.engine.store.backlogs()] == ["far", "gpu"], named
        await world.crash()
        await world.boot()
        tasks = tasks_of(world)
        (lease,) = await tasks.lease(LeaseRequest(["far"], "w1", 9, 0))
        await tasks.end(lease, DONE)
        assert await routed.result() == "done"


async def test_a_task_whose_effect_is_in_doubt_is_held_without_a_worker(tmp_path: Path) -> None:
    """Invariant 14, for a task of a pool: nobody leases it before an operator has settled the effect."""
    document = drill({"call": "train", "pool": "gpu", "hold_effects": True, "save": "x"}, {"return": "$x"})
    async with World(tmp_path) as world:
        run = await world.start(document)
        tasks = tasks_of(world, 30 * SECOND)
        first = await lease_one(tasks)
        await tasks.claim_effect(first, "pay")
        assert world.engine is not None
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        await world.engine.runtime.expire_leases()
        await world.settle()
        second = await lease_one(tasks)
        assert (await tasks.claim_effect(second, "pay")).in_doubt
        await tasks.end(second, Failed("Platform.EffectInDoubt", "in doubt", False, b'{"effect": "pay"}'))
        assert await tasks.lease(LeaseRequest(["gpu"], "w1", 1, 0)) == []
        from perdure.engine.runs.effects import settle

        await settle(world.engine, run.id, "pay", b"1", by="ada")
        await world.settle()
        third = await lease_one(tasks)
        assert (await tasks.claim_effect(third, "pay")).result == b"1"
        await tasks.end(third, DONE)
        assert await run.result() == "done"


@pytest.mark.every_store
async def test_answers_to_one_run_do_not_fold_it_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two answers the run is parked; what was folded of it is still true."""
    folded: list[str] = []

    async def counted(store: Any, stored: StoredRun, *about: Any) -> Any:
        folded.append(stored.row.id)
        return await fold_stored(store, stored, *about)

    monkeypatch.setattr(resident_runs, "fold_stored", counted)
    steps = [{"call": "train", "pool": "gpu", "save": "x"} for _ in range(5)]
    async with World(tmp_path) as world:
        run = await world.start(drill(*steps, {"return": "$x"}))
        tasks = tasks_of(world)
        for number in range(5):
            lease = await lease_one(tasks)
            assert world.engine is not None and run.id not in world.engine.runtime.scheduler.slots
            await tasks.end(lease, Succeeded(f'"{number}"'.encode()))
            await world.settle()
        assert await run.result() == "4"
        assert folded == []


async def test_what_was_folded_is_not_used_after_the_run_has_changed(tmp_path: Path) -> None:
    """Another server may have gone on with it, or a run of the same name may stand in its place."""
    async with World(tmp_path) as world:
        run = await world.start(CALL)
        assert world.engine is not None
        parked = world.engine.runtime.scheduler.runs.loader.parked
        assert run.id in parked
        execution = parked.take(run.id)
        assert execution is not None and run.id not in parked
        assert checksum(execution) == checksum(await world.engine.execution(run.id))
        (stored,) = await world.engine.store.load([run.id])
        slot = Slot(run.id, stored.row.partition)
        slot.execution = execution

        for changed in (
            replace(stored, rows=[*stored.rows, (execution.state.seq + 1, b"")]),
            replace(stored, row=replace(stored.row, created_at=execution.state.started_at + 1)),
        ):
            parked.add(slot)
            assert parked.find(changed) is None and run.id not in parked
        parked.add(slot)
        assert parked.find(stored) is execution

        slot.tail_bytes = resident_runs.PARKED_KEPT // 4
        for number in range(6):
            slot.id = RunId(f"r{number}")
            parked.add(slot)
        assert [number for number in range(6) if RunId(f"r{number}") in parked] == [2, 3, 4, 5]
