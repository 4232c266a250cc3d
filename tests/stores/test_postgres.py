"""The PostgreSQL store passes the suite of all stores on the oldest and the newest server we support."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Store
from perdure.testing.store_suite import StoreSuite
from tests.postgres import VERSIONS, Server


def as_url(conninfo: str) -> str:
    given = conninfo_to_dict(conninfo)
    return f"postgresql://{given['user']}@{given['host']}:{given['port']}/{given['dbname']}"


@pytest.fixture(params=VERSIONS, scope="module")
def server(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Server:
    return postgres_server(request.param)


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with server.database() as address:
        yield as_url(address)


class TestPostgresStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _address(self, url: str) -> None:
        self.url = url

    def open(self, folder: Path) -> Store:
        return PostgresStore(self.url, lambda: self.now)

    async def take_over(self, late: Store, successor: Store, partition: int) -> None:
        assert isinstance(late, PostgresStore)
        self.expire(late)
        assert await successor.adopt(partition)

    async def die(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        store.abandon()
        self.expire(store)

    def expire(self, store: PostgresStore) -> None:
        """Let its lease run out, as the database sees it; it does not know."""
        store._lease_of_us.end()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("UPDATE perdure.servers SET until = 0 WHERE id = %s", (store._lease_of_us.server,))
