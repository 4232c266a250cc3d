"""Deliveries of Impulses on a real engine, with a clock that is moved."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.story.triggers import delivery
from perdure.kernel.json_values.values import SECOND
from perdure.services.story.triggers.impulses import DeliveryRefused, Impulses
from perdure.services.story.triggers.sessions import SessionActive, Sessions
from perdure.stores.errors import StoreLocked
from perdure.testing.world import World
from tests.services.story_engine import (
    NEEDED,
    WORK,
    DyingStore,
    engine_of,
    impulse,
    impulse_template,
    runs,
    story_run,
    texts,
)


async def prepared(world: World, *resources: Any) -> None:
    await engine_of(world).apply(texts(*NEEDED, impulse_template(), *resources))


async def status(world: World, name: str = "hook") -> Any:
    resource = await engine_of(world).catalog.get(engine_of(world).catalog.kind("impulse"), name)
    return resource.get("status", {})


async def test_an_event_becomes_a_run_of_the_impulses_story(tmp_path: Path) -> None:
    """STY-013 STY-158 STY-273"""
    async with World(tmp_path, functions=WORK) as world:
        await prepared(world, impulse(mapping={"n": "{{ context.body.id }}"}))
        decided = await engine_of(world).trigger(inputs={"body": {"id": 7}}, impulse="hook")
        await world.settle()
        (run,) = await runs(engine_of(world))
        assert run["spec"]["inputs"] == {"n": 7} and run["spec"]["impulseRef"] == {"name": "hook"}
        assert run["status"]["triggerTokens"] == ["story", "impulse", "impulse-success"]
        assert decided["spec"]["deliveryIdentity"]["mode"] == "none"
        counted = await status(world)
        assert (counted["triggersReceived"], counted["storiesLaunched"]) == (1, 1)
        assert counted["lastTrigger"] == counted["lastSuccess"]


async def test_a_key_makes_one_run_of_many_events_and_counts_it_once(tmp_path: Path) -> None:
    """STY-155 STY-158 STY-153"""
    policy = {"dedupe": {"mode": "key", "keyTemplate": "order:{{ inputs.n }}"}}
    async with World(tmp_path, functions=WORK) as world:
        await prepared(world, impulse(deliveryPolicy=policy))
        impulses = Impulses(engine_of(world))
        first, again = [await impulses.deliver("hook", {"n": 7}) for _ in range(2)]
        assert first["metadata"]["name"] == again["metadata"]["name"]
        assert first["spec"]["deliveryIdentity"]["mode"] == "key"
        await impulses.deliver("hook", {"n": 8})
        assert len(await runs(engine_of(world))) == 2
        counted = await status(world)
        assert (counted["triggersReceived"], counted["storiesLaunched"], counted.get("failedTriggers")) == (2, 2, None)


async def test_a_run_that_is_applied_is_counted_for_the_impulse_it_names(tmp_path: Path) -> None:
    """STY-158: once, also after a redrive, a second apply, and a crash between its start and the counting."""
    asked = texts(story_run("mine", inputs={"n": 1}, impulseRef={"name": "hook"}))
    for write in range(1, 6):
        for after in (False, True):
            stores: list[DyingStore] = []

            def wrap(store: Any, after: bool = after, stores: Any = stores) -> Any:
                stores.append(DyingStore(store, 10_000, after=after))
                return stores[-1]

            folder = tmp_path / f"{write}-{after}"
            folder.mkdir()
            async with World(folder, functions=WORK, wrap=wrap) as world:
                await prepared(world, impulse())
                stores[0].die_at(stores[0].writes + write)
                asking = asyncio.ensure_future(engine_of(world).apply(asked))
                dead = asyncio.ensure_future(stores[0].crashed.wait())
                await asyncio.wait({asking, dead}, return_when=asyncio.FIRST_COMPLETED)
                for task in (asking, dead):
                    task.cancel()
                await asyncio.gather(asking, dead, return_exceptions=True)
                await world.crash()
                await world.boot()
                await engine_of(world).settle_requests()
                await engine_of(world).apply(asked)
                await world.settle()
                (run,) = await runs(engine_of(world))
                counted = await status(world)
                assert (counted["triggersReceived"], counted["storiesLaunched"]) == (1, 1), (write, after)
                await engine_of(world).redrive(run["metadata"]["uid"], {"token": "again"})
                await engine_of(world).resume()  # its owner died
                await world.settle()
                (again,) = await runs(engine_of(world))
                assert again["status"]["triggerTokens"] == ["story", "impulse", "impulse-success"]
                assert again["status"]["attempts"] == 2 and await status(world) == counted
                await world.advance(120)
                await engine_of(world).settle_requests()
                assert await engine_of(world).store.list_resources("PendingStoryTrigger") == []
                assert await status(world) == counted


async def test_what_cannot_be_delivered_is_counted_and_starts_nothing(tmp_path: Path) -> None:
    """STY-155 STY-158: the template's policy holds where the Impulse says nothing (STY-154)."""
    async with World(tmp_path, functions=WORK) as world:
        strict = impulse_template(deliveryPolicy={"dedupe": {"mode": "token"}})
        await engine_of(world).apply(texts(*NEEDED, strict, impulse()))
        impulses = Impulses(engine_of(world))
        with pytest.raises(DeliveryRefused, match="token"):
            await impulses.deliver("hook", {"n": 1})
        await impulses.deliver("hook", {"n": 1}, token="T")
        with pytest.raises(Exception, match="other inputs"):
            await impulses.deliver("hook", {"n": 2}, token="T")
        assert len(await runs(engine_of(world))) == 1
        counted = await status(world)
        assert (counted["triggersReceived"], counted["storiesLaunched"], counted["failedTriggers"]) == (3, 1, 2)


