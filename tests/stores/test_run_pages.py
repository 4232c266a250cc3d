"""SRV-013: a page of a list costs what it shows, however many runs there are: rows are compared, not times."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.postgres import reads as postgres_reads
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import RunFilter
from perdure.stores.rows import RUN_NAMESPACES
from perdure.stores.sqlite import reads as sqlite_reads
from perdure.stores.sqlite.store import SqliteStore
from tests.postgres import Server, as_url

RUNS = 6_000
LIMIT = 50
COLUMNS = "id, partition, language, name, program, key, status, has_work, created_at, ended_at, namespace"


def rows(first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """Most runs have one name, one language and one status; of the others there are few, among the oldest."""
    for number in range(first, last):
        is_rare = number % 100 == 0 and number < 2_000
        name = "rare" if is_rare else "nightly" if number % 10 < 6 else f"other-{number % 97}"
        language, status = ("story", Status.FAILED) if is_rare else ("playbook", Status.SUCCEEDED)
        namespace = "default" if number % 4 else f"team-{number % 3}"
        began = 1_700_000_000_000_000 + number * 1_000_000
        id = f"run-{number * 7919 % 100_003}-{number}"
        yield id, 1, language, name, b"p", b"k", status.value, 0, began, began + 5, namespace


def page(**filter: Any) -> RunFilter:
    return RunFilter(**filter, limit=LIMIT, behind=(1 << 62, RunId("")))


TEAMS = ("default", "team-0", "team-1", "team-2")
PAGES: dict[str, RunFilter] = {
    "all": page(),
    "of namespaces": page(namespaces=TEAMS[:3]),
    "by statuses": page(namespaces=TEAMS, statuses=[Status.FAILED, Status.RUNNING, Status.WAITING]),
    "by name": page(name="nightly"),
    "by name in namespaces": page(name="nightly", namespaces=TEAMS[:2]),
    "by rare name": page(name="rare"),
    "by name and rare status": page(name="nightly", statuses=[Status.FAILED]),
    "by rare language": page(language="story"),
    "by language and rare status": page(
        namespaces=TEAMS, language="playbook", statuses=[Status.FAILED, Status.CANCELLED]
    ),
    "before a time": page(namespaces=["default"], created_before=1_700_000_900_000_000),
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, int]]:
    """Of SQLite's machine, for each page: in a store with a third of the runs, and with all of them."""
    path = tmp_path_factory.mktemp("pages") / "runs.db"
    SqliteStore(path, lambda: 1).abandon()
    connection = apsw.Connection(str(path))
    took: list[dict[str, int]] = []
    counted = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal counted
        counted += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    for first, last in ((0, RUNS // 3), (RUNS // 3, RUNS)):
        with connection:
            marks = ", ".join("?" * 11)
            connection.executemany(f"INSERT INTO runs ({COLUMNS}) VALUES ({marks})", rows(first, last))
        found: dict[str, int] = {}
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        for name, filter in PAGES.items():
            counted = 0
            list(connection.execute(*sqlite_reads.build_search(filter)))
            found[name] = counted
        connection.trace_v2(0)
        took.append(found)
    assert {namespace for (namespace,) in connection.execute(RUN_NAMESPACES)} == set(TEAMS)
    connection.close()
    return took


@pytest.mark.parametrize("name", PAGES)
def test_a_page_takes_as_many_steps_in_a_store_of_three_times_as_many_runs(
    steps: list[dict[str, int]], name: str
) -> None:
    few, many = (found[name] for found in steps)

    assert many < 1.3 * few + 500, "all runs would be another 10,000 steps at least"
    assert many < 100 * LIMIT + 2_000


@pytest.fixture(scope="module")
def database(postgres_server: Callable[[int], Server]) -> Iterator[psycopg.Connection[Any]]:
    with postgres_server(18).database() as address:
        PostgresStore(as_url(address), lambda: 1).abandon()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SET search_path = perdure")
            with connection.cursor().copy(f"COPY runs (number, {COLUMNS}) FROM STDIN") as copy:
                for number, row in enumerate(rows(0, RUNS)):
                    copy.write_row((number, *row[:7], bool(row[7]), *row[8:]))
            connection.execute("ANALYZE runs")
            yield connection


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_no_more_than_twice_its_rows_on_postgresql(database: psycopg.Connection[Any], name: str) -> None:
    statement, values = postgres_reads.build_search(PAGES[name])
    cursor = psycopg.RawCursor(database)
    cursor.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + statement.sql, statement.adapt(values))
    (plans,) = cursor.fetchone() or ([],)

    read = sum(map(rows_read, [plans[0]["Plan"]]))
    assert plans[0]["Plan"]["Actual Rows"] <= read <= 2 * LIMIT + len(Status), json.dumps(plans, indent=1)


def rows_read(plan: dict[str, Any]) -> int:
    """From the table of runs, those that a condition then drops too."""
    below: Sequence[dict[str, Any]] = plan.get("Plans", ())
    own = 0.0
    if plan.get("Relation Name") == "runs":
        own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return round(own * float(plan["Actual Loops"])) + sum(map(rows_read, below))


async def test_runs_of_all_namespaces_are_listed_by_status(tmp_path: Path) -> None:
    """The namespaces are looked up, and walked along one by one."""
    store = SqliteStore(tmp_path / "runs.db", lambda: 1)
    connection = apsw.Connection(str(store.path))
    marks = ", ".join("?" * 11)
    connection.executemany(f"INSERT INTO runs ({COLUMNS}) VALUES ({marks})", rows(0, 300))
    connection.close()

    found = await store.search(page(statuses=[Status.FAILED]))
    assert [row.name for row in found] == ["rare"] * 3
    assert [row.created_at for row in found] == sorted((row.created_at for row in found), reverse=True)
    assert {row.namespace for row in found} == {"team-0", "team-1", "team-2"}
    await store.close()
