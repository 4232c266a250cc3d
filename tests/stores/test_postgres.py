"""The PostgreSQL store passes the suite of all stores on the oldest and the newest server we support."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.kernel.tasks.crash_attribution import LossKind
from perdure.stores import clocks
from perdure.stores.commit_types import Committed, TaskOffer
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.postgres.database import PLAIN
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Store
from perdure.testing.store_suite import StoreSuite
from perdure.testing.transitions import created
from tests.postgres import VERSIONS, Server


def as_url(conninfo: str) -> str:
    parameters = conninfo_to_dict(conninfo)
    return f"postgresql://{parameters['user']}@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


@pytest.fixture(params=VERSIONS, scope="module")
def database(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Iterator[str]:
    """One database of each version for all tests here: making one takes longer than most of them."""
    with postgres_server(request.param).database() as address:
        PostgresStore(as_url(address), lambda: 1).abandon()  # makes the tables
        yield as_url(address)


@pytest.fixture
def url(database: str) -> str:
    """The address of a store in which nothing is."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'perdure'"
            " AND tablename NOT IN ('schema', 'partitions', 'feed_state')"
        ).fetchall()
        connection.execute("; ".join(f"DELETE FROM perdure.{table}" for (table,) in tables))
        connection.execute("DELETE FROM perdure.run_count_changes")  # which the deletion of runs has written
        connection.execute("DELETE FROM perdure.run_count_sums")
        connection.execute("DELETE FROM perdure.partitions WHERE NOT is_shared")
        connection.execute("UPDATE perdure.feed_state SET until = 0")
    return database


class TestPostgresStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _address(self, url: str) -> None:
        self.url = url

    def open(self, folder: Path) -> Store:
        return PostgresStore(self.url, lambda: self.now)

    async def take_over(self, late: Store, successor: Store) -> int:
        assert isinstance(late, PostgresStore)
        self.expire(late)
        home = await successor.claim()
        await successor.move(None, home)
        return home

    async def die(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        store.abandon()
        self.expire(store)

    def expire(self, store: PostgresStore) -> None:
        """Let its lease run out, as the database sees it; it does not know."""
        store._lease_of_us.end()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("UPDATE perdure.servers SET until = 0 WHERE id = %s", (store._lease_of_us.server,))


@pytest.mark.sampled(2)
class TestPlainPsycopg(TestPostgresStore):
    """The same with psycopg's own cursors (decision 22)."""

    @pytest.fixture(autouse=True)
    def _plain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(PLAIN, "1")


async def test_a_machine_that_came_back_with_another_boot_was_restarted(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 27: by what servers say of their machines; one that no server lives on any more may have restarted."""
    other = PostgresStore(as_url(postgres_url))
    monkeypatch.setattr(clocks, "machine", lambda: "boot-1 host-a")
    await other.share()
    await other.give_up(range(1, 65))
    monkeypatch.setattr(clocks, "machine", lambda: "boot-2 host-b")
    ours = PostgresStore(as_url(postgres_url))
    await ours.share()

    losses = [
        (ours.loss_on("boot-1 host-a"), LossKind.PROCESS),
        (ours.loss_on("boot-2 in-a-container"), LossKind.PROCESS),
        (ours.loss_on(""), LossKind.PROCESS),
        (ours.loss_on("boot-0 host-a"), LossKind.STOPPED),
        (ours.loss_on("boot-0 host-b"), LossKind.STOPPED),
        (ours.loss_on("boot-0 host-c"), LossKind.UNSEEN),
    ]
    assert [loss for loss, _ in losses] == [expected for _, expected in losses]
    await ours.close()
    await other.close()


async def test_two_servers_that_are_asked_for_tasks_under_one_key_give_the_same(postgres_url: str) -> None:
    """SRV-033: also if the request comes again while its first answer is under way."""
    ours, other = PostgresStore(as_url(postgres_url), lambda: 1), PostgresStore(as_url(postgres_url), lambda: 1)
    offers = [TaskOffer(number, 1, "gpu", "render", b"body") for number in range(1, 5)]
    assert isinstance(await ours.commit([created("a", await ours.claim(), offers=offers)]), Committed)
    request = LeaseRequest(["gpu"], "w1", 2, 2_000, key="k", content=b"two")
    with psycopg.connect(as_url(postgres_url), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 8420))", (request.names[0],))
        leasing = [asyncio.ensure_future(store.lease(request)) for store in (ours, other)]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while connection.execute(waiting).fetchone() != (2,):
            assert not any(lease.done() for lease in leasing), "they do not wait for each other"
            await asyncio.sleep(0.005)
        connection.execute("SELECT pg_advisory_unlock_all()")
        first, second = [await lease for lease in leasing]
    assert [row.task for row in first] == [1, 2] and first == second
    await ours.close()
    await other.close()