class Locked:
    """A store that is locked by others for the first few writes of the catalog, and says whether it is at work."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.times = self.tries = self.at_work = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        return self._counted(attribute) if inspect.iscoroutinefunction(attribute) else attribute

    async def write_catalog(self, changes: Any) -> Any:
        if any(change.key.kind == "StoryTrigger" for change in changes):
            self.tries += 1
            if self.tries <= self.times:
                raise StoreLocked("somebody else writes")
        return await self._counted(self.inner.write_catalog)(changes)

    def _counted(self, function: Any) -> Any:
        async def counted(*arguments: Any, **named: Any) -> Any:
            self.at_work += 1
            try:
                return await function(*arguments, **named)
            finally:
                self.at_work -= 1

        return counted


class Waiting:
    """A world on such a store, where time passes while deliveries wait."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder, functions=WORK, wrap=self._wrap)

    def _wrap(self, store: Any) -> Locked:
        self.store = Locked(store)
        return self.store

    async def move(self, most: int) -> None:
        """To the next alarm, unless it is one of a step that works; never while something is read or written."""
        calm = 0
        while calm < 5:
            await asyncio.sleep(0.001)
            calm = 0 if self.store.at_work else calm + 1
        due = self.world.clock.next_alarm()
        if due is not None and due < most:
            self.world.clock.move_to(due)


@pytest.mark.parametrize(("times", "ends"), [(2, True), (3, False)])
async def test_trouble_that_may_pass_is_waited_out(tmp_path: Path, times: int, ends: bool) -> None:
    """STY-156: attempts include the first; the waits are those of the policy."""
    policy = {"retry": {"maxAttempts": 3, "baseDelay": "2s", "backoff": "exponential"}}
    scene = Waiting(tmp_path)
    async with scene.world as world:
        await prepared(world, impulse(deliveryPolicy=policy))
        scene.store.tries, scene.store.times = 0, times
        began = world.clock.now()
        delivering = asyncio.ensure_future(Impulses(engine_of(world), lambda: 0.5).deliver("hook", {"n": 1}))
        while not delivering.done():
            await scene.move(began + 60 * SECOND)
        if ends:
            assert (await delivering)["status"]["decision"] == "Created"
        else:
            with pytest.raises(StoreLocked):
                await delivering
        assert world.clock.now() - began == 6 * SECOND  # 2 s and 4 s
        assert scene.store.tries >= 3


async def test_rejections_are_never_tried_again(tmp_path: Path) -> None:
    """STY-156 STY-148"""
    async with World(tmp_path, functions=WORK) as world:
        await prepared(world, impulse(deliveryPolicy={"retry": {"maxAttempts": 5, "baseDelay": "1h"}}))
        decided = await asyncio.wait_for(Impulses(engine_of(world)).deliver("hook", {"n": "no integer"}), 60)
        assert (decided["status"]["decision"], decided["status"]["reason"]) == ("Rejected", "ValidationFailed")
        assert (await status(world))["failedTriggers"] == 1


async def test_throttled_triggers_wait_and_are_counted_and_none_is_lost(tmp_path: Path) -> None:
    """STY-157 STY-158: two clients share places and bucket through the store."""
    scene = Waiting(tmp_path)
    async with scene.world as world:
        await prepared(world, impulse(throttle={"ratePerSecond": 2, "burst": 2, "maxInFlight": 3}))
        began = world.clock.now()
        impulses = [Impulses(engine_of(world)), Impulses(engine_of(world))]
        going = [asyncio.ensure_future(impulses[n % 2].deliver("hook", {"n": n})) for n in range(6)]
        while not all(task.done() for task in going):
            await scene.move(began + 60 * SECOND)
        decided = [await task for task in going]
        await world.settle()
        assert {answer["status"]["decision"] for answer in decided} == {"Created"}
        assert len(await runs(engine_of(world))) == 6
        assert world.clock.now() - began >= 2 * SECOND  # two at once, then two a second
        counted = await status(world)
        assert counted["triggersReceived"] == counted["storiesLaunched"] == 6
        assert 3 <= counted["throttledTriggers"] <= 4 and counted["lastThrottled"]
        assert counted["throttle"]["inFlight"] == {}


