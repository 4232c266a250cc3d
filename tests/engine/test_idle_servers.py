"""What an idle server asks of PostgreSQL, and that it hears at once of whatever concerns it.

Nothing here waits for a look that comes from time to time: those are half a minute apart, or turned off.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.engine.settings import Settings
from perdure.kernel import inputs as i
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values.values import RunId
from perdure.services.background import BackgroundService
from perdure.stores.commit_types import Message
from perdure.stores.postgres.database import PostgresSettings
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import ResourceWrite
from perdure.testing.transitions import created
from perdure.wiring import Engine
from tests.engine.servers import until
from tests.postgres import VERSIONS, Server

NEVER = 3_600.0
WAITS = {"drill": 1, "steps": [{"signal": "go", "save": "x"}, {"return": "$x"}]}


@pytest.fixture(params=VERSIONS)
def url(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(request.param).database() as address:
        parameters = conninfo_to_dict(address)
        yield f"postgresql://postgres@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


def opened(url: str, **settings: Any) -> PostgresStore:
    return PostgresStore(url, lambda: 1_000, settings=PostgresSettings(**settings))


@asynccontextmanager
async def serving(url: str, poll: float = 0.08, **settings: Any) -> AsyncIterator[Engine]:
    engine = Engine(opened(url, **settings), settings=Settings(serves=True, poll=poll))
    await engine.__aenter__()
    service = asyncio.ensure_future(BackgroundService(engine).run())
    try:
        yield engine
    finally:
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)
        await engine.__aexit__(None, None, None)


async def test_an_idle_server_makes_less_than_one_transaction_a_second(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 25: at the default lease, over the time of three renewals. Counted are round trips."""
    trips = 0
    receive = Session.receive

    def counted(session: Session, until: float | None = None) -> Any:
        nonlocal trips
        trips += 1
        return receive(session, until)

    async with serving(url) as engine:
        assert isinstance(engine.store, PostgresStore)
        lease, settings = engine.store._lease_of_us, PostgresSettings()
        joined = lease._until
        await until(lambda: lease._until >= joined + settings.lease / 3)  # what it does when it joins is done
        monkeypatch.setattr(Session, "receive", counted)
        begun = lease._until
        await until(lambda: lease._until >= begun + 3 * settings.lease / 3)
        made = trips

    assert 3 <= made < 3 * settings.lease / 3


async def test_a_signal_wakes_an_idle_server_by_a_hint(url: str) -> None:
    """Invariant 25: it does not wait for any look."""
    async with serving(url, poll=NEVER) as engine:
        run = await engine.start(WAITS)
        sender = opened(url)
        body = i.encode(i.Signal("go", b"1", "key"))
        assert await sender.send(Message(run.id, 2_000, body)) is not None

        assert await asyncio.wait_for(run.result(), 60) == 1
        await sender.close()


async def test_a_letter_of_which_nobody_told_is_found_with_the_next_renewal(url: str) -> None:
    """Invariant 7: whoever sent it died before it could tell."""
    async with serving(url, poll=NEVER, lease=1.0) as engine:
        run = await engine.start(WAITS)
        row = await engine.find(run.id)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO perdure.inbox VALUES (%s, nextval('perdure.inbox_positions'), %s, 2000, %s)",
                (row.partition, run.id, i.encode(i.Signal("go", b"2", "key"))),
            )

        assert await asyncio.wait_for(run.result(), 60) == 2


async def test_a_server_that_falls_silent_is_taken_over_when_its_lease_ends(url: str) -> None:
    """Invariant 21: nobody looks around for it; a renewal has told when that will be."""
    other = opened(url, lease=1.0)
    await other.share()
    async with serving(url, lease=1.0) as engine:
        surplus = (await other.share()).surplus
        await other.give_up(range(1, surplus + 1))
        await until(lambda: len(engine.runtime.partitions) == 32)
        other.abandon()

        await until(lambda: len(engine.runtime.partitions) == 64)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM perdure.servers").fetchall() == [(1,)]


async def test_what_a_private_process_left_behind_is_taken_up_at_once(url: str) -> None:
    async with serving(url) as engine:
        private = opened(url)
        home = await private.claim()
        await private.commit([created("left", home)])
        await private.close()

        async def partition() -> int:
            row = await engine.store.find(RunId("left"))
            return 0 if row is None else row.partition

        async with asyncio.timeout(60):
            while await partition() > 64:
                await asyncio.sleep(0.01)
        assert await partition() in engine.runtime.partitions


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_change_of_the_catalog_by_another_process_is_heard_of(is_told: bool, url: str) -> None:
    """It is not looked at while nobody writes to it. Who wrote may have died before it told."""
    async with serving(url, lease=1.0) as engine:
        lease = engine.store._lease_of_us  # type: ignore[attr-defined]
        begun = lease._until
        await until(lambda: lease._until > begun + 0.2)
        mark = engine.store.catalog_mark()
        begun = lease._until
        await until(lambda: lease._until > begun)
        assert engine.store.catalog_mark() == mark
        if is_told:
            other = opened(url)
            await other.write_catalog(
                [ResourceWrite(ResourceKey("Thing", "n", "a"), "uid", 1, b"{}", b"", {}, None, 0)]
            )
            await other.close()
        else:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("SELECT nextval('perdure.resource_versions')")

        await until(lambda: engine.store.catalog_mark() != mark)
