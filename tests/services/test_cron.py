"""Schedules: which strikes there are, and that each starts one run, whatever sleeps, crashes or runs beside it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.resources.catalog_changes import Rejected
from perdure.expressions.cron import BadSchedule, find_zone, read_cron
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.services.schedules.cron_scheduler import CronScheduler
from perdure.services.schedules.firings import FIRING, read_firing
from perdure.services.story.triggers.impulse_schedules import ImpulseSchedules
from perdure.testing.clock import FakeClock
from perdure.testing.world import World
from tests.services.story_engine import NEEDED, WORK, engine_of, impulse, runs, texts


def at(text: str) -> Instant:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def said(instant: Instant | None) -> str:
    assert instant is not None
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y-%m-%dT%H:%M")


def strikes(cron: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    times, now = [], at(start)
    for _ in range(count):
        upcoming = read_cron(cron).next_after(now, find_zone(zone))
        assert upcoming is not None and read_cron(cron).matches(upcoming, find_zone(zone))
        times.append(said(upcoming))
        now = upcoming
    return times


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("*/20 * * * *", ["2027-01-15T10:20", "2027-01-15T10:40", "2027-01-15T11:00"]),
        ("@hourly", ["2027-01-15T11:00", "2027-01-15T12:00"]),
        ("@daily", ["2027-01-16T00:00", "2027-01-17T00:00"]),
        ("@midnight", ["2027-01-16T00:00"]),
        ("@weekly", ["2027-01-17T00:00", "2027-01-24T00:00"]),
        ("@monthly", ["2027-02-01T00:00", "2027-03-01T00:00"]),
        ("@yearly", ["2028-01-01T00:00"]),
        ("0 9-17/4 * * mon-fri", ["2027-01-15T13:00", "2027-01-15T17:00", "2027-01-18T09:00"]),
        ("5,10 12 * JAN,mar ?", ["2027-01-15T12:05", "2027-01-15T12:10", "2027-01-16T12:05"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 24 * fri", ["2027-01-22T00:00", "2027-01-24T00:00", "2027-01-29T00:00"]),
        ("0 0 * * 7", ["2027-01-17T00:00"]),
        ("30/10 * * * *", ["2027-01-15T10:30", "2027-01-15T10:40", "2027-01-15T10:50", "2027-01-15T11:30"]),
    ],
)
def test_strikes(cron: str, expected: list[str]) -> None:
    """STY-160: from Friday, January 15, 10:00."""
    assert strikes(cron, "2027-01-15T10:00:00", len(expected)) == expected


def test_strikes_of_a_zone_when_clocks_change() -> None:
    """STY-160: what is left out does not happen; what happens twice happens once, unless every hour counts."""
    oslo = "Europe/Oslo"
    assert strikes("30 2 * * *", "2027-03-27T00:00:00", 2, oslo) == ["2027-03-27T01:30", "2027-03-29T00:30"]
    assert strikes("30 2 * * *", "2027-10-30T00:00:00", 3, oslo) == [
        "2027-10-30T00:30",
        "2027-10-31T00:30",
        "2027-11-01T01:30",
    ]
    assert strikes("0 * * * *", "2027-10-30T23:00:00", 3, oslo) == [
        "2027-10-31T00:00",
        "2027-10-31T01:00",
        "2027-10-31T02:00",
    ]


@pytest.mark.parametrize(
    "cron",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
     "5-1 * * * *", "x * * * *", "@never", "@every 5m", "1,,2 * * * *", "-1 * * * *", "* * * foo *", "² * * * *"],
)  # fmt: skip
def test_what_is_no_schedule(cron: str) -> None:
    """STY-160"""
    with pytest.raises(BadSchedule):
        read_cron(cron)


def test_a_schedule_that_never_strikes() -> None:
    """STY-160"""
    assert read_cron("0 0 30 2 *").next_after(at("2027-01-15T10:00:00"), UTC) is None


def clockwork(*schedules: Any, name: str = "tick", **members: Any) -> dict[str, Any]:
    return impulse(name, "cron", **{"with": {"schedules": list(schedules), **members}})


EVERY = {"name": "five", "cron": "*/5 * * * *", "inputs": {"n": 1}}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"schedules": []}, "schedules"),
        ({"schedules": [{"name": "a"}]}, "cron"),
        ({"schedules": [{"name": "a", "cron": "61 * * * *"}]}, "minute"),
        ({"schedules": [EVERY], "timezone": "Mars/Base"}, "Mars/Base"),
        ({"schedules": [EVERY], "concurrencyPolicy": "maybe"}, "concurrencyPolicy"),
        ({"schedules": [EVERY, EVERY]}, "the same name"),
        ({"schedules": [{**EVERY, "jitter": "soon"}]}, "jitter"),
    ],
)
async def test_an_impulse_that_cannot_be_initialized_is_refused(tmp_path: Path, members: Any, message: str) -> None:
    """STY-160 STY-045"""
    async with World(tmp_path) as world:
        with pytest.raises(Rejected, match=message):
            await engine_of(world).apply(texts(*NEEDED, impulse("tick", "cron", **{"with": members})))


class Ticking:
    """A world whose clock begins at 10:02, with an Impulse that was applied just then."""

    def __init__(self, folder: Path, *impulses: Any, held: bool = False) -> None:
        self.world = World(folder, functions=None if held else WORK, held={"engram:echo@1.0.0"} if held else None)
        self.world.clock = FakeClock(at("2027-01-15T10:02:00"))
        self._impulses = impulses

    async def __aenter__(self) -> "Ticking":
        await self.world.boot()
        await engine_of(self.world).apply(texts(*NEEDED, *self._impulses))
        self.keeper = await self.keep()
        return self

    async def __aexit__(self, *exit: object) -> None:
        await self.keeper.close()
        await self.world.__aexit__()

    async def keep(self) -> CronScheduler:
        engine = engine_of(self.world)
        keeper = CronScheduler(engine, ImpulseSchedules(engine))
        await keeper.refresh()
        await self.calm()
        return keeper

    async def calm(self) -> None:
        """Until the keeper starts nothing: it writes to a real store, which takes time that the clock does not see."""
        quiet = 0
        while quiet < 5:
            await asyncio.sleep(0.002)
            await self.world.settle()
            quiet = 0 if hasattr(self, "keeper") and self.keeper.is_busy else quiet + 1

    async def until(self, text: str) -> None:
        await self.until_instant(at(text))

    async def until_instant(self, target: Instant) -> None:
        while (due := self.world.clock.next_alarm()) is not None and due <= target:
            self.world.clock.move_to(due)
            await self.calm()
        self.world.clock.move_to(target)
        await self.calm()

    async def runs(self) -> list[Any]:
        return list(reversed(await runs(engine_of(self.world))))

    async def status(self, name: str = "tick") -> Any:
        engine = engine_of(self.world)
        return (await engine.catalog.get(engine.catalog.kind("impulse"), name))["status"]


async def test_each_strike_starts_one_run_with_its_own_inputs(tmp_path: Path) -> None:
    """STY-161 STY-162"""
    tick = clockwork(EVERY, {**EVERY, "name": "off", "enabled": False}, timezone="Europe/Oslo")
    async with Ticking(tmp_path, tick) as scene:
        await scene.until("2027-01-15T10:11:00")
        first, second = await scene.runs()
        firing = {"schedule": "five", "description": "*/5 * * * *", "triggeredAt": "2027-01-15T11:05:00+01:00"}
        assert first["spec"]["inputs"] == {"n": 1, "_cron": firing}
        assert second["spec"]["inputs"]["_cron"]["triggeredAt"] == "2027-01-15T11:10:00+01:00"
        token = first["metadata"]["annotations"]["storyrun.bubustack.io/trigger-token"]
        assert token == "cron:tick:five:2027-01-15T10:05:00Z"
        assert first["status"]["phase"] == "Succeeded"
        status = await scene.status()
        assert status["phase"] == "Running" and status["storiesLaunched"] == 2
        assert status["schedules"]["five"]["lastScheduled"] == "2027-01-15T10:10:00Z"


async def test_schedules_go_by_the_wall_however_it_is_set(tmp_path: Path) -> None:
    """Invariant 30: forward, the latest strike that was passed over counts; back, none counts again (STY-161)."""
    async with Ticking(tmp_path, clockwork({**EVERY, "cron": "0 * * * *"})) as scene:
        scene.world.clock.set_wall(3_510 * SECOND)  # the wall shows 11:00:30
        await scene.until("2027-01-15T10:03:00")
        assert len(await scene.runs()) == 1
        await scene.until("2027-01-15T11:00:00")  # 11:58:30
        assert len(await scene.runs()) == 1
        await scene.until("2027-01-15T11:02:00")  # 12:00:30
        assert len(await scene.runs()) == 2
        scene.world.clock.set_wall(-7_110 * SECOND)  # 10:02
        await scene.until("2027-01-15T13:01:00")  # 12:01, once more
        assert len(await scene.runs()) == 2
        await scene.until("2027-01-15T14:01:00")  # 13:01
        times = [run["spec"]["inputs"]["_cron"]["triggeredAt"] for run in await scene.runs()]
        assert [time[11:16] for time in times] == ["11:00", "12:00", "13:00"]


async def test_templates_see_a_run_id_that_no_hash_counts(tmp_path: Path) -> None:
    """STY-161 STY-162"""
    from tests.dialects.story.world import story

    tells = story("steps: [{name: a, ref: {name: echo}}]\noutput: {id: '{{ inputs._cron.runID }}'}", "orders")
    async with Ticking(tmp_path, clockwork(EVERY)) as scene:
        await engine_of(scene.world).apply(texts(tells))
        await scene.until("2027-01-15T10:06:00")
        (run,) = await scene.runs()
        assert run["status"]["output"] == {"id": run["metadata"]["name"]}
        assert "runID" not in run["spec"]["inputs"]["_cron"]


async def test_two_keepers_strike_once(tmp_path: Path) -> None:
    """STY-162"""
    async with Ticking(tmp_path, clockwork(EVERY)) as scene:
        other = await scene.keep()
        await scene.until("2027-01-15T10:21:00")
        assert len(await scene.runs()) == 4
        assert (await scene.status())["triggersReceived"] == 4
        await other.close()


@pytest.mark.parametrize(
    ("back", "deadline", "count"),
    [
        ("2027-01-15T10:20:30", None, 1),  # 10:05, 10:10 and 10:15 are lost, 10:20 is made up for
        ("2027-01-15T10:22:00", None, 0),
        ("2027-01-15T10:22:00", "10m", 1),
    ],
)
async def test_after_downtime_at_most_the_latest_strike_is_made_up_for(
    tmp_path: Path, back: str, deadline: str | None, count: int
) -> None:
    """STY-162"""
    members = {} if deadline is None else {"startingDeadline": deadline}
    async with Ticking(tmp_path, clockwork(EVERY, **members)) as scene:
        await scene.keeper.close()
        scene.world.clock.move_to(at(back))
        scene.keeper = await scene.keep()
        runs = await scene.runs()
        assert len(runs) == count
        if count:
            assert runs[0]["spec"]["inputs"]["_cron"]["triggeredAt"] == "2027-01-15T10:20:00Z"
        await scene.keeper.close()
        scene.keeper = await scene.keep()
        assert len(await scene.runs()) == count


async def test_a_new_schedule_makes_up_for_nothing(tmp_path: Path) -> None:
    """STY-162: strikes before it was written are none of its own."""
    async with Ticking(tmp_path) as scene:
        scene.world.clock.move_to(at("2027-01-15T10:05:20"))
        await engine_of(scene.world).apply(texts(clockwork(EVERY)))
        await scene.keeper.refresh()
        await scene.calm()
        assert await scene.runs() == []
        await scene.until("2027-01-15T10:10:00")
        assert len(await scene.runs()) == 1


@pytest.mark.parametrize(("policy", "count"), [("allow", 3), ("forbid", 1), ("replace", 3)])
async def test_what_a_run_that_has_not_ended_means_for_the_next(tmp_path: Path, policy: str, count: int) -> None:
    """STY-161"""
    async with Ticking(tmp_path, clockwork(EVERY, concurrencyPolicy=policy), held=True) as scene:
        await scene.until("2027-01-15T10:15:30")
        runs = await scene.runs()
        assert len(runs) == count
        cancelled = [bool(run["spec"].get("cancelRequested")) for run in runs]
        assert cancelled == ([True, True, False] if policy == "replace" else [False] * count)
        if policy == "forbid":
            assert (await scene.status())["schedules"]["five"]["result"] == "Skipped"
            from perdure.kernel.outcomes import Succeeded

            scene.world.hands.release(Succeeded(b'{"n": 1}'))
            await scene.calm()
            assert len(await scene.runs()) == 1  # what was skipped stays skipped
            await scene.until("2027-01-15T10:20:00")
            assert len(await scene.runs()) == 2


async def test_jitter_delays_the_start_and_keeps_the_time(tmp_path: Path) -> None:
    """STY-161"""
    async with Ticking(tmp_path, clockwork({**EVERY, "jitter": "60s"})) as scene:
        await scene.until("2027-01-15T10:05:00")
        assert await scene.runs() == []
        engine = engine_of(scene.world)
        starts_at = read_firing((await engine.store.list_resources(FIRING))[0]).starts_at
        await scene.until_instant(starts_at - 1)
        assert await scene.runs() == []
        await scene.until_instant(starts_at)
        (run,) = await scene.runs()
        assert run["spec"]["inputs"]["_cron"]["triggeredAt"] == "2027-01-15T10:05:00Z"


async def test_a_schedule_may_strike_when_it_is_first_kept(tmp_path: Path) -> None:
    """STY-160"""
    async with Ticking(tmp_path, clockwork(EVERY, runOnStartup=True)) as scene:
        (run,) = await scene.runs()
        assert run["spec"]["inputs"]["_cron"]["triggeredAt"] == "2027-01-15T10:02:00Z"
