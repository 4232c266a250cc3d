"""What is particular to the PostgreSQL store: what a commit costs, how its clock is kept, how it takes odd things."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.kernel.documents.lookups import CachedValue
from perdure.kernel.json_values.values import SECOND, RunId, digest
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import (
    Committed,
    CommitUnknown,
    Message,
    RequestedPermit,
    RunSummary,
    TaskOffer,
    Transition,
)
from perdure.stores.errors import StoreFull
from perdure.stores.postgres import batch_writer
from perdure.stores.postgres.database import parameters_of
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import RunFilter
from perdure.stores.store_urls import shell_quoted, without_password
from perdure.testing.transitions import PROGRAM, created
from tests.postgres import Server

A, B = RunId("a"), RunId("b")
ENDED = RunSummary(Status.SUCCEEDED, False, None, 10)


@pytest.fixture(scope="module")
def database(postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(18).database() as address:
        parameters = conninfo_to_dict(address)
        yield f"postgresql://postgres@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


@pytest.fixture
def url(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS perdure CASCADE")
    return database


def query(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(text, values)
        return done.fetchall() if done.description else []


async def commit(store: PostgresStore, *batch: Transition) -> Committed:
    answer = await store.commit(batch)
    assert isinstance(answer, Committed), answer
    return answer


# What a commit costs (invariant 25).


class Meter:
    """Round trips of the writing connection, and rows written to the database, since the last look."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url, self._store = url, store
        self.trips()

    def trips(self) -> int:
        session = self._store._write_thread.session
        assert session is not None
        now, self._before = session.round_trips, getattr(self, "_before", 0)
        spent, self._before = now - self._before, now
        return spent


LARGE = digest(b"large")

ONE_TRIP = {
    "a step": lambda home: [Transition(A, home, 9, row=b"x")],
    "two steps": lambda home: [Transition(A, home, 9, row=b"x"), Transition(B, home, 9, row=b"y")],
    "a step with a snapshot": lambda home: [Transition(A, home, 9, row=b"x", snapshot=b"s")],
    "a message consumed": lambda home: [Transition(A, home, 9, row=b"x", consumes=[1, 2])],
    "a run parked": lambda home: [Transition(A, home, 9, row=b"x", summary=RunSummary(Status.WAITING, False, 5))],
    "a run ended": lambda home: [Transition(A, home, 9, row=b"x", summary=ENDED, ended=True)],
    "messages sent": lambda home: [
        Transition(A, home, 9, row=b"x", messages=[Message(B, 1, b"x"), Message(A, 1, b"x")])
    ],
    "a run created": lambda home: [created("c", home)],
    "a child created": lambda home: [created("a.1", home, parent=A, consumes=[1], borrowed_values=[(A, LARGE)])],
    "large values": lambda home: [Transition(A, home, 9, row=b"x", values=[(LARGE, b"large")])],
    "tasks offered": lambda home: [Transition(A, home, 9, row=b"x", offers=[TaskOffer(1, 1, "p", "q", b"x")])],
    "tasks withdrawn": lambda home: [Transition(A, home, 9, row=b"x", withdrawn=[1])],
    "something remembered": lambda home: [Transition(A, home, 9, row=b"x", memories=[("k", CachedValue(b"1", 1))])],
}


@pytest.mark.parametrize("what", ONE_TRIP)
async def test_what_is_common_is_one_round_trip_and_one_transaction(what: str, url: str) -> None:
    """Invariant 25."""
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    await commit(store, created("a", home), created("b", home))
    meter = Meter(url, store)
    await commit(store, *ONE_TRIP[what](home))

    assert meter.trips() == 1
    await store.close()


async def test_a_step_writes_one_row(url: str) -> None:
    """Invariant 25: and nothing but the log grows."""
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    await commit(store, created("a", home))
    before = rows_written(url, store)
    for seq in range(2, 12):
        await commit(store, Transition(A, home, seq, row=b"x"))
    after = rows_written(url, store)

    assert {table: after[table] - before[table] for table in after if after[table] != before[table]} == {"log": 10}
    await store.close()


