"""Short queries to PostgreSQL that are answered on the event loop, without blocking it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.stores.errors import StoreError
from perdure.stores.postgres.connection_threads import ReadPool
from perdure.stores.postgres.database import Database, PostgresSettings
from perdure.stores.postgres.wire import INT, TEXT, Statement
from tests.postgres import Server

TWICE = Statement("SELECT 2 * {}", INT)
ECHO = Statement("SELECT {}", TEXT)
SLOW = Statement("SELECT {}, pg_sleep(0.3)", INT)
PID = Statement("SELECT pg_backend_pid(), {}", INT)
HALVE = Statement("SELECT 1 / {}", INT)


@pytest.fixture
def url(postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(18).database() as address:
        parameters = conninfo_to_dict(address)
        yield f"postgresql://postgres@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


@pytest.fixture
def readers(url: str) -> Iterator[ReadPool]:
    pool = ReadPool(Database(url, PostgresSettings(readers=1, timeout=2)), None)
    yield pool
    pool.close()


async def prepared(readers: ReadPool, statement: Statement, value: Any) -> Any:
    """Met a third time, a statement is one round trip."""
    for _ in range(2):
        ((row, *_),) = await readers.query(statement, value)
    return row


async def test_a_short_question_is_answered(readers: ReadPool) -> None:
    await prepared(readers, TWICE, 1)

    assert await asyncio.gather(*[readers.query(TWICE, number) for number in range(20)]) == [
        [(2 * number,)] for number in range(20)
    ]


async def test_one_that_is_longer_than_what_the_wire_holds_is_answered_too(readers: ReadPool) -> None:
    long = "x" * 20_000_000
    await prepared(readers, ECHO, "x")

    assert await readers.query(ECHO, long) == [(long,)]


async def test_the_event_loop_goes_on_while_the_database_thinks(readers: ReadPool) -> None:
    await prepared(readers, SLOW, 1)
    looking = asyncio.ensure_future(readers.query(SLOW, 7))
    turns = 0
    while not looking.done():
        turns += 1
        await asyncio.sleep(0.01)

    assert looking.result()[0][0] == 7
    assert turns > 3


async def test_a_lost_connection_is_had_again(url: str, readers: ReadPool) -> None:
    pid = await prepared(readers, PID, 1)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    ((again, _),) = await readers.query(PID, 1)
    assert again != pid


async def test_a_connection_may_be_lost_while_its_answer_is_waited_for(url: str, readers: ReadPool) -> None:
    pid = await prepared(readers, PID, 1)
    await prepared(readers, SLOW, 1)
    looking = asyncio.ensure_future(readers.query(SLOW, 7))
    await asyncio.sleep(0.05)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))

    assert (await looking)[0][0] == 7


async def test_an_answer_that_nobody_waits_for_is_not_the_next_ones(readers: ReadPool) -> None:
    await prepared(readers, SLOW, 1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(readers.query(SLOW, 7), 0.05)

    assert await readers.query(TWICE, 4) == [(8,)]


async def test_what_the_database_refuses_is_an_error_and_the_connection_goes_on(readers: ReadPool) -> None:
    await prepared(readers, HALVE, 1)
    with pytest.raises(StoreError, match="division by zero"):
        await readers.query(HALVE, 0)

    assert await readers.query(HALVE, 1) == [(1,)]


async def test_who_is_waited_for_is_answered_although_the_store_is_closed(readers: ReadPool) -> None:
    await prepared(readers, SLOW, 1)
    looking = asyncio.ensure_future(readers.query(SLOW, 7))
    await asyncio.sleep(0.05)
    readers.close()

    assert (await looking)[0][0] == 7
