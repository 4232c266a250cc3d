"""The sqlite provider on real files: one task is one transaction."""

import asyncio
import base64
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, is_cancelled, outcome_of, task, value_of

from perdure.kernel.outcomes import Failed, Outcome
from perdure.providers.task_outcomes import RESULT_LIMIT

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def sqlite(**arguments: Any) -> Outcome:
    return await outcome_of("sqlite", arguments)


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases lie below the working directory, unless the operator opens other folders."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    file = str(tmp_path / "shop.db")
    connection = apsw.Connection(file)
    connection.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT UNIQUE, price REAL)")
    connection.execute("INSERT INTO item VALUES (1, 'pen', 1.5), (2, 'cup', NULL)")
    connection.close()
    return file


def names(file: str) -> list[str]:
    connection = apsw.Connection(file)
    result = [name for (name,) in connection.execute("SELECT name FROM item ORDER BY id")]
    connection.close()
    return result


async def test_rows_are_maps_by_column(shop: str) -> None:
    outcome = await sqlite(database=shop, query="SELECT * FROM item ORDER BY id")

    rows = [{"id": 1, "name": "pen", "price": 1.5}, {"id": 2, "name": "cup", "price": None}]
    assert value_of(outcome) == {"rows": rows, "row_count": 2, "columns": ["id", "name", "price"]}


async def test_an_empty_result_still_has_columns(shop: str) -> None:
    outcome = await sqlite(database=shop, query="SELECT id, name FROM item WHERE 0")

    assert value_of(outcome) == {"rows": [], "row_count": 0, "columns": ["id", "name"]}


async def test_changes_are_counted_over_all_statements(shop: str) -> None:
    outcome = await sqlite(database=shop, commands=["UPDATE item SET price = 2", "DELETE FROM item WHERE id = 1"])

    assert value_of(outcome) == {"rows": [], "row_count": 3, "columns": []}


async def test_of_several_statements_the_last_with_rows_speaks(shop: str) -> None:
    text = (
        "INSERT INTO item VALUES (3, 'hat', 9) RETURNING id; SELECT count(*) AS n FROM item; UPDATE item SET price = 0"
    )

    assert value_of(await sqlite(database=shop, command=text)) == {"rows": [{"n": 3}], "row_count": 1, "columns": ["n"]}


async def test_values_are_bound_never_spliced(shop: str) -> None:
    hostile = "x'); DROP TABLE item; --"
    await sqlite(database=shop, command="INSERT INTO item(name, price) VALUES (:n, :p)", params={"n": hostile, "p": 1})

    result = await sqlite(database=shop, query="SELECT name FROM item WHERE name = ?", params=[hostile])
    assert value_of(result)["rows"] == [{"name": hostile}]


async def test_commands_may_bring_their_own_values(shop: str) -> None:
    item = {"command": "INSERT INTO item(name) VALUES (?)", "params": ["hat"]}
    outcome = await sqlite(database=shop, commands=[item, "SELECT name FROM item WHERE id = ?"], params=[1])

    assert value_of(outcome)["rows"] == [{"name": "pen"}]
    assert "hat" in names(shop)


async def test_lists_and_maps_are_json_text() -> None:
    outcome = await sqlite(query="SELECT ? ->> '$[1]' AS second, x'00ff' AS bytes", params=[[1, "two"]])

    assert value_of(outcome)["rows"] == [{"second": "two", "bytes": "AP8="}]


async def test_a_failure_in_the_middle_undoes_everything(shop: str) -> None:
    """PBK-097: one task is one transaction."""
    outcome = await sqlite(
        database=shop,
        commands=["DELETE FROM item", "INSERT INTO item(name) VALUES ('a')", "INSERT INTO nowhere VALUES (1)"],
    )

    assert failure_of(outcome) == ("Provider.Call.Sqlite.BadStatement", False)
    assert isinstance(outcome, Failed) and "no such table: nowhere" in outcome.message
    assert details_of(outcome)["statement"] == 3
    assert names(shop) == ["pen", "cup"]


async def test_a_result_that_is_too_large_undoes_everything(shop: str) -> None:
    """Its text is too large: each quote is two characters there."""
    quotes = f"SELECT replace(hex(zeroblob({RESULT_LIMIT // 4 + 1})), '0', '\"') AS x"
    outcome = await sqlite(database=shop, commands=["DELETE FROM item", quotes])

    assert failure_of(outcome) == ("Provider.Call.Sqlite.TooLarge", False)
    assert names(shop) == ["pen", "cup"]


async def test_broken_constraints(shop: str) -> None:
    outcome = await sqlite(database=shop, command="INSERT INTO item(name) VALUES ('new'), ('pen')")

    assert failure_of(outcome) == ("Provider.Call.Sqlite.Constraint", False)
    assert names(shop) == ["pen", "cup"]


@pytest.mark.parametrize("text", ["BEGIN", "COMMIT", "ROLLBACK"])
async def test_a_task_may_not_end_its_own_transaction(shop: str, text: str) -> None:
    outcome = await sqlite(database=shop, command=f"DELETE FROM item; {text}")

    assert failure_of(outcome) == ("Provider.Call.Sqlite.BadStatement", False)
    assert names(shop) == ["pen", "cup"]


