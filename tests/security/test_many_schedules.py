"""Impulses with very many schedules, rare ones, large ones: the scheduler stays cheap for everybody else."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.resources.catalog_changes import Rejected
from perdure.expressions.cron import Cron, find_zone, read_cron
from perdure.services.failure_alerts import WATCH, FailureAlerts
from perdure.services.schedules.cron_scheduler import STARTED_OF_ONE
from perdure.services.story.triggers.impulse_schedules import ImpulseSchedules
from tests.services.test_cron import at
from tests.services.test_document_schedules import Ticking, documents, impulse

DAY = 24 * 3600 * 1_000_000


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[list[Any]]:
    """The first arguments of the calls of a method."""
    calls: list[Any] = []
    function = getattr(owner, name)

    def call(self: Any, first: Any, *rest: Any, **named: Any) -> Any:
        calls.append(first)
        return function(self, first, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, call)
        yield calls


@pytest.mark.parametrize("zone", ["UTC", "Europe/Oslo"])
def test_rare_times_are_found_without_trying_every_minute(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """A thousand schedules of 29 February kept a server from everything else for eleven seconds."""
    now = at("2027-01-15T10:02:00")
    with counted(monkeypatch, Cron, "matches") as tried:
        assert read_cron("* * 29 2 *").next_after(now, find_zone(zone)) is not None
        assert read_cron("0 0 30 2 *").next_after(now, find_zone(zone)) is None
        assert read_cron("0 0 29 2 *").latest(now - 7 * DAY, now, find_zone(zone)) is None
        assert read_cron("0 0 10 1 *").latest(now - 7 * DAY, now, find_zone("UTC")) == at("2027-01-10T00:00:00")
    assert len(tried) < 200


async def test_times_of_one_impulse_are_started_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them write one entry, over what the others wrote: a thousand at once took 1.3 GB."""
    started, at_work, most = 0, 0, 0
    start = ImpulseSchedules.start

    async def observed(self: ImpulseSchedules, *arguments: Any) -> Any:
        nonlocal started, at_work, most
        started, at_work = started + 1, at_work + 1
        most = max(most, at_work)
        try:
            return await start(self, *arguments)
        finally:
            at_work -= 1

    monkeypatch.setattr(ImpulseSchedules, "start", observed)
    many = [{"name": f"s{number}", "cron": "*/5 * * * *"} for number in range(20)]
    async with Ticking(tmp_path, impulse(*many)) as scene:
        await scene.until("2027-01-15T10:05:00")
        assert len(await scene.runs()) == started == 20
    assert 1 <= most <= STARTED_OF_ONE


async def test_an_impulse_is_read_once_for_its_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change of the catalog read all of them: 40 large ones took 0.3 seconds of the event loop."""
    with (
        counted(monkeypatch, ImpulseSchedules, "has_schedules") as looks,
        counted(monkeypatch, ImpulseSchedules, "read") as reads,
    ):
        async with Ticking(tmp_path, impulse()) as scene:
            for _ in range(3):
                await scene.look()
            await scene.until("2027-01-15T10:15:00")
            assert await scene.times() == ["10:05", "10:10", "10:15"]
    assert len(looks) == len(reads) == 1


async def test_a_large_impulse_is_refused(tmp_path: Path) -> None:
    """It is read for each of its events. The name of a schedule is part of the names of its times."""
    large = impulse({"name": "five", "cron": "*/5 * * * *", "inputs": {"text": "x" * 300_000}})
    long = impulse({"name": "x" * 300, "cron": "*/5 * * * *"})
    async with Ticking(tmp_path) as scene:
        for refused, reason in ((large, "256 KiB"), (long, "at most 253 characters")):
            with pytest.raises(Rejected, match=reason):
                await scene.engine.apply(documents(refused))


async def test_watches_of_open_runs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the inputs of its alert: those of all watched runs were in memory together."""
    hook = {"documentRef": {"language": "flow", "name": "alert"}, "inputs": {"text": "x" * 1000}}
    async with Ticking(tmp_path, impulse(on_failure=hook), held=True) as scene:
        await scene.until("2027-01-15T10:10:00")
        store = type(scene.engine.store)
        with (
            counted(monkeypatch, store, "resources") as reads,
            counted(monkeypatch, store, "list_resources") as lists,
        ):
            assert await FailureAlerts(scene.engine).poll() == 2
        assert WATCH not in [*lists, *(key.kind for keys in reads for key in keys)]
