"""SRV-013: a history is read by page, and its beginning is not told again for each of them."""

from pathlib import Path
from typing import Any

import pytest

from perdure.engine.runs import history_pages, run_views
from perdure.engine.runs.history_pages import HistoryPages
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Succeeded
from perdure.stores.protocol import Store
from perdure.testing import World
from tests.dialects.story.test_engine import ECHO, start
from tests.dialects.story.world import CORE


class CountedRows:
    """Of a store, the reading of histories: how many rows it gave."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = 0

    async def history(self, run: RunId, after: int = 0, limit: int | None = None) -> list[tuple[int, bytes]]:
        rows = await self._store.history(run, after, limit)
        self.rows += len(rows)
        return rows


async def test_all_pages_together_read_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_pages, "ROWS_AT_ONCE", 20)
    text = "x" * 2_000
    steps = [{"name": f"s{n}", "ref": {"name": "echo"}, "with": {"n": text}} for n in range(80)]
    story = {"apiVersion": CORE, "kind": "Story", "metadata": {"name": "long"}, "spec": {"steps": steps}}
    async with World(tmp_path, held={ECHO}) as world:
        run = await start(world, story)
        assert world.engine is not None
        while world.hands.waiting:
            world.hands.release(Succeeded(b'{"n": 1}'))
            await world.settle()
        client = world.engine
        row = await client.find(run.id)
        language = client.languages["story"]
        mask = await run_views.mask_of_run(client.store, client.languages, row)
        total = len(await client.store.history(run.id))
        whole = [dict(item) for item in language.history(run.id, await run_views.turns(client.store, language, run.id))]

        counted = CountedRows(client.store)
        histories = HistoryPages(counted)  # type: ignore[arg-type]

        async def page(after: int, limit: int | None, *, is_own: bool = True) -> list[dict[str, Any]]:
            return await histories.read(language, row, mask, after, is_own=is_own, limit=limit)

        read: list[dict[str, Any]] = []
        while items := await page(len(read), 11):
            read += items
            assert await page(len(read) - len(items), 11) == items, "the same page again"
        assert read == whole and len(whole) > 300
        assert counted.rows == total > 80
        assert await page(len(whole), None) == [], "whoever follows the run"
        assert counted.rows == total

        assert await page(5, 3) == whole[5:8], "one who comes later begins anew"
        assert counted.rows <= total + 20
        monkeypatch.setattr(history_pages, "MOST_SHOWN", 50)
        assert await page(0, None) == whole
        assert await page(len(whole) - 3, None) == whole[-3:]
        ended = [reader for reader in histories._kept.values() if reader.last == len(whole)]
        assert ended and all(len(reader.shown) <= 51 for reader in ended), "not the whole history is kept"

        counted.rows = 0
        raw = await page(7, 4, is_own=False)
        assert [item["seq"] for item in raw] == [8, 9, 10, 11] and counted.rows <= 4
        assert raw == (await client.history(run.id, raw=True))[7:11]