async def test_savepoints_are_the_tasks_own(shop: str) -> None:
    text = "SAVEPOINT a; DELETE FROM item; ROLLBACK TO a; INSERT INTO item(name) VALUES ('hat')"
    assert value_of(await sqlite(database=shop, command=text))

    assert names(shop) == ["pen", "cup", "hat"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": " ; "},
        {"command": "SELECT 1", "query": "SELECT 2"},
        {"command_b64": "?"},
        {"query": "SELECT ?", "params": [1, 2]},
    ],
)
async def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any]) -> None:
    assert failure_of(await sqlite(**arguments)) == ("Provider.Call.Sqlite.BadStatement", False)


async def test_text_in_base64_and_in_a_file(tmp_path: Path, shop: str) -> None:
    """A script comes first, then base64, then plain text."""
    sql = "SELECT name FROM item WHERE id = :id"
    (tmp_path / "find.sql").write_text(sql)
    encoded = base64.b64encode(sql.replace("= :id", "= 2").encode()).decode()
    script = {"uri": "find.sql", "folder": str(tmp_path), "sha256": hashlib.sha256(sql.encode()).hexdigest()}

    by_file = await sqlite(database=shop, script=script, query_b64=encoded, query="SELECT 1", params={"id": 1})
    by_base64 = await sqlite(database=shop, query_b64=encoded, query="SELECT 1")

    assert value_of(by_file)["rows"] == [{"name": "pen"}]
    assert value_of(by_base64)["rows"] == [{"name": "cup"}]


async def test_a_timeout_undoes_and_stops(shop: str) -> None:
    outcome = await sqlite(database=shop, commands=["DELETE FROM item", ENDLESS], timeout=0.2)

    assert failure_of(outcome) == ("Provider.Call.Sqlite.Timeout", True)
    assert names(shop) == ["pen", "cup"]


async def test_a_cancel_undoes_and_stops(shop: str) -> None:
    async with at_work() as worker:
        item = task("sqlite", {"database": shop, "commands": ["DELETE FROM item", ENDLESS]})
        running = asyncio.create_task(worker.run(item, Ledger()))
        await _until_locked(shop)
        worker.cancel(item)

        assert is_cancelled(await running)
    assert names(shop) == ["pen", "cup"]
    assert value_of(await sqlite(database=shop, command="DELETE FROM item"))["row_count"] == 2


async def _until_locked(file: str) -> None:
    connection = apsw.Connection(file)
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                return
            await asyncio.sleep(0.005)
    finally:
        connection.close()


def at_work_on(file: str) -> int:
    """How many other processes have the file open."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_open = any(str(item.readlink()) == file for item in (process / "fd").iterdir())
        except OSError:  # it has ended meanwhile, or is a stranger's
            continue
        count += is_open and process.name != str(os.getpid())
    return count


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who has a file open")
async def test_another_writer_is_waited_for_and_then_it_is_a_failure(shop: str) -> None:
    writer = apsw.Connection(shop)
    writer.execute("BEGIN IMMEDIATE")
    refused = await sqlite(database=shop, command="DELETE FROM item", timeout={"connect": 0.1})
    waiting = asyncio.create_task(sqlite(database=shop, command="DELETE FROM item WHERE id = 1"))
    await _until(lambda: at_work_on(shop) == 1)
    writer.execute("COMMIT")
    writer.close()

    assert failure_of(refused) == ("Provider.Call.Sqlite.Busy", True)
    assert value_of(await waiting)["row_count"] == 1


async def test_the_engines_own_file_is_refused(tmp_path: Path) -> None:
    import perdure

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db"):
        pass

    outcome = await sqlite(database=str(tmp_path / "runs.db"), query="SELECT 1")
    assert failure_of(outcome) == ("Provider.Call.Sqlite.Unavailable", False)


async def test_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("this is not a database, though it is long enough to look at\n" * 50)

    for name in ("no/such/folder.db", "note.txt"):
        outcome = await sqlite(database=str(tmp_path / name), query="SELECT * FROM t")
        assert failure_of(outcome) == ("Provider.Call.Sqlite.Unavailable", False)


async def test_foreign_keys_count() -> None:
    text = "CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE TABLE b(a REFERENCES a); INSERT INTO b VALUES (7)"

    assert failure_of(await sqlite(command=text))[0] == "Provider.Call.Sqlite.Constraint"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who has a file open")
async def test_no_more_than_four_at_a_time(shop: str) -> None:
    """PBK-197: of a worker's tasks at most four talk to databases; the fifth begins when one ends."""
    async with at_work() as worker:
        tasks = [task("sqlite", {"database": shop, "query": ENDLESS}, task=number) for number in range(1, 5)]
        endless = [asyncio.create_task(worker.run(item, Ledger())) for item in tasks]
        await _until(lambda: at_work_on(shop) == 4)
        short = task("sqlite", {"database": shop, "query": "SELECT 1 AS n"}, task=5)
        stopped = task("sqlite", {"database": shop, "query": "SELECT 2 AS n"}, task=6)
        fifth, sixth = (asyncio.create_task(worker.run(item, Ledger())) for item in (short, stopped))
        echo = value_of(await worker.run(task("echo", {"value": 1}, task=7), Ledger()))
        await asyncio.to_thread(len, "as long as the fifth would take to begin")
        assert echo == 1 and not fifth.done()

        worker.cancel(stopped)
        assert is_cancelled(await sixth) and not fifth.done()
        assert at_work_on(shop) == 4

        worker.cancel(tasks[0])
        assert value_of(await fifth)["rows"] == [{"n": 1}]
        for item in tasks[1:]:
            worker.cancel(item)
        assert all(map(is_cancelled, await asyncio.gather(*endless)))
