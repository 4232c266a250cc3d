"""Partitions change hands while runs are at work: nothing is lost, nothing is done twice. Invariants 21 and 22."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.slot import Mail
from perdure.kernel import inputs as i
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.stores.commit_types import Message
from perdure.stores.protocol import Share, StoredRun
from tests.engine.documents import drill
from tests.engine.servers import Servers, names, until

SLOW = drill({"call": "slow", "save": "x"}, {"return": "$x"})
WAITS = drill({"signal": "go", "save": "x"}, {"return": "$x"})


async def test_a_run_at_work_is_handed_over_when_its_task_has_ended(tmp_path: Path) -> None:
    """Invariant 21: a live owner gives up itself, its tasks in flight finished."""
    async with Servers(tmp_path, held={"slow"}) as (first, second):
        run = await first.engine.start(drill({"call": "slow"}, {"call": "slow", "save": "x"}, {"return": "$x"}))
        await until(lambda: bool(first.hands.waiting))
        leaving = asyncio.ensure_future(first.gives_up())
        await asyncio.sleep(0.05)
        assert not leaving.done(), "its task is still at work"

        first.hands.release(Succeeded(b"1"))
        await leaving
        await until(lambda: bool(second.hands.waiting))
        second.hands.release(Succeeded(b"2"))

        assert await run.result() == 2, "who waited at the first server hears of the end at the second"
        assert [len(server.hands.performed) for server in (first, second)] == [1, 1]
        assert "TaskRedelivered" not in await names(second, run.id)


async def test_tasks_that_were_not_begun_cost_no_delivery(tmp_path: Path) -> None:
    """Invariants 12 and 21: each is begun once, by one of the servers, although only one delivery is allowed."""
    call = {"call": "slow", "deliveries": 1}
    async with Servers(tmp_path, held={"slow"}, tasks_in_flight=3) as (first, second):
        run = await first.engine.start(drill({"each": 40, "do": [call]}, {"return": "all"}))
        await until(lambda: len(first.hands.waiting) == 3)
        leaving = asyncio.ensure_future(first.gives_up())
        await until(lambda: not first.runtime.partitions)
        while first.hands.waiting:
            first.hands.release(Succeeded(b"1"))
        await leaving
        while not (await second.engine.find(run.id)).status.is_final:
            while second.hands.waiting:
                second.hands.release(Succeeded(b"1"))
            await asyncio.sleep(0.002)

        assert await run.result() == "all"
        assert len(first.hands.performed) == 3
        assert {assignment.delivery for assignment in (*first.hands.performed, *second.hands.performed)} == {1}
        done = Counter(task.task for task in (*first.hands.performed, *second.hands.performed))
        assert len(done) == 40 and set(done.values()) == {1}
        event_names = await names(second, run.id)
        assert event_names.count("TasksLaidDown") == event_names.count("TasksTakenUp") == 1
        assert "TaskRedelivered" not in event_names


async def test_a_crash_after_taking_up_costs_the_delivery(tmp_path: Path) -> None:
    """Invariant 12: from the record on, the task may have been begun."""
    async with Servers(tmp_path, count=3, held={"slow"}, tasks_in_flight=1) as (first, second, third):
        second.store.may_take = third.store.may_take = False
        run = await first.engine.start(drill({"each": 2, "do": [{"call": "slow", "deliveries": 2}]}))
        await until(lambda: len(first.hands.waiting) == 1)
        leaving = asyncio.ensure_future(first.gives_up())
        await until(lambda: not first.runtime.partitions)
        first.hands.release(Succeeded(b"1"))
        await leaving
        await second.takes()
        await until(lambda: bool(second.hands.waiting))
        await second.runtime.die()
        await third.takes()
        await until(lambda: bool(third.hands.waiting))

        assert [task.delivery for task in second.hands.performed] == [1]
        assert [task.delivery for task in third.hands.performed] == [2]
        third.hands.release(Succeeded(b"1"))
        await asyncio.wait_for(third.engine.wait(run.id), 60)


async def test_a_hand_over_that_takes_too_long_is_called_off(tmp_path: Path) -> None:
    """Invariant 21: a partition is not left undriven because of one long task."""
    async with Servers(tmp_path, held={"slow"}, drain=0.05, tasks_in_flight=1) as (first, second):
        second.store.may_take = first.store.may_take = False
        long = await first.engine.start(drill({"each": 2, "do": [{"call": "slow"}]}, {"return": "long"}))
        await until(lambda: bool(first.hands.waiting))
        partitions = sorted(first.runtime.partitions)
        first.store.surplus = len(partitions)
        await until(lambda: not first.runtime.partitions)
        await until(lambda: sorted(first.runtime.partitions) == partitions)
        first.store.surplus = 0
        waits = await first.engine.start(WAITS)
        await waits.signal("go", "still here")

        assert await waits.result() == "still here"
        for _ in range(2):
            await until(lambda: bool(first.hands.waiting))
            first.hands.release(Succeeded(b"1"))
        assert await long.result() == "long"
        assert {task.delivery for task in first.hands.performed} == {1} and not second.hands.performed


async def test_a_hand_over_may_be_called_off_at_any_moment(tmp_path: Path) -> None:
    """Invariants 12 and 21: also while it is being recorded what was not begun."""
    call = {"call": "slow", "deliveries": 1}
    async with Servers(tmp_path, count=1, held={"slow"}, tasks_in_flight=1) as (server,):
        run = await server.engine.start(drill({"each": 40, "do": [call]}, {"return": "all"}))
        handover = server.runtime.scheduler.handover
        for pause in range(40):
            await until(lambda: bool(server.hands.waiting))
            handover.begin(list(server.runtime.partitions), 60.0)
            server.hands.release(Succeeded(b"1"))
            for _ in range(pause):
                await asyncio.sleep(0)
            handover._call_off(handover.leaving, 0.0)
            for _ in range(pause % 9):  # and once more, perhaps while it is being recorded that they are taken up
                await asyncio.sleep(0)
            handover.begin(list(server.runtime.partitions), 60.0)
            handover._call_off(handover.leaving, 0.0)

        assert await asyncio.wait_for(run.result(), 60) == "all"
        assert Counter(assignment.task for assignment in server.hands.performed).most_common(1)[0][1] == 1
        assert "TaskRedelivered" not in await names(server, run.id)


@pytest.mark.every_store
async def test_many_runs_wander_between_servers_and_nothing_is_done_twice(tmp_path: Path) -> None:
    """Invariants 1, 7, 17, 18 and 21: children, permits, signals and sleeps, handed over and over."""
    kid = drill({"call": "work"}, {"sleep": "3ms"}, {"call": "work"}, {"return": "$input"}, name="kid")
    kinds: list[tuple[Any, Any]] = [
        (drill({"repeat": 12, "do": [{"call": "work"}]}, {"return": "chain"}), "chain"),
        (drill({"each": 8, "do": [{"call": "work"}], "limit": 3}, {"return": "fan"}), "fan"),
        (drill({"child": kid, "input": "kid", "save": "x"}, {"return": "$x"}), "kid"),
        (drill({"each": 3, "do": [{"permit": "door", "limit": 2, "do": [{"call": "work"}]}]}, {"return": "in"}), "in"),
        (drill({"sleep": "5ms"}, {"spin": 2500}, {"call": "work"}, {"return": "spun"}), "spun"),
        (WAITS, "said"),
    ]
    functions = {"work": lambda arguments, input: input}
    async with Servers(tmp_path, count=3, functions=functions, tasks_in_flight=4) as servers:
        wandering = asyncio.ensure_future(_wander(servers))
        handles = []
        for number in range(60):
            document, expected = kinds[number % len(kinds)]
            server = servers[number % 3]
            handles.append((await server.engine.start(document, token=f"t{number}"), expected))
            await asyncio.sleep(0.003)
        for handle, expected in handles:
            if expected == "said":
                await servers[0].engine.signal(handle.id, "go", "said", key="once")
        results = await asyncio.wait_for(asyncio.gather(*[handle.result() for handle, _ in handles]), 60)
        number = 60
        while sum(bool(server.hands.performed) for server in servers) < 2 and number < 600:  # one may be quicker
            await (await servers[number % 3].engine.start(kinds[0][0], token=f"t{number}")).result()
            number += 1
        wandering.cancel()

        assert results == [expected for _, expected in handles]
        performed = [assignment for server in servers for assignment in server.hands.performed]
        assert {assignment.delivery for assignment in performed} == {1}
        times = Counter((assignment.run, assignment.task) for assignment in performed)
        assert set(times.values()) == {1}, "a task was done twice"
        assert len([server for server in servers if server.hands.performed]) > 1, "work was done by several"


async def _wander(servers: list[Any]) -> None:
    """Everybody gives up some, again and again, at no particular moment."""
    turn = 0
    while True:
        server = servers[turn % len(servers)]
        server.store.surplus = len(server.runtime.partitions)
        await asyncio.sleep(0.02)
        server.store.surplus = 0
        turn += 1


async def test_an_owner_that_was_taken_over_drops_everything_and_goes_on(tmp_path: Path) -> None:
    """Invariant 21: fenced, it writes nothing; its tasks are stopped; it can still start runs."""
    async with Servers(tmp_path, held={"slow"}) as (first_server, second_server):
        run = await first_server.engine.start(SLOW)
        await until(lambda: bool(first_server.hands.waiting))
        (first,) = first_server.hands.performed
        home = (await first_server.engine.find(run.id)).partition
        first_server.store.may_take = False  # it would find its own partition ownerless, too
        _rob(first_server, home)
        await until(lambda: bool(second_server.hands.waiting))  # it has no owner as far as the other can see
        first_server.store.may_take = True
        effect = await first_server.runtime.ask(run.id, i.EffectClaim(first.task, first.delivery, "charge"))

        assert isinstance(effect, i.Refused)
        await until(lambda: home not in first_server.runtime.partitions)
        assert [task.task for task in first_server.hands.cancelled] == [first.task]
        second_server.hands.release(Succeeded(b'"done by two"'))
        assert await run.result() == "done by two"
        again = await first_server.engine.start(SLOW)
        await until(lambda: bool(first_server.hands.waiting) or bool(second_server.hands.waiting))
        (first_server if first_server.hands.waiting else second_server).hands.release(Succeeded(b'"well"'))
        assert await again.result() == "well"


def _rob(server: Any, partition: int) -> None:
    """Its lock is free although it does not know."""
    server.store._inner._locks.pop(partition).abandon()


async def test_a_private_engine_whose_run_was_taken_over_follows_it(tmp_path: Path, caplog: Any) -> None:
    """Invariant 21: it says so, and goes on with a home of its own."""
    private = Servers(tmp_path, count=1, serves=False, held={"slow"})
    async with private as (mine,), Servers(tmp_path, count=1, held={"slow"}) as (server,):
        run = await mine.engine.start(SLOW)
        await until(lambda: bool(mine.hands.waiting))
        before = mine.runtime.home
        waiting = asyncio.ensure_future(run.result())
        _rob(mine, before)
        await until(lambda: bool(server.hands.waiting))
        mine.hands.release(Succeeded(b'"late"'))
        await until(lambda: mine.runtime.home != before)
        server.hands.release(Succeeded(b'"in time"'))

        assert await asyncio.wait_for(waiting, 60) == "in time"
        assert "taken over the runs of this process" in caplog.text
        other = await mine.engine.start(drill({"return": "mine"}))
        assert await other.result() == "mine"
        assert (await mine.engine.find(other.id)).partition == mine.runtime.home


@pytest.mark.every_store
async def test_a_late_owner_stops_working_and_joins_anew(tmp_path: Path) -> None:
    """Invariant 22: past its lease it begins nothing, answers nothing from memory, and stops what is in hand."""
    async with Servers(tmp_path, count=1, held={"slow"}) as (server,):
        run = await server.engine.start(SLOW)
        await until(lambda: bool(server.hands.waiting))
        (first, port, done), *_ = server.hands.waiting.values()
        await port.claim_effect("charge")
        await port.complete_effect("charge", b"1")
        server.store.is_late = True
        answer = await server.runtime.ask(run.id, i.EffectClaim(first.task, first.delivery, "charge"))

        assert isinstance(answer, i.Refused), "memory knows that the effect is completed, and may not say so"
        assert [task.task for task in server.hands.cancelled] == [first.task]
        assert server.runtime.partitions == [] and server.runtime.tasks_in_flight == 0
        done(Succeeded(b'"too late"'))
        before = await names(server, run.id)
        await asyncio.sleep(0.05)
        assert before == await names(server, run.id), "a late owner writes nothing"
        waiting = asyncio.ensure_future(server.engine.start(WAITS))

        server.store.is_late = False
        await until(lambda: bool(server.hands.waiting))
        assert [task.delivery for task in server.hands.performed] == [1, 2]
        server.hands.release(Succeeded(b'"in time"'))
        assert await run.result() == "in time"
        await (await waiting).signal("go", 1)


@pytest.mark.every_store
@pytest.mark.parametrize("is_written", [False, True])
async def test_a_store_that_is_away_stops_no_server_and_loses_no_result(tmp_path: Path, is_written: bool) -> None:
    """Invariant 2: a result that came meanwhile waits, and its task is not done again."""
    async with Servers(tmp_path, count=1, held={"slow"}) as (server,):
        run = await server.engine.start(
            drill({"each": 2, "do": [{"call": "slow", "deliveries": 1}], "save": "x"}, {"return": "$x"})
        )
        await until(lambda: len(server.hands.waiting) == 2)
        server.store.is_away = True
        server.store.writes_although_away = is_written
        server.hands.release(Succeeded(b"1"))
        await until(lambda: server.store.reopened > 0)
        server.hands.release(Succeeded(b"2"))
        await asyncio.sleep(0.05)
        server.store.is_away = False

        assert await run.result() is not None
        assert [task.delivery for task in server.hands.performed] == [1, 1]
        assert (await names(server, run.id)).count("TaskEnded") == 2
        assert server.runtime.stopped is None


async def test_a_stuck_run_is_tried_again_by_the_next_owner(tmp_path: Path) -> None:
    """Invariants 3 and 21."""
    async with Servers(tmp_path) as (first, second):
        drills: Any = first.engine.languages["drill"], second.engine.languages["drill"]
        drills[0].trips["now"] = RuntimeError("broken here")
        run = await first.engine.start(drill({"signal": "go"}, {"trip": "now"}, {"return": "well"}))
        with pytest.raises(Exception, match="stuck"):
            await run.signal("go", key="k")
        await first.gives_up()

        assert await asyncio.wait_for(second.engine.handle(run.id).result(), 60) == "well"


async def test_a_failed_task_is_retried_by_whoever_owns_the_run_then(tmp_path: Path) -> None:
    """Invariant 11: a hand-over changes neither attempt nor delivery."""
    retried = {"call": "slow", "retry": {"attempts": 2, "delay": "30ms"}, "save": "x"}
    async with Servers(tmp_path, held={"slow"}) as (first, second):
        run = await first.engine.start(drill(retried, {"return": "$x"}))
        await until(lambda: bool(first.hands.waiting))
        first.hands.release(Failed("Busy", retryable=True))
        await first.gives_up()
        await until(lambda: bool(second.hands.waiting))
        second.hands.release(Succeeded(b"2"))

        assert await run.result() == 2
        assert [(task.attempt, task.delivery) for task in second.hands.performed] == [(2, 1)]


async def test_a_server_that_leaves_hands_everything_over(tmp_path: Path) -> None:
    """Invariant 21: what does not end within the grace is delivered again, the rest is not."""
    async with Servers(tmp_path, held={"slow"}, tasks_in_flight=2, grace=1.0) as (first, second):
        second.store.may_take = False
        run = await first.engine.start(drill({"each": 4, "do": [{"call": "slow", "deliveries": 2}]}, {"return": "all"}))
        await until(lambda: len(first.hands.waiting) == 2)
        leaving = asyncio.ensure_future(first.runtime.leave())
        await until(lambda: not first.runtime.partitions)
        first.hands.release(Succeeded(b"1"))
        assert not await leaving
        await first.runtime.close()
        await second.takes()
        for _ in range(3):
            await until(lambda: bool(second.hands.waiting))
            second.hands.release(Succeeded(b"1"))
            await asyncio.sleep(0.01)

        assert await asyncio.wait_for(second.engine.handle(run.id).result(), 60) == "all"
        assert sorted(task.delivery for task in second.hands.performed) == [1, 1, 2]


async def test_a_server_that_was_late_blames_no_task_of_its_own(tmp_path: Path) -> None:
    """Invariants 22 and 27: it knows that it lives, so what it had to stop is handed out again and that is all."""
    async with Servers(tmp_path, count=1, held={"slow"}) as (server,):
        run = await server.engine.start(drill({"call": "slow", "deliveries": 1, "save": "x"}, {"return": "$x"}))
        for times in range(1, 6):
            await until(lambda: bool(server.hands.waiting))
            server.store.is_late = True
            await until(lambda: not server.runtime.partitions)
            server.store.is_late = False
            await until(lambda: len(server.hands.performed) == times + 1)  # noqa: B023
        server.hands.release(Succeeded(b"1"))

        assert await run.result() == 1
        assert {task.suspicion for task in server.hands.performed} == {0}
        assert [task.delivery for task in server.hands.performed] == [1, 2, 3, 4, 5, 6]


async def test_a_server_that_was_taken_over_speaks_for_the_task_that_was_alone_with_it(tmp_path: Path) -> None:
    """Invariants 22 and 27: its successor takes it for dead, and is told better."""
    async with Servers(tmp_path, held={"slow"}, drain=0.1) as (first, second):  # what is held is not waited for
        second.store.may_take = False
        await until(lambda: bool(first.runtime.partitions))
        call = {"call": "slow", "deliveries": 2, "save": "x"}
        run = await first.engine.start(drill(call, {"return": "$x"}))
        for delivery in (1, 2):  # it was lost twice, and is begun alone
            await until(lambda: bool(first.hands.waiting))
            task, _, done = first.hands.waiting.popitem()[1]
            await first.runtime.ask(run.id, i.TaskLost(task.task, delivery, "told so", LossKind.BESIDE_OTHERS))
            done(Succeeded(b"0"))
        await until(lambda: len(first.hands.performed) == 3)

        inner: Any = first.store._inner

        async def send_late(message: Message) -> None:
            await until(lambda: not first.store.is_late)
            await inner.send(message)

        setattr(first.store, "send", send_late)  # noqa: B010
        first.store.is_late = True
        await until(lambda: not first.runtime.partitions)
        await inner.give_up(list(inner._epochs))
        await second.takes()
        await until(lambda: any(task.run == run.id for task in second.hands.performed))
        events = await second.engine.history(run.id, raw=True)
        assert [event["charged"] for event in events if event["event"] == "TaskRedelivered"] == [False, False, True]
        first.store.is_late = False
        while "TaskCleared" not in await names(second, run.id):
            await asyncio.sleep(0.01)
        second.hands.release(Succeeded(b"1"))

        assert await run.result() == 1
        (cleared,) = [
            event for event in await second.engine.history(run.id, raw=True) if event["event"] == "TaskCleared"
        ]
        assert cleared["uncharged"]


@pytest.mark.every_store
async def test_a_run_that_was_read_while_it_was_anothers_is_read_again(tmp_path: Path) -> None:
    """Invariants 3 and 21: what a server decides with is what the last owner left, not what it saw before."""
    document = drill({"signal": "a"}, {"signal": "b", "save": "x"}, {"return": "$x"})
    async with Servers(tmp_path) as (first, second):
        owner, other = first, second
        owner.store.may_take = other.store.may_take = False
        run = await owner.engine.start(document)
        home = (await owner.engine.find(run.id)).partition
        was_read, may_go_on = asyncio.Event(), asyncio.Event()
        load = other.store.load

        async def load_slowly(runs: Sequence[RunId]) -> list[StoredRun]:
            stored: list[StoredRun] = await load(runs)
            if run.id in runs and not was_read.is_set():
                was_read.set()
                await may_go_on.wait()
            return stored

        setattr(other.store, "load", load_slowly)  # noqa: B010
        other.runtime.scheduler.offer(run.id, Mail(0, 0, i.Wake()))
        await asyncio.wait_for(was_read.wait(), 60)
        await owner.engine.signal(run.id, "a")
        await owner.engine.__aexit__(None, None, None)
        other.store.may_take = True
        await until(lambda: home in other.runtime.partitions or len(other.runtime.partitions) == 1)
        may_go_on.set()
        await other.engine.signal(run.id, "b", "both")

        assert await asyncio.wait_for(other.engine.handle(run.id).result(), 60) == "both"
        assert other.store.rejoined == 0, "the store had to stop it"
        events = await names(other, run.id)
        assert events.count("SignalReceived") == 2
        assert events.count("RunEnded") == 1


async def test_what_is_taken_once_more_is_not_believed_to_be_known(tmp_path: Path) -> None:
    """A server whose partitions were another's for a while, and are free again, folds their runs anew."""
    async with Servers(tmp_path, count=1) as (server,):
        run = await server.engine.start(WAITS)
        partitions = list(server.runtime.partitions)
        before = server.runtime.scheduler.slots.get(run.id)
        server.runtime.scheduler.partitions._gain(Share(taken=partitions))

        assert sorted(server.runtime.partitions) == sorted(partitions), "each of them once"
        assert server.runtime.scheduler.slots.get(run.id) is not before or before is None
        await run.signal("go", 1)
        assert await run.result() == 1