async def test_a_place_is_held_until_its_delivery_is_over_however_long_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STY-157 STY-156: longer than a lease, while another delivery waits before the door and takes nothing from it."""
    monkeypatch.setattr(delivery, "RECHECK_AFTER", 5 * SECOND)
    policy = {"retry": {"maxAttempts": 9, "baseDelay": "50s", "backoff": "constant"}}
    scene = Waiting(tmp_path)
    async with scene.world as world:
        await prepared(world, impulse(deliveryPolicy=policy, throttle={"maxInFlight": 1}))
        scene.store.tries, scene.store.times = 0, 4
        began = world.clock.now()
        first = asyncio.ensure_future(Impulses(engine_of(world), lambda: 0.5).deliver("hook", {"n": 1}))
        while not scene.store.tries:
            await asyncio.sleep(0.001)
        (holder,) = (await status(world))["throttle"]["inFlight"]
        second = asyncio.ensure_future(Impulses(engine_of(world), lambda: 0.5).deliver("hook", {"n": 2}))
        while not first.done():
            held = list((await status(world))["throttle"]["inFlight"])
            assert scene.store.tries > 4 or (held == [holder] and not second.done())  # while it is being delivered
            await scene.move(began + 3600 * SECOND)
        assert (await first)["status"]["decision"] == "Created"
        assert world.clock.now() - began >= 200 * SECOND > 3 * delivery.LEASE
        while not second.done():
            await scene.move(began + 3600 * SECOND)
        assert (await second)["status"]["decision"] == "Created"
        counted = await status(world)
        assert (counted["triggersReceived"], counted["throttledTriggers"]) == (2, 1)
        assert counted["throttle"]["inFlight"] == {}


async def test_a_place_that_cannot_be_given_back_spoils_no_delivery(tmp_path: Path) -> None:
    """STY-157: the lease ends by itself."""
    async with World(tmp_path, functions=WORK) as world:
        await prepared(world, impulse(throttle={"maxInFlight": 1}))
        inner = engine_of(world).store.write_catalog

        async def write(changes: Any) -> Any:
            if any(change.key.kind == "Impulse" and b'"inFlight":{}' in (change.status or b"") for change in changes):
                raise StoreLocked("somebody else writes")
            return await inner(changes)

        engine_of(world).store.write_catalog = write  # type: ignore[method-assign]
        decided = await asyncio.wait_for(Impulses(engine_of(world)).deliver("hook", {"n": 1}), 60)
        assert decided["status"]["decision"] == "Created"
        assert len((await status(world))["throttle"]["inFlight"]) == 1
        engine_of(world).store.write_catalog = inner  # type: ignore[method-assign]
        world.clock.move_to(world.clock.now() + delivery.LEASE + 1)
        decided = await asyncio.wait_for(Impulses(engine_of(world)).deliver("hook", {"n": 2}), 60)
        assert decided["status"]["decision"] == "Created"


async def test_a_session_has_one_run_at_a_time(tmp_path: Path) -> None:
    """STY-159"""
    async with World(tmp_path, held={"engram:echo@1.0.0"}) as world:
        await prepared(world)
        sessions = Sessions(engine_of(world))
        both = [sessions.start("call-1", "orders", {"n": 1}) for _ in range(2)]
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(second, SessionActive) and not isinstance(first, BaseException)
        await sessions.start("call-2", "orders", {"n": 1})
        with pytest.raises(SessionActive):
            await sessions.start("call-1", "orders", {"n": 2})
        assert not await sessions.is_active("call-1", "other") and not await sessions.stop("call-1", namespace="other")
        assert await sessions.stop("call-1") and not await sessions.stop("nobody")
        await world.settle()
        while world.hands.waiting:
            from perdure.kernel.outcomes import Succeeded

            world.hands.release(Succeeded(b"{}"))
            await world.settle()
        await world.advance(60)
        assert not await sessions.is_active("call-1")
        await sessions.start("call-1", "orders", {"n": 2})
        sessions.forget("call-1")
        await sessions.start("call-1", "orders", {"n": 3})
        phases = sorted(run["status"]["phase"] for run in await runs(engine_of(world)))
        assert len(phases) == 4 and "Finished" in phases
