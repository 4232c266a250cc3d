"""One process, one partition, one lock, one descriptor: what the dead have left costs nobody anything. Invariant 23."""

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import Fenced, Message, RunSummary, Transition
from perdure.stores.protocol import AdoptedRuns, RunFilter
from perdure.stores.sqlite.partition_locks import lock_path
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created

BUSY = RunSummary(Status.RUNNING, True, None)


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder / "runs.db", lambda: 1)


def locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*-owner*"))


def rows(store: SqliteStore) -> list[int]:
    return [id for (id,) in store._read("SELECT id FROM partitions ORDER BY id")]


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def leave_behind(folder: Path, name: str) -> None:
    """A process that records a start and ends, as `perdure run --detach` does."""
    store = opened(folder)
    await store.commit([created(name, await store.claim(), BUSY)])
    await store.close()


@contextmanager
def counting(store: SqliteStore) -> Iterator[Counter[str]]:
    counted: Counter[str] = Counter()

    def statement(cursor: Any, sql: str, bindings: Any) -> bool:
        counted["statements"] += 1
        return True

    def steps(profile: dict[str, Any]) -> None:
        counted["steps"] += profile["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    flock = fcntl.flock

    def attempt(*arguments: Any) -> None:
        counted["lock attempts"] += 1
        flock(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", attempt)
        for connection in (store._connection, store._reader):
            connection.exec_trace = statement
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, steps)
        yield counted
        for connection in (store._connection, store._reader):
            connection.exec_trace = None
            connection.trace_v2(0, None)


async def test_a_start_costs_the_same_however_many_others_have_left_something(tmp_path: Path) -> None:
    work = []
    for number in range(120):
        store = opened(tmp_path)
        with counting(store) as counted:
            home = await store.claim()
        await store.commit([created(f"run-{number}", home, BUSY)])
        await store.close()
        work.append(counted)

    assert work[119] == work[20], "statements, steps of SQLite, attempts to lock"
    assert work[119]["lock attempts"] == 1
    store = opened(tmp_path)
    assert locks(tmp_path) == [] and rows(store) == []
    await store.close()


async def test_a_server_takes_everything_into_one_partition(tmp_path: Path) -> None:
    server = opened(tmp_path)
    (home,) = (await server.share()).taken
    await leave_behind(tmp_path, "first")
    await server.share()
    before, work = descriptors(), []
    for number in range(100):
        await leave_behind(tmp_path, f"run-{number}")
        with counting(server) as counted:
            got = await server.share()
        assert [claim.runs for claim in got.adopted] == [[f"run-{number}"]] and not got.taken
        work.append(counted)

    assert {row.partition for row in await server.search(RunFilter())} == {home}
    assert work[99] == work[9]
    assert descriptors() == before
    assert locks(tmp_path) == [f"runs.db-owner{home}"] and rows(server) == [home]
    await server.close()
    assert locks(tmp_path) == []


async def test_what_many_left_at_once_needs_few_descriptors(tmp_path: Path) -> None:
    dead = [opened(tmp_path) for _ in range(40)]
    for number, store in enumerate(dead):
        await store.commit([created(f"run-{number}", await store.claim(), BUSY)])
    for store in dead:
        store.abandon()
    assert len(locks(tmp_path)) == 40
    server = opened(tmp_path)
    most, close = 0, os.close

    def closing(descriptor: int) -> None:
        nonlocal most
        most = max(most, descriptors())
        close(descriptor)

    before = descriptors()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "close", closing)
        got = await server.share()

    assert len(got.adopted) == 40
    assert most < before + 15
    assert locks(tmp_path) == [f"runs.db-owner{got.taken[0]}"] and rows(server) == list(got.taken)
    await server.close()


async def test_what_the_killed_left_is_cleared_away_by_those_who_come(tmp_path: Path) -> None:
    for _ in range(30):
        store = opened(tmp_path)
        await store.claim()
        store.abandon()

    assert len(locks(tmp_path)) == 1, "each has cleared away the one before"
    last = opened(tmp_path)
    home = await last.claim()
    assert rows(last) == [home] and locks(tmp_path) == [f"runs.db-owner{home}"]
    await last.close()


async def test_no_number_of_a_partition_is_given_twice(tmp_path: Path) -> None:
    """A late owner must never mistake another's partition for its own."""
    late, other = opened(tmp_path), opened(tmp_path)
    home = await late.claim()
    late._locks.pop(home).abandon()
    await other.move(None, await other.claim())
    taken = {home, *other._epochs}
    for _ in range(5):
        store = opened(tmp_path)
        number = await store.claim()
        assert number not in taken
        taken.add(number)
        await store.close()

    assert isinstance(await late.commit([created("late", home)]), Fenced)
    await late.close()
    await other.close()


async def test_a_partition_in_use_by_an_older_engine_is_not_claimed(tmp_path: Path) -> None:
    """It takes the lowest number that it finds free, and knows of no others."""
    store = opened(tmp_path)
    store._connection.execute("UPDATE partition_numbers SET last = 0")
    await store.commit([created("old", await store.claim())])
    store.abandon()
    new = opened(tmp_path)
    new._connection.execute("UPDATE partition_numbers SET last = 0")

    assert await new.claim() == 2
    await new.close()


async def test_a_lock_that_was_removed_under_its_owner_is_made_again(tmp_path: Path) -> None:
    owner, other = opened(tmp_path), opened(tmp_path)
    home = await owner.claim()
    await owner.commit([created("a", home, BUSY)])
    lock_path(owner.path, home).unlink()
    assert await other.orphaned_partitions() == [home]
    owner.changed()

    assert not owner.is_late
    assert await other.orphaned_partitions() == [] and await other.move(None, await other.claim()) == []
    assert not isinstance(await owner.commit([Transition(RunId("a"), home, 2, row=b"on")]), Fenced)
    await owner.close()
    await other.close()
    assert locks(tmp_path) == []


async def test_an_owner_learns_that_it_was_taken_over_when_its_lock_was_removed(tmp_path: Path) -> None:
    owner, other = opened(tmp_path), opened(tmp_path)
    home = await owner.claim()
    await owner.commit([created("a", home, BUSY)])
    lock_path(owner.path, home).unlink()
    assert await other.move(None, await other.claim()) == [AdoptedRuns(home, [RunId("a")])]
    owner.changed()

    assert owner.is_late
    assert isinstance(await owner.commit([Transition(RunId("a"), home, 2, row=b"late")]), Fenced)
    assert await owner.rejoin() == [] and not owner.is_late
    await owner.close()
    assert await other.owned(list(other._epochs)) == frozenset(other._epochs), "its lock was not removed by the other"
    await other.close()


async def test_a_family_is_moved_alone_and_the_rest_waits(tmp_path: Path) -> None:
    """Messages to runs of the family go with it."""
    dead = opened(tmp_path)
    home = await dead.claim()
    names = ["a", "a.1", "a-b", "ab", "b"]
    await dead.commit([created(name, home, BUSY) for name in names])
    for name in names:
        await dead.send(Message(RunId(name), 1, b"x"))
    dead.abandon()
    store = opened(tmp_path)
    new = await store.claim()

    assert await store.move([RunId("a")], new) == [AdoptedRuns(home, [RunId("a"), RunId("a.1")])]
    assert [message.message.to for message in await store.inbox([new], 9)] == ["a", "a.1"]
    assert await store.orphaned_partitions() == [home] and locks(tmp_path) == [f"runs.db-owner{new}"]
    await store.close()
