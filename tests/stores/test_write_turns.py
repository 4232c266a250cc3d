"""Writers of one file take turns: who waits is next, and who gives up keeps nobody out."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from perdure.stores.sqlite import write_turns
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.write_turns import WriteTurns


def turns_of(path: Path) -> WriteTurns:
    turns = WriteTurns.of(path, creates=True)
    assert turns is not None
    return turns


async def until_somebody_waits(path: Path) -> None:
    gate = os.open(path.with_name(path.name + "-gate"), os.O_RDWR)
    try:
        while True:
            try:
                fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(gate, fcntl.LOCK_UN)
            await asyncio.sleep(0.001)
    finally:
        os.close(gate)


async def take(turns: WriteTurns, order: list[str], name: str) -> None:
    async with turns.taken():
        assert turns.is_taken
        order.append(name)


async def test_who_has_just_written_waits_for_whoever_waited(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first, second = turns_of(path), turns_of(path)
    order: list[str] = []
    assert first.take_at_once()
    waiting = asyncio.ensure_future(take(second, order, "second"))
    await until_somebody_waits(path)
    first.give_back()
    assert not first.take_at_once(), "somebody waited"
    await asyncio.gather(waiting, take(first, order, "first"))
    assert order == ["second", "first"]
    assert (first.waits, second.waits) == (1, 1)
    first.close()
    second.close()


async def test_a_turn_that_nobody_wants_any_more_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_turns, "TURN_TIMEOUT", 0.01)
    path = tmp_path / "runs.db"
    first, second = turns_of(path), turns_of(path)
    assert first.take_at_once()
    async with second.taken():
        assert not second.is_taken, "it goes on without: SQLite's own lock keeps them apart"
    first.give_back()
    while not first.take_at_once():
        await asyncio.sleep(0.001)
    first.give_back()
    monkeypatch.undo()
    order: list[str] = []
    await take(second, order, "second")
    assert order == ["second"]
    first.close()
    second.close()


async def test_turns_are_taken_where_processes_of_a_group_have_begun_to(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    alone = SqliteStore(path)
    assert WriteTurns.of(path, creates=False) is None
    turns = turns_of(path)
    beside = SqliteStore(path)
    assert turns.take_at_once()
    claiming = asyncio.ensure_future(beside.claim())
    await until_somebody_waits(path)
    assert not claiming.done()
    turns.give_back()
    assert await claiming == 1
    assert await alone.claim() == 2, "a store that was opened before has SQLite's lock only"
    await beside.close()
    await alone.close()
    turns.close()
