"""Everything of a store into another one, or nothing."""

import asyncio
import re
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import apsw
import psycopg
import pytest

from perdure.kernel import inputs as i
from perdure.kernel.documents.lookups import CachedValue, ResourceKey
from perdure.kernel.ids import RunName
from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.outcomes import Status
from perdure.stores import records as r
from perdure.stores.access import AccessTokenRow, Act, AuditRow, AuditSeal, RequestKey, RequestKeyRow, SessionRow
from perdure.stores.admin import StoreAdmin, StoreImport, copy_store
from perdure.stores.commit_types import (
    Committed,
    Message,
    RequestedPermit,
    RunSummary,
    TaskLogRow,
    TaskOffer,
    Transition,
)
from perdure.stores.errors import CopyDiffers, StoreInUse, StoreLocked, StoreMissing, StoreNotEmpty
from perdure.stores.hook_deliveries import DeliveryRow
from perdure.stores.pool_tasks import LeaseRequest, WorkerRow
from perdure.stores.postgres import record_import as postgres_pouring
from perdure.stores.protocol import ResourceWrite, RunFilter, Store
from perdure.stores.sqlite import record_import as sqlite_pouring
from perdure.stores.sqlite.admin import SqliteAdmin
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created
from tests.postgres import Server
from tests.stores.places import NOW, WAYS, File, Place, place


@pytest.fixture(params=WAYS, ids="-".join)
def way(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Callable[[int], Server]
) -> Iterator[tuple[Place, Place]]:
    """From where to where: the source holds something of every kind, and nobody works on it."""
    with ExitStack() as stack:
        source, target = [
            place(kind, name, tmp_path, postgres_server, stack)
            for kind, name in zip(request.param, ("source", "target"), strict=True)
        ]
        yield source, target


async def prepared(source: Place) -> dict[str, object]:
    """What the source holds."""
    store = source.open()
    await fill(store)
    rows = await contents(store)
    store.abandon()
    source.forget_dead_owners()
    return rows


def caretaker(path: Path) -> SqliteAdmin:
    return SqliteAdmin(path, lambda: NOW)


async def fill(store: Store) -> int:
    """Something of every kind; the partition it is in."""
    home = await store.claim()
    text = b"y" * 70_000
    await store.set_limit("door", 1)
    entry = ResourceKey("Thing", "ns", "one")
    for generation, seen in ((1, 0), (2, 1)):
        write = ResourceWrite(entry, "uid-1", generation, b"{}", b"src", {"b": "2", "a": "é"}, b"null", seen)
        assert await store.write_catalog([write]) is None
    asked = [RequestedPermit("door", 1, 3, 1, 5, 7), RequestedPermit("door", 2, 9, 1, 6)]
    await store.commit(
        [
            created(
                "a",
                home,
                labels={"z": "1", "a": "2"},
                named=("ns", "x"),
                permits_asked=asked,
                values=[(digest(text), text)],
                stream_rows=[(b"p\0\xff", b"packet"), (b"s", b"numbers")],
                name_claims=[(RunName("drill", "ns", "y"), RunId("a.1"))],
            ),
            created("a.1", home, RunSummary(Status.RUNNING, True, None), parent="a"),
            created("late", home, RunSummary(Status.WAITING, False, 300), memories=[("k", CachedValue(b"1", 2, None))]),
            created("ended", home, RunSummary(Status.SUCCEEDED, False, None, 10)),
            created("bad", home, stuck="cannot be decided", offers=[TaskOffer(4, 1, "far", "echo", b"parcel", "ns")]),
        ]
    )
    await store.commit([Transition(RunId("a"), home, 3, row=b"second", snapshot=b"a cache", disowned=[RunId("a.1")])])
    for n in range(5):
        await store.send(Message(RunId("late"), 50 - n, i.encode(i.Signal(f"s{n}"))))
    assert len(await store.lease(LeaseRequest(["far"], "w1", 1, 99))) == 1
    assert await store.add_token(AccessTokenRow("ada", b"digest", "viewer", ("ns",), (), 5, "store", 99))
    await store.add_session(SessionRow(b"cookie", "ada", 5, 6), expired=0)
    await store.add_audit_rows([AuditRow("1", 5, "a", b"{}"), AuditRow("2", 6, None, b"{}")])
    await store.seal_audit(lambda rows, last: AuditSeal.over(rows, last, "here", 7))
    key = RequestKey("ada", "k", RequestKeyRow(b"d", 5, 200, b"{}"))
    assert await store.acting(Act(lambda act: AuditRow("3", 7, None, b"{}"), key)).revoke_token("ada", 7)
    await store.note_hooks({"h": "http://x"}, 5, 0)
    assert await store.add_deliveries("h", 0, 7, [DeliveryRow("h", 7, "a", "ns", b"{}", 5)])
    await store.note_workers([WorkerRow("far", "w1", "ada", "null", "[]", 4, 8)], 0)
    await store.write_task_logs([TaskLogRow(RunId("a"), 7, 2, 1, "step", 1, 2, b"[1,2]")])
    return home


