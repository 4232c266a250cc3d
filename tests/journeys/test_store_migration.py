"""Open runs are carried into another store and end there as they would have ended at home."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.store_validation import StoreValidator
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.admin import copy_store
from perdure.stores.protocol import RunFilter, Store
from perdure.testing.world import World
from perdure.wiring import languages, open_store
from tests.dialects.differences import differences
from tests.journeys import open_runs
from tests.postgres import Server
from tests.stores.places import WAYS, Place, place


class Wanderer(World):
    """A world that can go on in another store."""

    def __init__(self, folder: Path, where: Place) -> None:
        super().__init__(folder, functions=open_runs.functions(), held={"slow"})
        self.where = where

    def open_store(self) -> Store:
        return open_store(self.where.address, self.clock)

    async def crash(self) -> None:
        await super().crash()
        self.where.forget_dead_owners()


@pytest.fixture
def registered() -> None:
    """Names that documents may use as kinds; the hands of the world perform them."""
    from perdure.providers.registry import Provider, shared

    if not shared.knows("fails"):
        shared.add(Provider.of("fails", open_runs.fails))


async def life(folder: Path, begins: Place, goes_on: Place) -> dict[str, Any]:
    """What becomes of every scene: how it ended and what its history was before and after."""
    async with Wanderer(folder, begins) as world:
        cast = await open_runs.begin(world)
        engine = open_runs.engine_of(world)
        before = {name: await engine.history(run, raw=True) for name, run in cast.runs.items()}
        runs = {row.id for row in await engine.search(RunFilter())}
        await open_runs.leave(world, cast)
        if goes_on is not begins:
            assert copy_store(begins.caretaker(), goes_on.caretaker()).open_runs == 20
            assert findings(goes_on) == []
            world.where = goes_on
        await world.boot()
        engine = open_runs.engine_of(world)
        assert runs <= {row.id for row in await engine.search(RunFilter())}
        for name, run in cast.runs.items():
            assert (await engine.history(run, raw=True))[: len(before[name])] == before[name], name
        await open_runs.finish(world, cast)
        return {name: await ending(engine, run) for name, run in cast.runs.items()}


async def ending(engine: Any, run: RunId) -> dict[str, Any]:
    row = await engine.find(run)
    names = [event["event"] for event in await engine.history(run, raw=True)]
    history = [name for name in names if name != "TaskRedelivered"]  # which the moment of a crash decides
    shown = await engine.show(run)
    shown.get("metadata", {}).pop("annotations", None)  # which name the request's uid, another one in every world
    return {"id": run, "status": row.status, "shown": shown, "history": history}


def findings(where: Place) -> list[Any]:
    with where.caretaker().snapshot() as reading:
        return list(StoreValidator(reading, languages()).findings())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS, ids="-".join)
async def test_open_runs_of_every_language_end_elsewhere_as_they_would_have_at_home(
    tmp_path: Path, registered: None, postgres_server: Callable[[int], Server], way: tuple[str, str]
) -> None:
    with ExitStack() as stack:
        home, old, new = [
            place(kind, name, tmp_path, postgres_server, stack)
            for kind, name in (("sqlite", "home"), (way[0], "old"), (way[1], "new"))
        ]
        stayed = await life(tmp_path, home, home)
        assert {name for name, state in stayed.items() if state["status"] is not Status.SUCCEEDED} == set()

        moved = await life(tmp_path, old, new)

        for name, state in stayed.items():
            assert list(differences(state, moved[name])) == [], name
        assert findings(new) == []