def rows_written(url: str, store: PostgresStore) -> dict[str, int]:
    """Inserted, changed or deleted so far, by table; leases are renewed by the clock, not by steps."""
    session = store._write_thread.session
    assert session is not None
    session.execute("SELECT pg_stat_force_next_flush()")
    session.execute("SELECT 1")
    return dict(
        query(
            url,
            "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE relname <> 'servers'",
        )
    )


TRIPS: dict[str, tuple[int, Callable[[int], list[Transition]]]] = {
    "asked, and granted": (3, lambda home: [Transition(A, home, 9, row=b"x", permits_asked=[ask("free")])]),
    "asked, no place": (3, lambda home: [Transition(A, home, 9, row=b"x", permits_asked=[ask("full")])]),
    "asked, no limit": (2, lambda home: [Transition(A, home, 9, row=b"x", permits_asked=[ask("any", None)])]),
    "given back": (3, lambda home: [Transition(B, home, 9, row=b"x", permits_released=[1])]),
    "given back at the end": (4, lambda home: [Transition(B, home, 9, row=b"x", summary=ENDED, ended=True)]),
    "asked at birth": (4, lambda home: [created("c", home, permits_asked=[ask("free")])]),
    "asked by many": (
        3,
        lambda home: [
            Transition(A, home, 9, row=b"x", permits_asked=[ask("free", permit=7), ask("full", permit=8)]),
            Transition(B, home, 9, row=b"x", permits_asked=[ask("free", permit=9)]),
        ],
    ),
    "stuck": (2, lambda home: [Transition(A, home, 9, stuck="why")]),
    "recalled": (2, lambda home: [Transition(A, home, 9, row=b"x", recalled=[1])]),
}


def ask(scope: str, limit: int | None = 2, permit: int = 5) -> RequestedPermit:
    return RequestedPermit(scope, permit, 0, limit, 1)


@pytest.mark.parametrize("what", TRIPS)
async def test_what_must_look_before_it_writes_is_a_few_round_trips_however_much_it_is(what: str, url: str) -> None:
    """Invariant 25: the lock of a scope is held for two of them. What ends with permits is found out by a trip more."""
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    held = [RequestedPermit("full", permit, 0, 2, 1) for permit in (1, 2)]
    await commit(store, created("a", home), created("b", home))
    await commit(store, Transition(B, home, 2, row=b"x", permits_asked=held))
    meter = Meter(url, store)
    most, batch = TRIPS[what]
    await commit(store, *batch(home))

    assert meter.trips() == most
    assert store._write_thread.session is not None and store._write_thread.session.execute("SELECT 1") == [("1",)]
    await store.close()


async def test_permits_cost_the_same_round_trips_however_many_ask(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    runs = [f"r{number}" for number in range(50)]
    await commit(store, *[created(run, home) for run in runs])
    asks = [RequestedPermit(f"scope{number}", number, 0, 10, 1) for number in range(1, 4)]
    meter = Meter(url, store)
    for turn in range(3):  # what is met a second time is prepared, in the same trip
        await commit(store, *[Transition(RunId(run), home, 2, row=b"x", permits_asked=asks) for run in runs[turn::3]])
        assert meter.trips() == 3
    granted = query(url, "SELECT scope, count(*) FROM perdure.permits WHERE granted GROUP BY scope ORDER BY scope")

    assert granted == [("scope1", 10), ("scope2", 10), ("scope3", 10)]
    await store.close()


async def test_an_error_in_the_middle_of_a_trip_leaves_a_session_that_works(url: str) -> None:
    """Nothing behind it was done, and what was to be prepared is prepared the next time."""
    from perdure.stores.postgres.session import BEGIN, COMMIT
    from perdure.stores.postgres.wire import INT, Statement

    store = PostgresStore(url, lambda: 1)
    session = store._write_thread.session
    assert session is not None
    good, bad = Statement("SELECT {}", INT), Statement("SELECT 1 / {}", INT)
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero):
            session.run_all([(BEGIN, ()), (bad, (0,)), (good, (1,))])
        session.roll_back()
        assert session.run_all([(BEGIN, ()), (good, (7,)), (bad, (1,)), (COMMIT, ())])[1:3] == [[(7,)], [(1,)]]
    await store.close()


