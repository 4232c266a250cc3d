"""How much of one language's work a worker does at a time (PBK-197)."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.workers.scene import Ledger, at_work, is_cancelled, on_loop, task, value_of

from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Cancelled
from perdure.providers.registry import Provider, Registry
from perdure.workers.concurrency_limits import Limits
from perdure.workers.worker import Worker

THREE = Limits(languages={"crowded": 3})
FEW = {"languages": Limits(languages={"crowded": 3}, long=0.05), "groups": Limits(groups={"rare": 3}, long=0.05)}


class Work:
    """Functions that say how many of them are at work, and wait to be let go."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.names: list[int] = []
        self.at_work = 0
        self.most = 0
        self._changed = threading.Condition()
        self._may_end = 0
        self.registry.provider("blocking")(self._blocking)
        self.registry.provider("waiting")(self._waiting)
        self.registry.add(Provider.of("rare", self._waiting, group="rare"))
        self.registry.provider("at-once", inline=True)(lambda name=0: name)

    def _begins(self, name: int) -> None:
        with self._changed:
            self.names.append(name)
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            self._changed.notify_all()

    def _ends(self) -> None:
        with self._changed:
            self.at_work -= 1
            self._may_end -= 1
            self._changed.notify_all()

    def _blocking(self, name: int) -> int:
        self._begins(name)
        with self._changed:
            assert self._changed.wait_for(lambda: self._may_end > 0, 20)
        self._ends()
        return name

    async def _waiting(self, name: int) -> int:
        self._begins(name)
        while not self._may_end > 0:
            await asyncio.sleep(0.001)
        self._ends()
        return name

    def release(self, count: int) -> None:
        with self._changed:
            self._may_end += count
            self._changed.notify_all()

    async def begun(self, count: int) -> None:
        """Wait until so many have begun in all."""
        while len(self.names) < count:
            await asyncio.sleep(0.001)


def send(worker: Worker, provider: str, name: int, language: str = "crowded", **facts: Any) -> "asyncio.Task[Any]":
    assignment = task(provider, {"name": name}, task=name, language=language, **facts)  # of the run r1, unless it says
    return asyncio.create_task(worker.run(assignment, Ledger()))


@on_loop
async def test_no_more_than_so_many_wherever_they_run() -> None:
    """PBK-197: threads and coroutines share the places."""
    work = Work()
    async with at_work(work.registry, THREE) as worker:
        sent = [send(worker, "blocking" if name % 2 else "waiting", name) for name in range(1, 31)]
        await work.begun(3)
        work.release(30)

        assert [value_of(outcome) for outcome in await asyncio.gather(*sent)] == list(range(1, 31))
        assert work.most == 3


@on_loop
async def test_those_without_a_place_begin_in_order_of_arrival() -> None:
    work = Work()
    async with at_work(work.registry, Limits(languages={"crowded": 1})) as worker:
        kinds = ("blocking", "blocking", "waiting", "blocking", "waiting", "waiting", "blocking")
        sent = [send(worker, kind, name) for name, kind in enumerate(kinds, 1)]
        work.release(len(kinds))
        await asyncio.gather(*sent)

        assert work.names == list(range(1, len(kinds) + 1)) and work.most == 1


@on_loop
async def test_other_languages_and_inline_functions_need_no_place() -> None:
    """PBK-197: the limit is a Playbook's; nobody else waits for it."""
    work = Work()
    async with at_work(work.registry, THREE) as worker:
        sent = [send(worker, "blocking", name) for name in range(1, 5)]
        sent += [send(worker, "blocking", name, language="free") for name in range(5, 11)]
        await work.begun(9)

        assert value_of(await send(worker, "at-once", 11)) == 11
        assert 4 not in work.names and work.at_work == 9
        work.release(10)
        await asyncio.gather(*sent)


@on_loop
async def test_one_that_is_stopped_while_it_waits_takes_no_place() -> None:
    work = Work()
    async with at_work(work.registry, THREE) as worker:
        sent = [send(worker, "blocking", name) for name in range(1, 6)]
        await work.begun(3)
        worker.cancel(task("blocking", task=4, language="crowded"))

        assert is_cancelled(await sent[3])
        work.release(4)
        await asyncio.gather(*sent)
        assert sorted(work.names) == [1, 2, 3, 5] and work.most == 3


