"""Whoever looks at a run while it is removed is told that it is gone."""

from pathlib import Path

import pytest

from perdure.engine.runs import run_views
from perdure.engine.runs.retention import delete_run
from perdure.kernel.errors import RunNotFound
from tests.engine.documents import drill
from tests.engine.scenes import make_world

pytestmark = pytest.mark.every_store


async def test_a_run_that_is_removed_while_it_is_read_is_not_there(tmp_path: Path) -> None:
    """It was a fault of the server."""
    async with make_world(tmp_path) as world:
        assert world.engine is not None
        run = await world.start(drill({"return": 1}))
        await run.result()
        row = await world.engine.find(run.id)
        await delete_run(world.engine, run.id)
        with pytest.raises(RunNotFound):
            await run_views.load(world.engine.store, world.engine.languages, row)