# Odd things.


async def test_a_very_large_batch_is_one_transaction_of_several_statements(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "MOST_BYTES", 10_000)
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    batch = [created(f"r{number}", home, row=b"x" * 4_000) for number in range(20)]
    answer = await commit(store, created("r3", home), *batch)

    assert answer.refused == set() or answer.refused == {"r3"}
    assert len(await store.search(RunFilter())) == 20
    assert all(len(stored.rows) == 1 for stored in await store.load([change.run for change in batch]))
    await store.close()


async def test_a_run_may_borrow_from_one_of_the_same_batch(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    await commit(
        store,
        created("a", home, values=[(LARGE, b"large")]),
        created("b", home, borrowed_values=[(A, LARGE)]),
        created("c", home, borrowed_values=[(B, None)]),
    )

    assert await store.values(RunId("c"), [LARGE]) == {LARGE: b"large"}
    await store.close()


async def test_what_a_refused_run_wanted_is_not_written(url: str) -> None:
    """Two servers race on one token: the second finds the first, and leaves no trace."""
    first_store, second_store = PostgresStore(url, lambda: 1), PostgresStore(url, lambda: 1)
    first, second = await first_store.claim(), await second_store.claim()
    await commit(first_store, created("a", first, offers=[TaskOffer(1, 1, "p", "q", b"x")]))
    answer = await commit(
        second_store,
        created(
            "a",
            second,
            ENDED,
            row=b"impostor",
            snapshot=b"impostor",
            values=[(LARGE, b"large")],
            messages=[Message(B, 1, b"x")],
            offers=[TaskOffer(1, 2, "p", "q", b"y")],
            memories=[("k", CachedValue(b"1", 1))],
            permits_asked=[RequestedPermit("scope", 1, 0, 1, 1)],
            ended=True,
        ),
        created("other", second),
    )

    assert answer.refused == {"a"}
    assert await second_store.history(A) == [(1, b"first")]
    assert query(url, "SELECT run, seq FROM perdure.snapshots") == []
    assert query(url, "SELECT run FROM perdure.large_values UNION SELECT permit FROM perdure.permits") == []
    assert query(url, "SELECT delivery FROM perdure.tasks") == [(1,)]
    assert await second_store.memories(["k"]) == {}
    assert await second_store.inbox([first, second], 10) == []
    assert await second_store.find(RunId("other")) is not None
    await first_store.close()
    await second_store.close()


async def test_two_servers_that_race_on_one_token_make_one_run(url: str) -> None:
    stores = [PostgresStore(url, lambda: 1) for _ in range(2)]
    homes = [await store.claim() for store in stores]
    for number in range(20):
        names = [f"x{number}", f"y{number}", f"z{number}"]
        batches = [names, names[::-1]]  # in opposite order: they do not wait for each other crosswise
        answers = await asyncio.gather(
            *[
                commit(store, *[created(name, home) for name in batch])
                for store, home, batch in zip(stores, homes, batches, strict=True)
            ]
        )
        assert sorted(answers[0].refused | answers[1].refused) == sorted(names)
        assert not answers[0].refused & answers[1].refused
    for store in stores:
        await store.close()


async def test_text_that_postgresql_cannot_hold_is_no_trouble(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    odd = "nul \0, half of a pair \ud800, 🙂"
    await commit(
        store,
        created("a", home, name=odd, labels={odd: odd}, memories=[("k\0", CachedValue(b"\0", 1))]),
        created("b", home, permits_asked=[RequestedPermit(odd, 1, 0, 1, 1)]),
    )
    await commit(store, Transition(A, home, 2, row=b"\0", stuck=odd))
    row = await store.find(A)

    assert row is not None and "🙂" in row.name and "🙂" in (row.stuck or "")
    assert [row.id for row in await store.search(RunFilter(labels={odd: odd}))] == ["a"]
    assert await store.memories(["k\0"]) == {"k\0": CachedValue(b"\0", 1)}
    assert (await store.line(odd, A)).held == 1
    await store.close()


async def test_a_message_that_was_sent_while_its_run_was_moved_follows_it(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    home, before = await store.claim(), await store.claim()
    await commit(store, created("a", home))
    query(url, "INSERT INTO perdure.inbox VALUES (%s, 77, 'a', 5, 'x')", before)
    assert await store.inbox([home, before], 10) == []

    assert [delivered.partition for delivered in await store.inbox([home, before], 10)] == [home]
    await store.close()


async def test_children_of_shared_runs_are_spread_and_those_of_private_ones_are_not(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    private = await store.claim()
    shared = (await store.share()).taken
    messages = [Message(RunId(f"a.{number}"), 1, b"start") for number in range(200)]
    await commit(store, created("a", shared[0], messages=messages))
    spread = {delivered.partition for delivered in await store.inbox(shared, 1_000)}
    await commit(store, created("b", private, messages=[Message(RunId("b.1"), 1, b"start")]))

    assert len(spread) > 50
    assert [delivered.message.to for delivered in await store.inbox([private], 10)] == ["b.1"]
    await store.close()


async def test_a_document_goes_long_after_the_last_run_that_names_it(url: str) -> None:
    now = 10_000 * SECOND
    store = PostgresStore(url, lambda: now)
    home = await store.claim()
    await commit(store, created("a", home, ENDED))

    async def prune() -> None:
        while await store.prune(1_000, 10):
            pass

    await prune()
    assert await store.program(PROGRAM) is not None, "a writer may know it still"
    now += 7_200 * SECOND
    query(url, "INSERT INTO perdure.inbox VALUES (1, 1, 'b', 0, 'x')")
    await prune()
    assert await store.program(PROGRAM) is not None, "a message may name it"
    query(url, "DELETE FROM perdure.inbox")
    await prune()
    assert await store.program(PROGRAM) is None
    await store.close()


async def test_a_document_that_is_named_again_in_time_stays(url: str) -> None:
    now = 10_000 * SECOND
    store, other = PostgresStore(url, lambda: now), PostgresStore(url, lambda: now)
    home, second = await store.claim(), await other.claim()
    await commit(store, created("a", home, ENDED))
    while await store.prune(1_000, 10):
        pass
    await commit(other, created("b", second))
    now += 7_200 * SECOND
    await store.prune(1_000, 10)

    assert await store.program(PROGRAM) is not None
    assert query(url, "SELECT unused_since FROM perdure.programs") == [(None,)]
    await store.close()
    await other.close()


async def test_a_full_disk_is_said_so(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    home = await store.claim()
    await commit(store, created("a", home))
    query(
        url,
        """CREATE FUNCTION perdure.no_room() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END$$""",
    )
    query(url, "CREATE TRIGGER no_room BEFORE INSERT ON perdure.log EXECUTE FUNCTION perdure.no_room()")
    answer = await store.commit([Transition(A, home, 2, row=b"x")])

    assert isinstance(answer, CommitUnknown) and isinstance(answer.error, StoreFull)
    await store.reopen()
    assert await store.history(A) == [(1, b"first")]
    await store.close()


async def test_sessions_are_durable_and_named(url: str) -> None:
    store = PostgresStore(url, lambda: 1)
    session = store._write_thread.session
    assert session is not None
    settings = ("synchronous_commit", "search_path", "idle_in_transaction_session_timeout", "application_name")
    answers = [session.execute(f"SHOW {name}")[0][0] for name in settings]

    assert answers[:3] == ["on", "perdure", "10s"]
    assert answers[3].startswith("perdure-") and answers[3].endswith(" writer")
    await store.close()


async def test_every_claim_goes_by_an_index_that_gives_its_order(url: str) -> None:
    """With an index that does not match the ORDER BY exactly, a claim among many is a hundred times slower."""
    from perdure.stores.postgres import permits, reads, task_leases

    store = PostgresStore(url, lambda: 1)
    session = store._write_thread.session
    assert session is not None
    claims = {
        task_leases._OF_ANY: (("pool", None, None, None, None, 1), 0),
        task_leases._OF_SOME: ((["http"], "pool", None, None, None, None, 1), 0),
        permits._FOREMOST: ((["scope"], 1), 1),  # where waiting counts, the order is a matter of the moment
        reads._INBOX: (([1], 1, 1), 1),  # what comes from several partitions is put in order in the end
        reads._DUE: (([1], 1, 1, 1), 1),
    }
    for statement, (values, sorts) in claims.items():
        text = statement.sql.decode()
        for place, value in reversed(list(enumerate(values, start=1))):
            literal = "NULL" if value is None else f"'{{{value[0]}}}'" if isinstance(value, list) else f"'{value}'"
            text = text.replace(f"${place}", literal)
        plan = "\n".join(line for (line,) in session.execute(f"EXPLAIN {text}"))
        assert "Seq Scan" not in plan, plan
        assert len(re.findall(r"Sort  \(", plan)) == sorts, plan
    await store.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@h:1/db", "postgresql://me:***@h:1/db"),
        ("postgresql://me:s:e@h/db?sslmode=require", "postgresql://me:***@h/db?sslmode=require"),
        ("postgres://h/db?user=me&password=s3cret", "postgres://h/db?user=me&password=***"),
        ("postgresql://me@h/db", "postgresql://me@h/db"),
    ],
)
def test_addresses_are_shown_without_their_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "connect_timeout=10" in parameters_of(url)


@pytest.mark.parametrize(
    ("url", "typed"),
    [
        ("postgresql://me:s3cret@h:1/db", "postgresql://me@h:1/db"),
        ("postgres://h/db?password=s3cret", "postgres://h/db"),
        ("postgres://h/db?password=s3cret&user=me", "postgres://h/db?user=me"),
        ("sqlite:///runs:1@2.db", "sqlite:///runs:1@2.db"),
    ],
)
def test_commands_to_be_typed_hold_no_password(url: str, typed: str) -> None:
    assert shell_quoted(url) == typed


def test_what_an_address_says_counts_more_than_our_defaults() -> None:
    assert "connect_timeout=3" in parameters_of("postgresql://h/db?connect_timeout=3")


# The change feed.


async def test_commits_that_interleave_leave_no_gap_in_the_feed(url: str) -> None:
    """SRV-071: no change ever appears at or below a position that a reader has passed, whoever commits when."""
    store, other = PostgresStore(url, lambda: 1), PostgresStore(url, lambda: 1)
    begun = (await store.open_feed(10)).last
    query = (
        "INSERT INTO perdure.feed (at, kind, namespace, name, number, is_removed) VALUES (1, 'run', '', %s, 1, false)"
    )
    with psycopg.connect(url) as first, psycopg.connect(url) as second, psycopg.connect(url) as third:
        for connection, name in ((first, "early"), (second, "late"), (third, "never")):
            connection.execute(query, (name,))
        second.commit()
        (seen,) = (await store.read_feed(begun, 10)).changes
        assert (seen.name, seen.position) == ("late", begun + 1)
        third.rollback()
        first.commit()
        both = await asyncio.gather(store.read_feed(seen.position, 10), other.read_feed(seen.position, 10))

    for page in both:
        assert [(change.name, change.position) for change in page.changes] == [("early", begun + 2)]
    await store.close()
    await other.close()


async def test_a_commit_under_way_while_the_feed_is_opened_ends_first(url: str) -> None:
    """SRV-071: every change that is committed after the feed was opened is in it."""
    store = PostgresStore(url, lambda: 1)
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE perdure.runs IN ROW EXCLUSIVE MODE")  # as a commit does
        opening = asyncio.ensure_future(store.open_feed(10))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareLock'"
        async with asyncio.timeout(60):
            while not query(url, waiting)[0][0]:
                await asyncio.sleep(0.01)
        assert not opening.done()
    assert (await opening).floor > 0
    await store.close()
