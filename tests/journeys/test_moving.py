"""Open runs are carried into another store and end there as they would have ended at home."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.validating import Validator
from perdure.kernel.outcomes import Status
from perdure.kernel.values import RunId
from perdure.stores.copying import copy
from perdure.stores.protocol import Filter, Store
from perdure.testing.world import World
from perdure.wiring import languages, open_caretaker, open_store
from tests.dialects.differences import differences
from tests.journeys import moving


class Wanderer(World):
    """A world that can go on in another store."""

    address = ""

    def open_store(self) -> Store:
        return open_store(self.address, self.clock) if self.address else super().open_store()


@pytest.fixture
def registered() -> None:
    """Names that documents may use as kinds; the hands of the world perform them."""
    from perdure.providers.registry import Provider, shared

    if not shared.knows("fails"):
        shared.add(Provider.of("fails", moving.fails))


async def life(folder: Path, move: Callable[[Wanderer], None]) -> dict[str, Any]:
    """What becomes of every scene: how it ended and what its history was before and after."""
    folder.mkdir()
    async with Wanderer(folder, functions=moving.functions(), held={"slow"}) as world:
        cast = await moving.begin(world)
        engine = moving.engine_of(world)
        before = {name: await engine.history(run, raw=True) for name, run in cast.runs.items()}
        rows = {row.id for row in await engine.search(Filter())}
        await moving.leave(world, cast)
        move(world)
        await world.boot()
        engine = moving.engine_of(world)
        assert rows <= {row.id for row in await engine.search(Filter())}
        for name, run in cast.runs.items():
            assert (await engine.history(run, raw=True))[: len(before[name])] == before[name], name
        await moving.finish(world, cast)
        return {name: await ending(engine, run) for name, run in cast.runs.items()}


async def ending(engine: Any, run: RunId) -> dict[str, Any]:
    row = await engine.find(run)
    history = [event["event"] for event in await engine.history(run, raw=True)]
    shown = await engine.show(run)
    shown.get("metadata", {}).pop("annotations", None)  # which name the request's uid, another one in every world
    return {"id": run, "status": row.status, "shown": shown, "history": history}


def validated(address: str, clock: Any) -> list[Any]:
    with open_caretaker(address, clock).reading() as reading:
        return list(Validator(reading, languages()).findings())


async def test_open_runs_of_every_language_end_elsewhere_as_they_would_have_at_home(
    tmp_path: Path, registered: None
) -> None:
    home = await life(tmp_path / "home", lambda world: None)
    assert {name for name, one in home.items() if one["status"] is not Status.SUCCEEDED} == set()

    def to_another_file(world: Wanderer) -> None:
        world.address = f"sqlite:///{tmp_path}/elsewhere.db"
        source = open_caretaker(f"sqlite:///{world.path}", world.clock)
        copied = copy(source, open_caretaker(world.address, world.clock))
        assert copied.open_runs == 20
        assert validated(world.address, world.clock) == []

    away = await life(tmp_path / "away", to_another_file)
    assert {name: one["id"] for name, one in away.items()} == {name: one["id"] for name, one in home.items()}
    for name, one in home.items():
        assert list(differences(one, away[name])) == [], name
    assert validated(f"sqlite:///{tmp_path}/elsewhere.db", SystemClock()) == []
