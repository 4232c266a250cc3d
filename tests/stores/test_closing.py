"""Who asks a store that is closed hears so at once; nobody waits for a thread that has ended."""

import asyncio
from pathlib import Path

import pytest

from perdure.engine.clock import SystemClock
from perdure.kernel.json_values.values import RunId
from perdure.stores.errors import StoreError
from perdure.stores.sync_thread import SyncThread
from perdure.testing.opening import open_store


async def test_a_thread_that_was_closed_takes_no_call() -> None:
    thread = SyncThread("perdure-test")
    assert await thread.run(lambda: 1) == 1
    thread.close()

    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(thread.run(lambda: 2), 60)


@pytest.mark.every_store
async def test_a_store_that_was_let_go_answers_nobody(tmp_path: Path) -> None:
    store = open_store(tmp_path, SystemClock().now)
    await store.claim()
    assert await store.find(RunId("nobody")) is None
    store.abandon()

    for ask in (store.find(RunId("nobody")), store.discard([1]), store.claim()):
        with pytest.raises(Exception, match=r"clos|Clos"):
            await asyncio.wait_for(ask, 60)
