"""Waits until an instant on the wall (invariant 30): they follow it, however it is set; durations do not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.store_validation import StoreValidator
from perdure.kernel.json_values.values import SECOND
from perdure.stores.sqlite.admin import SqliteAdmin
from perdure.testing import World
from perdure.testing.world import RunInWorld
from tests.dialects.flow.documents import flow, returns

HOUR = 3_600 * SECOND


def sleeps(world: World, hours: float) -> dict[str, Any]:
    """Until the wall of this moment has gone on for so many hours."""
    then = datetime.fromtimestamp(world.clock.wall() / SECOND, UTC) + timedelta(hours=hours)
    nap = {"action": "Sleep", "until": f"{then:%Y-%m-%dT%H:%M:%SZ}", "next": "r"}
    return flow({"nap": nap, "r": returns("woken")})


async def set_wall(world: World, by: int) -> None:
    """Somebody sets the clock; the engine looks within a minute."""
    assert world.engine is not None
    world.clock.set_wall(by)
    world.engine.runtime.look_at_wall()
    await world.settle()


async def is_awake(run: RunInWorld) -> bool:
    return await run.status() == "succeeded"


@pytest.mark.every_store
async def test_a_clock_set_forward_ends_waits_until_an_instant_and_no_others(tmp_path: Path) -> None:
    """Invariant 30, MWL-220: also where both wait on disk."""
    async with World(tmp_path) as world:
        soon, late = await world.start(sleeps(world, 1)), await world.start(sleeps(world, 3))
        nap = {"action": "Sleep", "for": "PT1H", "next": "r"}
        lasting = await world.start(flow({"nap": nap, "r": returns("rested")}))
        await world.advance(600)
        await set_wall(world, HOUR)

        assert [await is_awake(run) for run in (soon, late, lasting)] == [True, False, False]
        await world.advance(3_000)
        assert [await is_awake(run) for run in (late, lasting)] == [False, True]
        await world.advance(3_600)
        assert await is_awake(late)


@pytest.mark.every_store
async def test_a_clock_set_back_lengthens_waits_until_an_instant(tmp_path: Path) -> None:
    """Invariants 9 and 30: who is woken too early sleeps on."""
    async with World(tmp_path) as world:
        run = await world.start(sleeps(world, 1))
        await world.advance(600)
        await set_wall(world, -HOUR)
        await world.advance(3_000)
        assert not await is_awake(run), "the wall shows the instant at which it began"
        await world.advance(3_599)
        assert not await is_awake(run)
        await world.advance(1)

        assert await is_awake(run)


@pytest.mark.every_store
@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_clock_that_was_set_while_nobody_looked_is_noticed_at_the_start(by: int, tmp_path: Path) -> None:
    """Invariant 30."""
    async with World(tmp_path) as world:
        run = await world.start(sleeps(world, 1))
        await world.crash()
        world.clock.set_wall(by)
        await world.boot()

        assert await is_awake(run) == (by > 0)
        await world.advance(3_600)
        assert await is_awake(run) == (by > 0)
        await world.advance(3_600)
        assert await is_awake(run)


async def test_an_instant_that_the_wall_has_shown_is_not_waited_for(tmp_path: Path) -> None:
    """Invariant 30: what counts is the wall, wherever the store's clock stands."""
    async with World(tmp_path) as world:
        past, future = sleeps(world, -0.5), sleeps(world, 0.5)
        await set_wall(world, HOUR)
        assert await is_awake(await world.start(future))
        await set_wall(world, -2 * HOUR)
        run = await world.start(past)
        assert not await is_awake(run)
        await world.advance(1_800)

        assert await is_awake(run)


async def test_what_was_set_back_and_validated_is_sound(tmp_path: Path) -> None:
    """Invariant 9: the row says when to wake it, as the wall stood when it was parked."""
    async with World(tmp_path) as world:
        world.clock.set_wall(-HOUR)
        run = await world.start(sleeps(world, 1))
        assert world.engine is not None
        with SqliteAdmin(world.path, world.clock.now).snapshot() as reading:
            assert list(StoreValidator(reading, world.engine.languages).findings()) == []
        assert not await is_awake(run)
