"""The postgres provider against real servers: one task is one transaction, and a stopped one leaves nothing."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.postgres import VERSIONS, Server
from tests.workers.scene import Ledger, at_work, details_of, failure_of, is_cancelled, outcome_of, task, value_of

from perdure.kernel.outcomes import Failed, Outcome


@pytest.fixture
def shop(postgres_url: str) -> str:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "CREATE TABLE item(id serial PRIMARY KEY, name text UNIQUE, price numeric CHECK (price >= 0))"
        )
        connection.execute("INSERT INTO item(name, price) VALUES ('pen', 1.50), ('cup', NULL)")
    return postgres_url


@pytest.fixture(params=VERSIONS)
def any_version(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(request.param).database() as address:
        yield address


async def postgres(address: str, **arguments: Any) -> Outcome:
    return await outcome_of("postgres", {"auth": {"dsn": address}, **arguments})


def names(address: str) -> list[str]:
    with psycopg.connect(address) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM item ORDER BY id")]


async def test_rows_are_maps_by_column(any_version: str) -> None:
    text = "CREATE TABLE t(a int, b text); INSERT INTO t VALUES (1, 'x'), (2, NULL); SELECT * FROM t ORDER BY a"
    outcome = await postgres(any_version, command=text)

    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert value_of(outcome) == {"rows": rows, "row_count": 2, "columns": ["a", "b"]}
    assert value_of(await postgres(any_version, query="SELECT a FROM t WHERE false"))["columns"] == ["a"]
    assert value_of(await postgres(any_version, command="DELETE FROM t")) == {"rows": [], "row_count": 2, "columns": []}


async def test_values_of_every_kind(any_version: str) -> None:
    outcome = await postgres(
        any_version,
        query="""
        SELECT 1.10::numeric AS price, 0.12345678901234567890::numeric AS exact, 'NaN'::numeric AS nan,
               9223372036854775807 AS big, 1.5::float8 AS half, 'Infinity'::float8 AS endless,
               timestamptz '2026-01-02 03:04:05.5+02' AS instant, timestamp '2026-01-02 03:04:05' AS local,
               date '2026-01-02' AS day, time '01:02:03' AS clock, interval '1 month 2 days 3 hours' AS span,
               'infinity'::timestamptz AS forever, date '20000-01-01' AS far,
               '00000000-0000-0000-0000-000000000001'::uuid AS id, '\\x00ff'::bytea AS bytes,
               '{"a": [1, null]}'::jsonb AS doc, '[1.5]'::json AS list, ARRAY[[1, 2], [3, 4]] AS grid,
               ARRAY['2026-01-02'::date] AS days, inet '10.0.0.1' AS address, int4range(1, 5) AS range,
               true AS yes, NULL AS nothing, 1 AS twice, 2 AS twice
        """,
    )

    assert value_of(outcome)["rows"] == [
        {
            "price": 1.1,
            "exact": "0.12345678901234567890",
            "nan": "NaN",
            "big": 9223372036854775807,
            "half": 1.5,
            "endless": "Infinity",
            "instant": "2026-01-02T01:04:05.500000Z",
            "local": "2026-01-02T03:04:05",
            "day": "2026-01-02",
            "clock": "01:02:03",
            "span": "P1M2DT3H",
            "forever": "infinity",
            "far": "20000-01-01",
            "id": "00000000-0000-0000-0000-000000000001",
            "bytes": "AP8=",
            "doc": {"a": [1, None]},
            "list": [1.5],
            "grid": [[1, 2], [3, 4]],
            "days": ["2026-01-02"],
            "address": "10.0.0.1",
            "range": "[1, 5)",
            "yes": True,
            "nothing": None,
            "twice": 1,
            "twice_2": 2,
        }
    ]


@pytest.mark.parametrize(
    ("text", "rows", "count"),
    [
        ("WITH n AS (SELECT 'cap' AS name) INSERT INTO item(name) SELECT name FROM n", [], 1),
        ("WITH n AS (SELECT 'cap' AS name) INSERT INTO item(name) SELECT name FROM n RETURNING name", ["cap"], 1),
        ("WITH d AS (DELETE FROM item RETURNING name) SELECT name FROM d ORDER BY name", ["cup", "pen"], 2),
        ("SELECT name INTO copied FROM item", [], 2),
        ("CREATE PROCEDURE p() LANGUAGE sql AS 'DELETE FROM item'; CALL p()", [], 0),
        ("PREPARE s AS DELETE FROM item; EXECUTE s", [], 2),
    ],
)
async def test_a_statement_without_rows_may_begin_like_one_with_rows(
    shop: str, text: str, rows: list[str], count: int
) -> None:
    value = value_of(await postgres(shop, command=text))

    assert ([row["name"] for row in value["rows"]], value["row_count"]) == (rows, count)


async def test_the_error_of_a_statement_with_returning_is_the_servers(shop: str) -> None:
    outcome = await postgres(shop, command="INSERT INTO nowhere VALUES (1) RETURNING *")

    assert details_of(outcome)["sqlstate"] == "42P01"
    assert isinstance(outcome, Failed)
    assert 'relation "nowhere" does not exist' in outcome.message


async def test_each_statement_may_have_its_own_result(shop: str) -> None:
    text = "DELETE FROM item WHERE name = 'cup'; SELECT name FROM item; SELECT 1 AS one"
    value = value_of(await postgres(shop, command=text, each_statement=True))

    assert value["rows"] == [{"one": 1}]
    assert [value[f"command_{index}"] for index in range(3)] == [
        {"status": "success", "rows": [], "row_count": 1, "columns": []},
        {"status": "success", "rows": [{"name": "pen"}], "row_count": 1, "columns": ["name"]},
        {"status": "success", "rows": [{"one": 1}], "row_count": 1, "columns": ["one"]},
    ]


async def test_values_are_bound_never_spliced(shop: str) -> None:
    hostile = "x'); DROP TABLE item; --"
    await postgres(shop, command="INSERT INTO item(name, price) VALUES (%(n)s, %(p)s)", params={"n": hostile, "p": 2.5})
    result = await postgres(shop, query="SELECT price FROM item WHERE name = $1 AND name LIKE '%%;%'", params=[hostile])

    assert value_of(result)["rows"] == [{"price": 2.5}]


async def test_lists_are_arrays_and_maps_are_json(shop: str) -> None:
    outcome = await postgres(
        shop,
        query="SELECT 2 = ANY(%s) AS has, %s -> 'a' AS a, %s AS docs, %s::int AS none",
        params=[[1, 2], {"a": 1}, [{"b": 2}], None],
    )

    assert value_of(outcome)["rows"] == [{"has": True, "a": 1, "docs": [{"b": 2}], "none": None}]


async def test_a_failure_in_the_middle_undoes_everything(shop: str) -> None:
    """PBK-097: one task is one transaction."""
    outcome = await postgres(shop, commands=["DELETE FROM item", "INSERT INTO item(name) VALUES ('a')", "SELECT 1 / 0"])

    assert failure_of(outcome) == ("Provider.Call.Postgres.BadStatement", False)
    assert details_of(outcome) == {"statement": 3, "statements": 3, "sqlstate": "22012"}
    assert names(shop) == ["pen", "cup"]


@pytest.mark.parametrize(
    ("text", "code", "state"),
    [
        ("INSERT INTO item(name) VALUES ('pen')", "Constraint", "23505"),
        ("INSERT INTO item(name, price) VALUES ('a', -1)", "Constraint", "23514"),
        ("SELEC 1", "BadStatement", "42601"),
        ("SELECT * FROM nowhere", "BadStatement", "42P01"),
        ("SET LOCAL statement_timeout = 50; SELECT pg_sleep(5)", "ServerTimeout", "57014"),
        ("DO $$ BEGIN RAISE EXCEPTION 'no; never' USING ERRCODE = '40001'; END $$", "Deadlock", "40001"),
        ("DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$", "Full", "53100"),
        ("CREATE ROLE nobody_at_all; SET ROLE nobody_at_all; SELECT * FROM item", "Denied", "42501"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "Connection", "57P01"),
    ],
)
async def test_what_failures_are_called(shop: str, text: str, code: str, state: str) -> None:
    outcome = await postgres(shop, command=text)

    assert failure_of(outcome)[0] == f"Provider.Call.Postgres.{code}"
    assert details_of(outcome)["sqlstate"] == state
    assert names(shop) == ["pen", "cup"]


async def test_a_real_deadlock(shop: str) -> None:
    """One of two is the victim and is told so; the other one goes through."""
    set_up = "SET LOCAL deadlock_timeout = '50ms'; UPDATE item SET price = price WHERE id = {}; SELECT pg_sleep(0.3); "
    both = [
        set_up.format(first) + f"UPDATE item SET price = 7 WHERE id = {second}" for first, second in ((1, 2), (2, 1))
    ]

    ended = await asyncio.gather(*(postgres(shop, command=text) for text in both))

    failed = [item for item in ended if isinstance(item, Failed)]
    assert [failure_of(item) for item in failed] == [("Provider.Call.Postgres.Deadlock", True)]
    assert details_of(failed[0])["sqlstate"] == "40P01"


async def test_a_server_that_is_not_there() -> None:
    assert failure_of(await outcome_of("postgres", {"host": "127.0.0.1", "port": 1, "query": "SELECT 1"})) == (
        "Provider.Call.Postgres.Connection",
        True,
    )


async def test_a_database_or_a_user_that_is_not_there(shop: str) -> None:
    nowhere = await postgres(make_conninfo(shop, dbname="nowhere"), query="SELECT 1")
    nobody = await postgres(make_conninfo(shop, user="nobody"), query="SELECT 1")

    assert failure_of(nowhere) == ("Provider.Call.Postgres.NotFound", False)
    assert failure_of(nobody) == ("Provider.Call.Postgres.Denied", False)


async def test_explicit_fields_come_before_the_credential(shop: str) -> None:
    """Credentials are often stored with `db_` before each name."""
    known = conninfo_to_dict(shop)
    auth = {"db_host": "127.0.0.1", "db_port": str(known["port"]), "db_user": "postgres", "db_name": "nowhere"}
    auth |= {"name": "the credential's own name", "type": "postgres"}

    outcome = await outcome_of("postgres", {"auth": auth, "dbname": known["dbname"], "query": "SELECT 1 AS n"})

    assert value_of(outcome)["rows"] == [{"n": 1}]


def _sleepers(address: str) -> int:
    with psycopg.connect(address) as connection:
        text = "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND query LIKE 'SELECT pg_sleep(60)%'"
        row = connection.execute(text).fetchone()
        assert row is not None
        return int(row[0])


async def _until(condition: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(condition):
        await asyncio.sleep(0.02)


async def test_a_cancel_reaches_the_server(shop: str) -> None:
    async with at_work() as worker:
        item = task("postgres", {"dsn": shop, "commands": ["DELETE FROM item", "SELECT pg_sleep(60)"]})
        running = asyncio.create_task(worker.run(item, Ledger()))
        await _until(lambda: _sleepers(shop) == 1)
        worker.cancel(item)

        assert is_cancelled(await running)
        await _until(lambda: _sleepers(shop) == 0)
    assert names(shop) == ["pen", "cup"]


async def test_a_timeout_reaches_the_server(shop: str) -> None:
    outcome = await postgres(shop, commands=["DELETE FROM item", "SELECT pg_sleep(60)"], timeout=0.3)

    assert failure_of(outcome) == ("Provider.Call.Postgres.Timeout", True)
    assert _sleepers(shop) == 0 and names(shop) == ["pen", "cup"]


WORKER = """
import asyncio, sys
from tests.workers.scene import outcome_of
asyncio.run(outcome_of("postgres", {"dsn": sys.argv[1], "commands": ["DELETE FROM item", "SELECT pg_sleep(60)"]}))
"""


def test_a_worker_that_is_killed_leaves_nothing_half_written(shop: str) -> None:
    with ExitStack() as ours:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, shop], env={**os.environ, "PYTHONPATH": "."})
        ours.callback(worker.wait)
        ours.callback(worker.kill)
        while _sleepers(shop) == 0:
            assert worker.poll() is None
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    assert names(shop) == ["pen", "cup"]


async def test_a_password_is_in_no_message(shop: str) -> None:
    dsn = make_conninfo(shop, password="s3cret-word", dbname="nowhere")
    outcome = await outcome_of("postgres", {"dsn": dsn, "query": "SELECT 1"})
    bad = await outcome_of("postgres", {"dsn": "postgresql://u:s3cret-word@h:notaport/d", "query": "SELECT 1"})

    assert isinstance(outcome, Failed) and isinstance(bad, Failed)
    assert "s3cret" not in outcome.message + bad.message + str(details_of(outcome)) + str(details_of(bad))
