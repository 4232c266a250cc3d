"""Deliveries of Impulses on a real engine, with a clock that is moved."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.values import SECOND
from perdure.stores.errors import StoreLocked
from perdure.testing.world import World
from perdure.triggers.impulses import DeliveryRefused, Impulses
from perdure.triggers.sessions import SessionActive, Sessions
from tests.triggers.scenes import NEEDED, WORK, engine_of, impulse, impulse_template, runs, texts


async def prepared(world: World, *resources: Any) -> None:
    await engine_of(world).apply(texts(*NEEDED, impulse_template(), *resources))


async def status(world: World, name: str = "hook") -> Any:
    found = await engine_of(world).catalog.get(engine_of(world).catalog.kind("impulse"), name)
    return found.get("status", {})


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
        await impulses.deliver("hook", {"n": 8})
        assert len(await runs(engine_of(world))) == 2
        counted = await status(world)
        assert (counted["triggersReceived"], counted["storiesLaunched"], counted.get("failedTriggers")) == (2, 2, None)


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


def _move(world: World, most: int) -> None:
    """To the next alarm, unless it is one of a step that works."""
    due = world.clock.next_alarm()
    if due is not None and due < most:
        world.clock.move_to(due)


class Locked:
    """A store that is locked by others for the first few writes of the catalog."""

    def __init__(self, inner: Any, times: int) -> None:
        self.inner = inner
        self.times = times
        self.tries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def write_catalog(self, changes: Any) -> Any:
        if any(one.key.kind == "StoryTrigger" for one in changes):
            self.tries += 1
            if self.tries <= self.times:
                raise StoreLocked("somebody else writes")
        return await self.inner.write_catalog(changes)


@pytest.mark.parametrize(("times", "ends"), [(2, True), (3, False)])
async def test_trouble_that_may_pass_is_waited_out(tmp_path: Path, times: int, ends: bool) -> None:
    """STY-156: attempts include the first; the waits are those of the policy."""
    policy = {"retry": {"maxAttempts": 3, "baseDelay": "2s", "backoff": "exponential"}}
    stores: list[Locked] = []

    def wrap(store: Any) -> Any:
        stores.append(Locked(store, 0))
        return stores[-1]

    async with World(tmp_path, functions=WORK, wrap=wrap) as world:
        await prepared(world, impulse(deliveryPolicy=policy))
        stores[0].tries, stores[0].times = 0, times
        began = world.clock.now()
        delivering = asyncio.ensure_future(Impulses(engine_of(world), lambda: 0.5).deliver("hook", {"n": 1}))
        for _ in range(400):
            await asyncio.sleep(0.005)
            if delivering.done():
                break
            _move(world, began + 60 * SECOND)
        if ends:
            assert (await delivering)["status"]["decision"] == "Created"
        else:
            with pytest.raises(StoreLocked):
                await delivering
        assert world.clock.now() - began == 6 * SECOND  # 2 s and 4 s
        assert stores[0].tries >= 3


async def test_rejections_are_never_tried_again(tmp_path: Path) -> None:
    """STY-156 STY-148"""
    async with World(tmp_path, functions=WORK) as world:
        await prepared(world, impulse(deliveryPolicy={"retry": {"maxAttempts": 5, "baseDelay": "1h"}}))
        decided = await asyncio.wait_for(Impulses(engine_of(world)).deliver("hook", {"n": "no integer"}), 10)
        assert (decided["status"]["decision"], decided["status"]["reason"]) == ("Rejected", "ValidationFailed")
        assert (await status(world))["failedTriggers"] == 1


async def test_throttled_triggers_wait_and_are_counted_and_none_is_lost(tmp_path: Path) -> None:
    """STY-157 STY-158: two clients share places and bucket through the store."""
    async with World(tmp_path, functions=WORK) as world:
        await prepared(world, impulse(throttle={"ratePerSecond": 2, "burst": 2, "maxInFlight": 3}))
        began = world.clock.now()
        impulses = [Impulses(engine_of(world)), Impulses(engine_of(world))]
        going = [asyncio.ensure_future(impulses[n % 2].deliver("hook", {"n": n})) for n in range(6)]
        for _ in range(2000):
            await asyncio.sleep(0.003)
            if all(one.done() for one in going):
                break
            _move(world, began + 60 * SECOND)
        decided = [await one for one in going]
        await world.settle()
        assert {one["status"]["decision"] for one in decided} == {"Created"}
        assert len(await runs(engine_of(world))) == 6
        assert world.clock.now() - began >= 2 * SECOND  # two at once, then two a second
        counted = await status(world)
        assert counted["triggersReceived"] == counted["storiesLaunched"] == 6
        assert 3 <= counted["throttledTriggers"] <= 4 and counted["lastThrottled"]
        assert counted["throttle"]["inFlight"] == {}


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
        phases = sorted(one["status"]["phase"] for one in await runs(engine_of(world)))
        assert len(phases) == 4 and "Finished" in phases
