"""SRV-013: a page of a list costs what it shows, however many runs there are: rows are compared, not times."""

import asyncio
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
from perdure.stores.sqlite import run_search
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
    "by rare statuses, all of them": RunFilter(
        namespaces=TEAMS, statuses=[Status.RUNNING, Status.WAITING], behind=(1 << 62, RunId(""))
    ),
    "before a time": page(namespaces=["default"], created_before=1_700_000_900_000_000),
}
TEXTS: dict[str, RunFilter] = {
    "every id": page(text="run-"),
    "every id, in a namespace": page(text="run-", namespaces=["team-1"]),
    "one name that most have": page(text="night"),
    "many names": page(text="other-"),
    "many names, in a namespace": page(text="other-", namespaces=["default"]),
    "a rare name": page(text="rar"),
    "a rare name, by status": page(text="rar", statuses=[Status.SUCCEEDED], namespaces=TEAMS),
    "nothing": page(text="nothing", namespaces=TEAMS[:2]),
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
        counts: dict[str, int] = {}
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        for name, filter in (PAGES | TEXTS).items():
            counted = 0
            asyncio.run(run_search.search_rows(lambda *asked: list(connection.execute(*asked)), filter))
            counts[name] = counted
        connection.trace_v2(0)
        took.append(counts)
    assert {namespace for (namespace,) in connection.execute(RUN_NAMESPACES)} == set(TEAMS)
    connection.close()
    return took


@pytest.mark.parametrize("name", PAGES)
def test_a_page_takes_as_many_steps_in_a_store_of_three_times_as_many_runs(
    steps: list[dict[str, int]], name: str
) -> None:
    few, many = (counts[name] for counts in steps)

    assert many < 1.3 * few + 500, "all runs would be another 10,000 steps at least"
    assert many < 100 * LIMIT + 2_000


@pytest.mark.parametrize("name", TEXTS)
def test_a_search_takes_no_more_steps_for_what_most_runs_match(steps: list[dict[str, int]], name: str) -> None:
    """CON-021, SRV-013: up to 1,000 that match are counted in each of three indexes; all of them took 200,000 steps."""
    assert steps[1][name] < 100 * LIMIT + 20_000


@pytest.mark.parametrize("most_names", [0, 3, 100])
@pytest.mark.parametrize("few", [0, 5, 10_000])
async def test_every_way_to_search_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, most_names: int
) -> None:
    """SRV-013: the beginning of an id or of a name, or the whole value of a label; page by page, the latest first."""
    for name, number in (("FEW", few), ("MOST_NAMES", most_names), ("FIRST_WALK", 3), ("LONGEST_WALK", 7)):
        monkeypatch.setattr(run_search, name, number)
    SqliteStore(tmp_path / "runs.db", lambda: 1).abandon()
    connection = apsw.Connection(str(tmp_path / "runs.db"))
    marks = ", ".join("?" * 12)
    labels = '{"team": "night", "x": "run-"}'
    samples = [(*row, labels if number % 9 == 0 else None) for number, row in enumerate(rows(0, 300))]
    connection.executemany(f"INSERT INTO runs ({COLUMNS}, labels) VALUES ({marks})", samples)

    def read(query: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return list(connection.execute(query, bindings))

    for text in ("", "run-", "run-1", "night", "nightly", "other-1", "rare", "nothing"):
        for more in ({}, {"namespaces": TEAMS[:2]}, {"language": "story"}, {"statuses": [Status.FAILED]}):
            filter = RunFilter(text=text, limit=40, behind=(1_700_000_250_000_000, RunId("run-5")), **more)
            assert await run_search.search_rows(read, filter) == read(*run_search.build_search(filter)), (text, more)
    connection.close()


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

    page_rows = await store.search(page(statuses=[Status.FAILED]))
    assert [row.name for row in page_rows] == ["rare"] * 3
    assert [row.created_at for row in page_rows] == sorted((row.created_at for row in page_rows), reverse=True)
    assert {row.namespace for row in page_rows} == {"team-0", "team-1", "team-2"}
    await store.close()