@on_loop
async def test_a_thread_that_is_given_up_gives_its_place_back_and_takes_no_other() -> None:
    work = Work()
    async with at_work(work.registry, Limits(languages={"crowded": 1}, grace=0.01)) as worker:
        stuck = send(worker, "blocking", 1)
        await work.begun(1)
        worker.cancel(task("blocking", task=1, language="crowded"))
        assert isinstance(await stuck, Cancelled)
        others = [send(worker, "blocking", name) for name in (2, 3)]
        await work.begun(2)
        assert work.names == [1, 2]

        work.release(3)
        await asyncio.gather(*others)
        assert work.names == [1, 2, 3] and work.most == 2


@on_loop
async def test_a_call_that_goes_on_as_a_coroutine_keeps_its_place() -> None:
    work = Work()
    goes_on = asyncio.Event()

    @work.registry.provider("later")
    def later(name: int) -> Any:
        async def rest() -> int:
            work._begins(name)
            await goes_on.wait()
            with work._changed:
                work.at_work -= 1
            return name

        return rest()

    async with at_work(work.registry, Limits(languages={"crowded": 1})) as worker:
        sent = [send(worker, "later", 1), send(worker, "later", 2)]
        await work.begun(1)
        goes_on.set()
        await asyncio.gather(*sent)

        assert work.names == [1, 2] and work.most == 1


@on_loop
async def test_many_short_functions_all_come_back() -> None:
    """A thread goes on with the next of its language: every one is delivered once, and the threads stay few."""
    registry = Registry()
    seen: list[str] = []

    @registry.provider("short")
    def short(name: int) -> int:
        seen.append(threading.current_thread().name)
        return name

    async with at_work(registry, THREE) as worker:
        sent = [send(worker, "short", name) for name in range(1, 2_001)]

        assert [value_of(outcome) for outcome in await asyncio.gather(*sent)] == list(range(1, 2_001))
        assert len(set(seen)) <= 3


@on_loop
async def test_failing_calls_free_their_places_without_piling_up() -> None:
    """A thousand that fail at once are a loop, not a recursion."""
    registry = Registry()

    @registry.provider("never")
    async def never(name: int, missing: int) -> int:
        return name + missing

    async with at_work(registry, THREE) as worker:
        sent = [send(worker, "never", name) for name in range(1, 1_001)]

        assert not any(is_cancelled(outcome) for outcome in await asyncio.gather(*sent))


@pytest.mark.parametrize(
    ("limits", "provider"), [("languages", "waiting"), ("languages", "blocking"), ("groups", "rare")]
)
@on_loop
async def test_runs_take_turns_for_the_places(limits: str, provider: str) -> None:
    """Invariant 33: who has many waiting is not served before others; a child is of its root's family."""
    work = Work()
    async with at_work(work.registry, replace(FEW[limits], long=30.0)) as worker:
        sent = [
            send(worker, provider, name, run=RunId("hostile.7" if name > 5 else "hostile")) for name in range(1, 11)
        ]
        await work.begun(3)
        sent += [send(worker, provider, name, run=RunId("good")) for name in (11, 12)]
        await asyncio.sleep(0)
        for count in range(4, 13):
            work.release(1)
            await work.begun(count)
        work.release(3)
        await asyncio.gather(*sent)

    assert max(work.names.index(11), work.names.index(12)) <= 6
    assert work.most == 3


@pytest.mark.parametrize(("limits", "provider"), [("languages", "waiting"), ("groups", "rare")])
@on_loop
async def test_tasks_that_never_end_keep_no_other_family_out(limits: str, provider: str) -> None:
    """Of those that have stayed long while others waited some need no place; their family gets no more for it."""
    work = Work()
    async with at_work(work.registry, FEW[limits]) as worker:
        hostile = [send(worker, provider, name, run=RunId("hostile")) for name in range(1, 11)]
        await work.begun(3)
        good = send(worker, provider, 11, run=RunId("good"))
        await work.begun(4)

        assert set(work.names) == {1, 2, 3, 11}
        work.release(11)
        await asyncio.gather(good, *hostile)
    assert work.most == 4


@on_loop
async def test_a_thread_goes_on_with_the_next_of_its_own_family_when_all_places_are_taken() -> None:
    """Counted by who begins on which thread: nobody waits for a turn of the event loop in between."""
    registry = Registry()
    begun: list[str] = []
    all_wait, all_begun = threading.Event(), threading.Event()

    @registry.provider("short")
    def short(name: int) -> int:
        begun.append(threading.current_thread().name)
        if len(begun) == 30:
            all_begun.set()
        assert all_wait.wait(20)
        return name

    async with at_work(registry, THREE) as worker:
        sent = [send(worker, "short", name) for name in range(1, 31)]
        while len(begun) < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        all_wait.set()
        assert all_begun.wait(20)  # the loop does nothing meanwhile: only the threads can begin the rest
        await asyncio.gather(*sent)

    assert len(set(begun)) == 3