async def contents(store: Store) -> dict[str, object]:
    rows = await store.search(RunFilter())
    messages = [delivered.message for delivered in await store.inbox(sorted({row.partition for row in rows}), 100)]
    for row in rows:
        row.partition = 0
    return {
        "runs": sorted(rows, key=lambda row: row.id),
        "logs": {row.id: await store.history(row.id) for row in rows},
        "letters": {row.id: [message for message in messages if message.to == row.id] for row in rows},
        "entries": await store.list_resources("Thing"),
        "editions": [await store.edition(ResourceKey("Thing", "ns", "one"), number) for number in (1, 2)],
        "memories": await store.memories(["k"]),
        "tokens": await store.tokens(),
        "session": await store.find_session(b"cookie"),
        "workers": await store.workers(),
        "hooks": await store.hooks(),
        "deliveries": await store.deliveries("h", None, None, 9),
        "backlogs": await store.backlogs(),
        "audit rows": await store.audit_rows(),
        "audit seals": await store.audit_seals(),
        "names": [await store.run_named("drill", "ns", name) for name in ("x", "y", "z")],
        "task logs": [(row.path, row.body) for row in await store.task_logs(RunId("a"))],
        "values": await store.values(RunId("a"), [digest(b"y" * 70_000)]),
    }


async def test_everything_arrives_as_it_was(way: tuple[Place, Place]) -> None:
    source, target = way
    before = await prepared(source)

    copied = copy_store(source.caretaker(), target.caretaker())

    assert copied.open_runs == 4
    assert copied.tally.counts == {
        "resources": 1,
        "editions": 2,
        "catalog version": 1,
        "limits": 2,  # one of them opens the scope of the entry
        "memories": 1,
        "tokens": 1,
        "sessions": 1,
        "audit rows": 3,
        "audit seals": 1,
        "request keys": 1,
        "hooks": 1,
        "hook deliveries": 1,
        "documents": 1,
        "runs": 5,
        "large values": 1,
        "log rows": 6,
        "stream rows": 2,
        "task logs": 1,
        "names": 2,
        "letters": 6,
        "permits": 2,
        "tasks": 1,
        "workers": 1,
    }
    moved = target.open()
    assert await contents(moved) == before
    assert before["names"] == ["a", "a", None]  # its own, and one that it keeps for its next child
    assert [row.id for row in await moved.search(RunFilter(labels={"z": "1"}))] == ["a"]
    (stored,) = await moved.load([RunId("a")])
    assert stored.snapshot is None, "a cache is not worth carrying"
    write = ResourceWrite(ResourceKey("Thing", "ns", "two"), "uid-2", 1, b"{}", b"", {}, None, 0)
    assert await moved.write_catalog([write]) is None
    assert (await moved.resources([write.key]))[write.key].version == 3, "versions are never given twice"
    homes = [await moved.claim()]
    await moved.move(None, homes[0])
    assert await moved.orphaned_partitions() == []
    assert await moved.runs_with_work(homes) == ["a.1"]
    assert await moved.due(homes, 400, 9) == ["late"]
    assert await moved.expire(100) == 1, "the worker's lease goes on, and ends"
    rows = {row.id: row.partition for row in await moved.search(RunFilter())}
    new = [created("new", homes[0]), Transition(RunId("a"), rows[RunId("a")], 4, row=b"third")]
    assert isinstance(await moved.commit(new), Committed)
    assert [seq for seq, _ in await moved.history(RunId("a"))] == [1, 3, 4]
    await moved.close()


async def test_what_a_copy_holds_is_told_by_its_digest(way: tuple[Place, Place], tmp_path: Path) -> None:
    source, target = way
    await prepared(source)
    first = copy_store(source.caretaker(), target.caretaker()).tally
    again = copy_store(target.caretaker(), caretaker(tmp_path / "third.db")).tally
    assert first.digest == again.digest

    connection = apsw.Connection(str(tmp_path / "third.db"))
    connection.execute("UPDATE inbox SET position = 1000 - position")
    connection.close()
    other = copy_store(caretaker(tmp_path / "third.db"), caretaker(tmp_path / "other.db")).tally
    assert other.differences(first) == ["letters"], "their order counts"


