"""A crash changes when a run ends, never how. Every verb of the kernel, every commit boundary."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.settings import Settings
from perdure.testing import CrashingStore, World
from tests.engine.documents import ALL
from tests.engine.scenes import check_fold, finish, make_world
from tests.sampling import Sample

pytestmark = pytest.mark.every_store

INPUT = {"who": "you"}


async def _undisturbed(folder: Path, document: dict[str, Any], settings: Settings, **more: Any) -> Any:
    async with make_world(folder, settings=settings, **more) as world:
        await check_fold(world)
        run = await world.start(document, INPUT, seed=7, token="t")
        return await finish(world, run)


@pytest.mark.every_store(sqlite=2, postgres18=4)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("batch", [1, 1000], ids=["batches-of-one", "batches-of-all"])
async def test_fold_equals_live_state_after_every_commit(tmp_path: Path, name: str, batch: int) -> None:
    """Invariants 1, 3 and 24: decide and evolve are separate; recovery folds what was recorded."""
    settings = Settings(poll=0.005, batch=batch, snapshot_bytes=500)

    shown = await _undisturbed(tmp_path, ALL[name], settings)

    assert shown["status"] == ("failed" if name == "fails" else "succeeded")


@pytest.mark.every_store(sqlite=2, postgres18=4)
@pytest.mark.parametrize("name", ALL)
async def test_batches_of_one_and_batches_of_all_end_the_same(tmp_path: Path, name: str) -> None:
    """Invariant 1."""
    shown = []
    for batch in (1, 1000):
        folder = tmp_path / str(batch)
        folder.mkdir()
        shown.append(await _undisturbed(folder, ALL[name], Settings(poll=0.005, batch=batch)))

    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("after", [False, True], ids=["before-sync", "after-sync"])
@pytest.mark.parametrize("batch", [1, 1000], ids=["batches-of-one", "batches-of-all"])
async def test_crash_at_every_commit_boundary_ends_the_same(
    tmp_path: Path, name: str, after: bool, batch: int, sample: Sample
) -> None:
    """Invariants 1, 2, 9, 12, 18: whatever the instant, the next engine goes on from what is on disk."""
    settings = Settings(poll=0.005, batch=batch)
    calm = tmp_path / "calm"
    calm.mkdir()
    counted: list[CrashingStore] = []

    def count(store: Any) -> Any:
        counted.append(CrashingStore(store, 0, after=after))
        return counted[-1]

    expected = await _undisturbed(calm, ALL[name], settings, wrap=count)
    assert counted[0].commits >= 1

    for commit in sample.take(range(1, counted[0].commits + 1)):
        folder = tmp_path / str(commit)
        folder.mkdir()
        crashed, shown = await _with_crash(folder, ALL[name], settings, commit, after)
        assert shown == expected, f"after a crash at commit {commit}" if crashed else "without a crash"


async def _with_crash(
    folder: Path, document: dict[str, Any], settings: Settings, commit: int, after: bool
) -> tuple[bool, Any]:
    stores: list[CrashingStore] = []

    def wrap(store: Any) -> Any:
        stores.append(CrashingStore(store, commit if not stores else 0, after=after))
        return stores[-1]

    world = make_world(folder, settings=settings, wrap=wrap)
    await world.boot()
    doing = asyncio.ensure_future(_start_and_finish(world, document))
    dying = asyncio.ensure_future(stores[0].crashed.wait())
    await asyncio.wait([doing, dying], return_when=asyncio.FIRST_COMPLETED)
    if doing.done():
        dying.cancel()
        await world.close()
        return False, doing.result()
    doing.cancel()
    await asyncio.wait([doing])
    await world.crash()

    await world.boot()
    await check_fold(world)
    # Whoever asked got no answer and asks again, with the same token.
    shown = await _start_and_finish(world, document)
    await world.close()
    return True, shown


async def _start_and_finish(world: World, document: dict[str, Any]) -> Any:
    run = await world.start(document, INPUT, seed=7, token="t")
    return await finish(world, run)
