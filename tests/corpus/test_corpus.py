"""Stores that an earlier program wrote are opened, brought up to date, and show what they showed then.

Each line of a corpus is one store after a scenario of a language: the rows of every table, and for each run what `show`
and `history` gave. `corpus-…` was written by the program before the third vocabulary of records (`RECORDS` 2, SQLite
schema 4); `third-…` by the program with it (see `write.py`), with forks, snapshots, a backup, and on PostgreSQL too.
"""

import base64
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.stores.postgres import database as postgres
from perdure.stores.sqlite import database
from perdure.testing import FakeClock
from perdure.wiring import Observer
from tests.corpus import FOLDER, LATER
from tests.corpus.changes import SHOWN_OTHERWISE, to_milliseconds, told_now, without_own, without_requests
from tests.postgres import Server, as_url
from tests.sampling import Sample

LANGUAGES = ("flow", "playbook", "story")
FIRST_SCHEMA = 4


def scenarios(name: str, store: str, sample: Sample) -> Iterator[dict[str, Any]]:
    """One in twelve at each commit (see `tests/sampling.py`)."""
    lines = lzma.decompress((FOLDER / f"{name}.jsonl.xz").read_bytes()).splitlines()
    kept = [line for line in lines if (b'"store":"postgres"' in line[:4096]) == (store == "postgres")]
    for line in sample.take(kept, 12):
        yield json.loads(line)


def write_file(path: Path, scenario: dict[str, Any]) -> None:
    """A file as the earlier program left it."""
    schema = scenario.get("schema", FIRST_SCHEMA)
    connection = apsw.Connection(str(path))
    migrations = Path(database.__file__).parent / "migrations"
    for name in sorted(script.name for script in migrations.glob("*.sql"))[:schema]:
        connection.execute((migrations / name).read_text("utf-8"))
    connection.pragma("user_version", schema)
    connection.pragma("application_id", database.APPLICATION_ID)
    kinds = {
        (table, column): kind
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
    }
    for table, held in scenario["tables"].items():
        if table.startswith("sqlite_"):
            continue
        columns = held["columns"]
        places = ", ".join("?" * len(columns))
        connection.execute(f"DELETE FROM {table}")
        for row in held["rows"]:
            values = [
                _bytes(value) if kinds[(table, column)] == "BLOB" and value is not None else value
                for column, value in zip(columns, row, strict=True)
            ]
            connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", values)
    connection.close()


def fill_database(conninfo: str, scenario: dict[str, Any]) -> None:
    """A database as the earlier program left it."""
    with psycopg.connect(conninfo, options="-c search_path=perdure") as connection:
        connection.execute("CREATE SCHEMA perdure")
        connection.execute("CREATE TABLE schema (version integer NOT NULL, compatible integer NOT NULL)")
        for _, script in postgres.migrations()[: scenario["schema"]]:
            connection.execute(script.encode())
        connection.execute("SET session_replication_role = replica")  # rows come in no order of their keys
        kinds = connection.execute("SELECT table_name, column_name, data_type FROM information_schema.columns")
        types = {(table, column): kind for table, column, kind in kinds.fetchall()}
        for table, held in scenario["tables"].items():
            columns = held["columns"]
            statement = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, columns)),
                sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
            )
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            for row in held["rows"]:
                kinds_of_row = (types[(table, column)] for column in columns)
                connection.execute(statement, [_typed(v, kind) for v, kind in zip(row, kinds_of_row, strict=True)])


def _typed(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "bytea":
        return _bytes(value)
    if kind == "jsonb":
        return Jsonb(value)
    return value["text"] if isinstance(value, dict) else value


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value["base64"] if isinstance(value, dict) else value)


@pytest.mark.parametrize("corpus", ["corpus", "third"])
@pytest.mark.parametrize("language", LANGUAGES)
async def test_what_an_earlier_program_wrote_shows_what_it_showed(
    corpus: str, language: str, tmp_path: Path, sample: Sample
) -> None:
    """Invariant 24."""
    different: list[str] = []
    count = 0
    for number, scenario in enumerate(scenarios(f"{corpus}-{language}", "sqlite", sample)):
        path = tmp_path / f"{number}.db"
        write_file(path, scenario)
        differences = await _differences(f"sqlite:///{path}", corpus, language, scenario)
        different += differences
        count += len(scenario["shown"])
        path.unlink()
    assert (different, count >= 10) == ([], True)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_what_it_wrote_to_postgresql_shows_what_it_showed(
    language: str, postgres_server: Callable[[int], Server], sample: Sample
) -> None:
    """Invariant 24."""
    different: list[str] = []
    count = 0
    for scenario in scenarios(f"third-{language}", "postgres", sample):
        with postgres_server(18).database() as conninfo:
            fill_database(conninfo, scenario)
            different += await _differences(as_url(conninfo), "third", language, scenario)
        count += len(scenario["shown"])
    assert (different, count >= 1) == ([], True)


ADDED: dict[str, dict[str, Any]] = {
    "RunForked": {"program": "", "input": None, "from_api": False},
    "RunReopened": {"keeps_effects": False},
    "RunStarted": {"namespace": "", "started_by": None, "from_api": False},
    "ChildStarted": {"from_api": False},
}
"""Members that events have gained since, and what they are for events of earlier programs."""

STORY_REASONS = ("ChildStepRunCreated", "JobCompleted")


def without_added(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        if event.get("event_type") == "task.attempt.started":  # a Playbook did not tell it then
            event.get("payload", {}).pop("child_execution_id", None)
        if event.get("event_type") in ("steprun.created", "execution.ended"):  # nor a Story the original's names
            event["payload"] = {name: value for name, value in event["payload"].items() if value not in STORY_REASONS}
    return [
        {
            name: value
            for name, value in event.items()
            if (name, value) not in ADDED.get(event.get("event", ""), {}).items()
        }
        for event in events
    ]


async def _differences(address: str, corpus: str, language: str, scenario: dict[str, Any]) -> list[str]:
    different: list[str] = []
    async with Observer(address, clock=FakeClock(LATER)) as observer:
        for run, shown in scenario["shown"].items():
            now = without_requests(json.loads(jsontext.encode(await observer.show(RunId(run)))))
            events = without_added(to_milliseconds(language, await observer.history(RunId(run))))
            title = f"{language} {scenario['name']} {run}"
            then = scenario["history"][run]
            if corpus == "corpus":
                events, then = without_own(events), told_now(language, then)
            if (now != shown) != (corpus == "corpus" and title in SHOWN_OTHERWISE):
                different.append(f"{title}: show")
            if events != then:
                different.append(f"{title}: history")
    return different
