"""Stores that an earlier program wrote are opened, brought up to date, and show what they showed then.

Each line of a corpus is one scenario of a language, played by the program before the third vocabulary of records
(`RECORDS` 2, SQLite schema 4): the rows of every table, and for each run what `show` and `history` gave.
"""

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.kernel import jsontext
from perdure.kernel.values import RunId
from perdure.stores.sqlite import database
from perdure.testing import FakeClock
from perdure.wiring import Observer
from tests.corpus.changes import SHOWN_OTHERWISE, told_now, without_own
from tests.sampling import Sample

FOLDER = Path(__file__).parent
SCHEMA = 4
LATER = 1_900_000_000_000_000


def scenarios(language: str, sample: Sample) -> Iterator[dict[str, Any]]:
    """One in twelve at each commit (see `tests/sampling.py`)."""
    text = lzma.decompress((FOLDER / f"corpus-{language}.jsonl.xz").read_bytes())
    lines = text.splitlines()
    for line in sample.take(lines, 12):
        yield json.loads(line)


def write_store(path: Path, tables: dict[str, Any]) -> None:
    """A file as the earlier program left it."""
    connection = apsw.Connection(str(path))
    migrations = Path(database.__file__).parent / "migrations"
    for name in sorted(script.name for script in migrations.glob("*.sql"))[:SCHEMA]:
        connection.execute((migrations / name).read_text("utf-8"))
    connection.pragma("user_version", SCHEMA)
    connection.pragma("application_id", database.APPLICATION_ID)
    kinds = {
        (table, column): kind
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
    }
    for table, held in tables.items():
        if table.startswith("sqlite_"):
            continue
        columns = held["columns"]
        places = ", ".join("?" * len(columns))
        connection.execute(f"DELETE FROM {table}")
        for row in held["rows"]:
            values = [
                base64.b64decode(value) if kinds[(table, column)] == "BLOB" and value is not None else value
                for column, value in zip(columns, row, strict=True)
            ]
            connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", values)
    connection.close()


@pytest.mark.parametrize("language", ["flow", "playbook", "story"])
async def test_what_an_earlier_program_wrote_shows_what_it_showed(
    language: str, tmp_path: Path, sample: Sample
) -> None:
    """Invariant 24."""
    different: list[str] = []
    count = 0
    for number, scenario in enumerate(scenarios(language, sample)):
        path = tmp_path / f"{number}.db"
        write_store(path, scenario["tables"])
        async with Observer(f"sqlite:///{path}", clock=FakeClock(LATER)) as observer:
            for run, shown in scenario["shown"].items():
                count += 1
                now = json.loads(jsontext.encode(await observer.show(RunId(run))))
                told = json.loads(jsontext.encode(await observer.history(RunId(run))))
                title = f"{language} {scenario['name']} {run}"
                if (now != shown) != (title in SHOWN_OTHERWISE):
                    different.append(f"{title}: show")
                if without_own(told) != told_now(language, scenario["history"][run]):
                    different.append(f"{title}: history")
        path.unlink()
    assert (different, count >= 10) == ([], True)
