"""The figures and the state of a store, and how its schema is upgraded while other processes use it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from perdure.engine.store_validation import StoreValidator
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import Committed, RunSummary, Transition
from perdure.stores.errors import StoreMissing
from perdure.stores.postgres import admin, database
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.transitions import created
from perdure.wiring import languages
from tests.postgres import Server
from tests.stores.places import NOW, Place, place
from tests.stores.test_copying import fill


@pytest.fixture(params=["sqlite", "15", "18"])
def somewhere(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Callable[[int], Server]
) -> Iterator[Place]:
    with ExitStack() as stack:
        yield place(request.param, "store", tmp_path, postgres_server, stack)


async def test_figures_tell_how_it_stands(somewhere: Place) -> None:
    store = somewhere.open()
    await fill(store)
    figures = somewhere.caretaker().statistics()

    assert figures.schema.version == figures.schema.newest and not figures.schema.missing
    runs = figures.runs
    assert (runs.total, runs.open, runs.ended, runs.at_work, runs.parked, runs.stuck) == (5, 4, 1, 1, 1, 1)
    assert (runs.overdue, runs.unowned) == (1, 0)
    assert runs.by_status == {"running": 1, "succeeded": 1, "waiting": 3}
    assert (figures.messages, figures.oldest_message) == (6, 46)
    assert (figures.permits_held, figures.permits_waiting) == (1, 1)
    assert (figures.tasks_ready, figures.tasks_leased, figures.resources) == (0, 1, 1)
    (owner,) = figures.owners
    assert owner.is_live and len(owner.partitions) == 1 and owner.epoch == 1
    assert {table.name for table in figures.tables} >= {"runs", "log", "inbox", "resources"}
    assert 0 < figures.bytes < 10_000_000
    without = somewhere.caretaker().statistics(with_tables=False)
    assert (without.runs, without.bytes > 0) == (figures.runs, True)
    await store.close()

    after = somewhere.caretaker().statistics()
    assert after.owners == [] and after.runs.unowned == 4


async def test_a_look_at_what_is_not_there_makes_nothing(somewhere: Place) -> None:
    caretaker = somewhere.caretaker()
    assert caretaker.schema().version == 0
    with pytest.raises(StoreMissing):
        caretaker.statistics()
    with pytest.raises(StoreMissing), caretaker.snapshot():
        pass
    assert caretaker.schema().version == 0

    caretaker.migrate()
    caretaker.migrate()
    assert caretaker.schema().missing == []


async def test_engines_go_on_while_the_schema_is_brought_up_to_date(
    postgres_server: Callable[[int], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 24 on PostgreSQL: the old program beside the new schema, begun before the migration and after it."""
    names, scripts = database.migration_names(), database.migrations()
    with ExitStack() as stack:
        where = place("18", "", Path(), postgres_server, stack)
        old = where.open()
        home = await old.claim()
        assert isinstance(await old.commit([created("a", home)]), Committed)
        for module in (database, admin):
            monkeypatch.setattr(module, "migration_names", lambda: [*names, "9999_more.sql"])
        more = (1, "-- compatible: 1\nCREATE TABLE more (id integer PRIMARY KEY);")
        monkeypatch.setattr(database, "migrations", lambda: [*scripts, more])
        assert where.caretaker().schema().missing == ["9999_more.sql"]

        where.caretaker().migrate()

        assert where.caretaker().schema().version == len(names) + 1
        assert isinstance(await old.commit([Transition(RunId("a"), home, 2, row=b"second")]), Committed)
        monkeypatch.undo()
        late = where.open()
        assert [seq for seq, _ in await late.history(RunId("a"))] == [1, 2]
        await late.close()
        await old.close()


async def test_damage_in_a_database_is_told_of(postgres_server: Callable[[int], Server]) -> None:
    with ExitStack() as stack:
        where = place("18", "", Path(), postgres_server, stack)
        store = PostgresStore(where.address, lambda: NOW)
        home = await store.claim()
        over = RunSummary(Status.SUCCEEDED, False, None, 10)
        assert isinstance(await store.commit([created("a", home, over, row=b"\x90")]), Committed)
        await store.close()
        with psycopg.connect(where.address) as connection:
            connection.execute("INSERT INTO perdure.permits VALUES ('s', 'a', 1, 1, 1, 1, true, 0)")
            connection.execute("INSERT INTO perdure.tasks VALUES ('b', 1, 1, 'p', 'q', 'ready', false, NULL, NULL, '')")
            connection.execute("INSERT INTO perdure.log VALUES (77, 1, '')")
            connection.execute("INSERT INTO perdure.inbox VALUES (1, 1, 'c', 1, '\\x9206a161')")
        with where.caretaker().snapshot() as reading:
            findings = {(finding.what, finding.run) for finding in StoreValidator(reading, languages()).findings()}

        assert findings >= {("permits", "a"), ("tasks", "b"), ("log rows", None), ("letters", "c"), ("runs", "a")}