async def test_a_store_with_a_live_engine_is_not_copied(way: tuple[Place, Place]) -> None:
    source, target = way
    store = source.open()
    await fill(store)
    with pytest.raises(StoreInUse, match="live engine"):
        copy_store(source.caretaker(), target.caretaker())
    store.abandon()
    source.forget_dead_owners()

    assert copy_store(source.caretaker(), target.caretaker()).open_runs == 4


async def test_nobody_fills_a_store_that_somebody_works_on(way: tuple[Place, Place]) -> None:
    source, target = way
    await prepared(source)
    busy = target.open()
    await busy.claim()

    with pytest.raises(StoreInUse, match="live engine"):
        copy_store(source.caretaker(), target.caretaker())
    await busy.close()
    assert copy_store(source.caretaker(), target.caretaker()).open_runs == 4


async def test_what_is_not_empty_is_left_alone(way: tuple[Place, Place]) -> None:
    source, target = way
    with pytest.raises(StoreMissing):
        copy_store(source.caretaker(), target.caretaker())
    await prepared(source)
    full = target.open()
    await full.set_limit("door", 3)
    await full.close()

    with pytest.raises(StoreNotEmpty, match="limits"):
        copy_store(source.caretaker(), target.caretaker())


async def test_a_file_stands_still_while_it_is_copied(tmp_path: Path) -> None:
    await prepared(File(f"sqlite:///{tmp_path}/old.db"))
    with caretaker(tmp_path / "old.db").exclusive():
        other = SqliteStore(tmp_path / "old.db", lambda: NOW, must_exist=True, timeout=0.0)
        with pytest.raises(StoreLocked):
            await other.send(Message(RunId("late"), 1, b"x"))
        with pytest.raises(StoreLocked):
            await other.claim()

    assert await other.send(Message(RunId("late"), 1, b"x")) is not None
    await other.close()


async def test_a_database_stands_still_while_it_is_copied(postgres_server: Callable[[int], Server]) -> None:
    with ExitStack() as stack:
        source = place("18", "", Path(), postgres_server, stack)
        await prepared(source)
        other = source.open()
        with source.caretaker().exclusive():
            sending = asyncio.ensure_future(other.send(Message(RunId("late"), 1, b"x")))
            claiming = asyncio.ensure_future(other.claim())
            done, _ = await asyncio.wait([sending, claiming], timeout=0.3)
            assert not done
            assert await other.find(RunId("late")) is not None, "reading goes on"

        assert await sending is not None and await claiming
        await other.close()


class Breaking:
    """A target that breaks after so many batches, or that loses the last message of what it is given."""

    def __init__(self, inner: StoreAdmin, after: int | None) -> None:
        self._inner = inner
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def import_into(self) -> Iterator[Any]:
        with self._inner.import_into() as vessel:
            yield _Breaking(vessel, self._after)


class _Breaking:
    def __init__(self, inner: StoreImport, after: int | None) -> None:
        self.dump = inner.dump
        self.orphan_rows = inner.orphan_rows
        self.program = inner.program
        self.as_stored = inner.as_stored
        self._inner = inner
        self._left = after

    def import_batch(self, batch: Sequence[r.Record]) -> None:
        if self._left is None:
            batch = batch[:-1] if isinstance(batch[0], r.MessageRecord) else batch
        elif self._left == 0:
            raise KeyboardInterrupt
        else:
            self._left -= 1
        self._inner.import_batch(batch)


@pytest.mark.sampled(2)
async def test_a_copy_that_is_broken_off_anywhere_leaves_nothing_and_can_be_repeated(way: tuple[Place, Place]) -> None:
    source, target = way
    await prepared(source)
    broken = 0
    while True:
        try:
            copy_store(source.caretaker(), cast(StoreAdmin, Breaking(target.caretaker(), broken)))
            break
        except KeyboardInterrupt:
            broken += 1
        with target.caretaker().snapshot() as reading:
            assert [type(batch[0]) for batch in reading.dump()] == [r.CatalogVersionRecord]

    assert broken == len(r.KINDS)


