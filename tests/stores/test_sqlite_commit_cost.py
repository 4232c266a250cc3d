"""What a commit of new runs costs on SQLite beside its rows, counted: statements that are planned and run."""

from collections import Counter
from pathlib import Path
from typing import Any

import apsw

from perdure.kernel.documents.lookups import ResourceKey
from perdure.stores.protocol import ResourceWrite
from perdure.stores.sqlite.database import MOST_AT_ONCE, MOST_PAGES, WalPreallocation
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created

ENTRY = ResourceKey("Drill", "default", "short")


def counted(connection: apsw.Connection) -> Counter[str]:
    """The statements that it runs from now on, by their beginnings."""
    counts: Counter[str] = Counter()

    def count(cursor: Any, sql: str, bindings: Any) -> bool:
        counts[" ".join(sql.split()[:3])] += 1
        return True

    connection.exec_trace = count
    return counts


async def test_no_commit_plans_a_statement_again(tmp_path: Path) -> None:
    """SQLite asks its authorizer whenever it plans one: with new bounds of a range it would do so each time."""
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    home = await store.claim()
    await store.open_feed(until=1_000)
    planned: list[int] = []

    def authorize(*asked: Any) -> int:
        if asked[0] != apsw.SQLITE_TRANSACTION:
            planned.append(asked[0])
        return apsw.SQLITE_OK

    store._connection.authorizer = authorize
    for number in range(12):
        if number == 2:
            planned.clear()
        await store.commit([created(f"run {number}", home, at=number + 1)])

    assert len((await store.read_feed(0, 100)).changes) == 12
    assert planned == []
    await store.close()


async def test_runs_of_one_document_in_one_commit_store_it_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    home = await store.claim()
    counts = counted(store._connection)
    await store.commit([created(f"run {number}", home) for number in range(20)])

    assert counts["INSERT INTO programs"] == 1
    assert counts["INSERT INTO runs"] == 20
    await store.close()


async def test_between_two_commits_an_entry_is_read_once_and_behind_each_anew(tmp_path: Path) -> None:
    """Whoever else writes to the file is seen by the next look, as is a commit of one's own."""
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    other = SqliteStore(tmp_path / "runs.db", lambda: 1)
    await store.write_catalog([_entry(0, b"{}")])
    counts = counted(store._reader)
    for _ in range(20):
        assert (await store.resources([ENTRY]))[ENTRY].body == b"{}"
    assert counts["SELECT kind, namespace,"] == 1

    await other.write_catalog([_entry(1, b'{"a":1}')])
    assert (await store.resources([ENTRY]))[ENTRY].body == b'{"a":1}'
    await store.write_catalog([_entry(2, b'{"a":2}')])
    assert (await store.resources([ENTRY]))[ENTRY].body == b'{"a":2}'
    await other.close()
    await store.reopen()
    assert (await store.resources([ENTRY]))[ENTRY].body == b'{"a":2}'
    await store.close()


def _entry(seen: int, body: bytes) -> ResourceWrite:
    return ResourceWrite(ENTRY, "uid", seen + 1, body, b"", {}, None, seen)


def test_room_behind_the_log_is_made_a_megabyte_at_a_time(tmp_path: Path) -> None:
    """Commits wait meanwhile: sixteen at once would take the disk a tenth of a second."""
    room = WalPreallocation(tmp_path / "runs.db", None)
    steps = []
    while (used := room.pages) < MOST_PAGES:
        room.lengthen(used)
        steps.append(room.pages - used)

    assert room.pages == MOST_PAGES
    assert max(steps) <= MOST_AT_ONCE
    assert len(steps) < 20
