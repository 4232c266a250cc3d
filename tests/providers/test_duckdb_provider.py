"""The duckdb provider on real databases."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, is_cancelled, outcome_of, task, value_of

from perdure.kernel.outcomes import Failed, Outcome
from perdure.providers.policy import Policy

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE (a.range + b.range) % 7 = 3"


async def duckdb(**arguments: Any) -> Outcome:
    return await outcome_of("duckdb", arguments)


async def test_a_query() -> None:
    outcome = await duckdb(query="SELECT range AS n, range * 1.5 AS half FROM range(2)")

    rows = [{"n": 0, "half": 0}, {"n": 1, "half": 1.5}]
    assert value_of(outcome) == {"rows": rows, "row_count": 2, "columns": ["n", "half"]}


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases lie below the working directory, unless the operator opens other folders."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE t(a INT)", {"rows": [], "row_count": 0, "columns": []}),
        ("CREATE TABLE t(a INT); INSERT INTO t VALUES (1), (2)", {"rows": [], "row_count": 2, "columns": []}),
        ("CREATE TABLE t AS SELECT 1 AS a; UPDATE t SET a = 2", {"rows": [], "row_count": 1, "columns": []}),
        (
            "CREATE TABLE t(a INT); INSERT INTO t VALUES (1) RETURNING a + 1 AS b",
            {"rows": [{"b": 2}], "row_count": 1, "columns": ["b"]},
        ),
        ("SELECT 1 AS a WHERE false", {"rows": [], "row_count": 0, "columns": ["a"]}),
        ("CREATE VIEW v AS SELECT 1", {"rows": [], "row_count": 0, "columns": []}),
    ],
)
async def test_what_statements_answer(text: str, expected: Any) -> None:
    result = value_of(await duckdb(command=text))

    if text.startswith("CREATE TABLE t AS"):
        assert result["rows"] == [] and result["columns"] == [] and result["row_count"] >= 1
    else:
        assert result == expected


async def test_values_of_every_kind() -> None:
    outcome = await duckdb(
        query="""
        SELECT TIMESTAMPTZ '2026-01-02 03:04:05+02' AS instant, TIMESTAMP '2026-01-02 03:04:05' AS local,
               DATE '2026-01-02' AS day, TIME '01:02:03' AS clock, INTERVAL '90 seconds' AS span,
               [1, 2] AS list, {'a': 1} AS struct, MAP {1: 'x'} AS map, 'ab'::BLOB AS bytes,
               '00000000-0000-0000-0000-000000000001'::UUID AS id, 170141183460469231731687303715884105727 AS huge,
               1.10::DECIMAL(10, 2) AS price, 'nan'::DOUBLE AS nan, NULL AS nothing, true AS yes
        """
    )

    assert value_of(outcome)["rows"] == [
        {
            "instant": "2026-01-02T01:04:05Z",
            "local": "2026-01-02T03:04:05",
            "day": "2026-01-02",
            "clock": "01:02:03",
            "span": "PT1M30S",
            "list": [1, 2],
            "struct": {"a": 1},
            "map": {"1": "x"},
            "bytes": "YWI=",
            "id": "00000000-0000-0000-0000-000000000001",
            "huge": 170141183460469231731687303715884105727,
            "price": 1.1,
            "nan": "NaN",
            "nothing": None,
            "yes": True,
        }
    ]


async def test_values_are_bound() -> None:
    by_name = await duckdb(query="SELECT $x + $x AS twice, $y AS list", params={"x": 2, "y": [1, 2]})
    by_turn = await duckdb(query="SELECT ? AS a; SELECT ? AS b", params=[1, "two"])

    assert value_of(by_name)["rows"] == [{"twice": 4, "list": [1, 2]}]
    assert value_of(by_turn)["rows"] == [{"b": "two"}]


async def test_a_failure_in_the_middle_undoes_everything(tmp_path: Path) -> None:
    """PBK-097: one task is one transaction."""
    file = str(tmp_path / "a.duckdb")
    assert value_of(await duckdb(database=file, command="CREATE TABLE t(a INT PRIMARY KEY); INSERT INTO t VALUES (1)"))

    broken = await duckdb(database=file, command="INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)")
    bad = await duckdb(database=file, command="INSERT INTO t VALUES (3); SELECT * FROM nowhere")

    assert failure_of(broken) == ("Provider.Call.Duckdb.Constraint", False)
    assert details_of(broken)["statement"] == 2
    assert failure_of(bad) == ("Provider.Call.Duckdb.BadStatement", False)
    assert value_of(await duckdb(database=file, query="SELECT a FROM t"))["rows"] == [{"a": 1}]


async def test_a_timeout_and_a_cancel_stop_the_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.providers.policy._in_force", Policy(duckdb_folders=[str(tmp_path)]))
    began = tmp_path / "began.csv"
    assert failure_of(await duckdb(query=ENDLESS, timeout=0.3)) == ("Provider.Call.Duckdb.Timeout", True)
    async with at_work() as worker:
        item = task("duckdb", {"commands": [f"COPY (SELECT 1) TO '{began}'", ENDLESS]})
        running = asyncio.create_task(worker.run(item, Ledger()))
        while not began.exists():
            await asyncio.sleep(0.005)
        worker.cancel(item)

        assert is_cancelled(await running)


async def test_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    outcome = await duckdb(database=str(tmp_path / "no" / "such.duckdb"), query="SELECT 1")

    assert failure_of(outcome) == ("Provider.Call.Duckdb.Unavailable", False)


async def test_tasks_on_one_file_take_turns(tmp_path: Path) -> None:
    """DuckDB lets one process have a file; those of a worker wait for each other, and keep what each has written."""
    file = str(tmp_path / "a.duckdb")
    assert value_of(await duckdb(database=file, command="CREATE TABLE t(a INT)"))
    async with at_work() as worker:
        tasks = [
            task("duckdb", {"database": file, "command": f"INSERT INTO t VALUES ({number})"}, task=number)
            for number in range(1, 9)
        ]
        outcomes = await asyncio.gather(*(worker.run(item, Ledger()) for item in tasks))
        assert [value_of(item)["row_count"] for item in outcomes] == [1] * 8
        result = await worker.run(
            task("duckdb", {"database": file, "query": "SELECT sum(a)::INT AS n FROM t"}), Ledger()
        )
        assert value_of(result)["rows"] == [{"n": 36}]


async def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError(name='duckdb')")  # as if it were not installed
    monkeypatch.syspath_prepend(tmp_path)

    outcome = await duckdb(query="SELECT 1")

    assert failure_of(outcome) == ("Provider.Call.Duckdb.MissingExtra", False)
    assert isinstance(outcome, Failed) and "pip install 'perdure[duckdb]'" in outcome.message