@pytest.mark.parametrize("kind", ["sqlite", "18"])
async def test_texts_that_a_database_cannot_hold_are_carried_as_it_would_write_them(
    tmp_path: Path, postgres_server: Callable[[int], Server], kind: str
) -> None:
    source = File(f"sqlite:///{tmp_path}/old.db")
    store = source.open()
    odd = created("a", await store.claim(), labels={"odd\0": "\0x"}, name="with \0 in it", row=b"\0\xff")
    await store.commit([odd])
    await store.close()
    with ExitStack() as stack:
        target = place(kind, "new", tmp_path, postgres_server, stack)
        copy_store(source.caretaker(), target.caretaker())
        moved = target.open()
        (row,) = await moved.search(RunFilter())
        replaced = "\0" if kind == "sqlite" else "\N{REPLACEMENT CHARACTER}"
        assert (row.name, row.labels) == (f"with {replaced} in it", {f"odd{replaced}": f"{replaced}x"})
        assert await moved.history(RunId("a")) == [(1, b"\0\xff")], "bytes lose nothing"
        await moved.close()


async def test_a_difference_takes_everything_back(way: tuple[Place, Place]) -> None:
    source, target = way
    await prepared(source)
    with pytest.raises(CopyDiffers, match=r"letters \(5 of 6\)"):
        copy_store(source.caretaker(), cast(StoreAdmin, Breaking(target.caretaker(), None)))

    with target.caretaker().snapshot() as reading:
        assert [type(batch[0]) for batch in reading.dump()] == [r.CatalogVersionRecord]


@pytest.mark.sampled(2)
async def test_memory_does_not_grow_with_the_store(way: tuple[Place, Place]) -> None:
    source, target = way
    store = source.open()
    home = await store.claim()
    for n in range(0, 600, 100):
        rows = [created(f"run-{n + k}", home, row=b"%7d" % (n + k) * 10_000) for k in range(100)]
        await store.commit(rows)
    await store.close()
    tracemalloc.start()
    copied = copy_store(source.caretaker(), target.caretaker())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert copied.tally.bytes > 40_000_000
    assert peak < 5 * r.MOST_BYTES


NOT_CARRIED = {
    "schema",  # every store has its own,
    "clock",  # its own clock
    "servers",  # its own owners
    "partitions",
    "partition_numbers",
    "snapshots",  # and its own cache
    "run_labels",  # which triggers fill
    "run_counts",
    "run_count_sums",
    "run_count_changes",
    "feed",  # its own feed, which begins anew
    "feed_state",
}
GIVEN_ANEW = {
    "log.position",
    "large_values.id",
    "task_logs.position",
    "inbox.position",
    "programs.unused_since",
}


def test_no_table_and_no_column_is_forgotten_on_sqlite(tmp_path: Path) -> None:
    """Whoever adds one says in `records` how it is carried, or here why it is not."""
    SqliteStore(tmp_path / "a.db", lambda: NOW).abandon()
    connection = apsw.Connection(str(tmp_path / "a.db"))
    there = {
        f"{table}.{column}"
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")
        if table not in NOT_CARRIED
    }
    connection.close()
    carried = {"catalog_version.last"}
    for statement, _ in sqlite_pouring._STATEMENTS.values():
        match = re.match(r"INSERT INTO (\w+) \((.*?)\)", statement)
        carried |= {f"{match[1]}.{column}" for column in match[2].split(", ")} if match else set()

    assert there - carried <= GIVEN_ANEW
    assert carried <= there


def test_no_table_and_no_column_is_forgotten_on_postgresql(postgres_server: Callable[[int], Server]) -> None:
    with ExitStack() as stack:
        where = place("18", "", Path(), postgres_server, stack)
        where.caretaker().migrate()
        with psycopg.connect(where.address) as connection:
            rows = connection.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'perdure'"
            ).fetchall()
    there = {f"{table}.{column}" for table, column in rows if table not in NOT_CARRIED}
    carried = {f"{table}.{column}" for table, columns, _ in postgres_pouring._TABLES.values() for column in columns}

    assert there - carried <= GIVEN_ANEW
    assert carried <= there


def test_batches_are_bounded_by_number_and_by_size() -> None:
    small = [r.LimitRecord(f"s{n}", n) for n in range(2_500)]
    assert [len(batch) for batch in r.batches(small)] == [1_000, 1_000, 500]
    large = [r.LogRecord(RunId("a"), n, bytes(3 << 20)) for n in range(3)]
    assert [len(batch) for batch in r.batches(large)] == [2, 1]
