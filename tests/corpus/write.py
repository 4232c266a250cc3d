"""Writes a corpus with the program as it is: `python -m tests.corpus.write NAME`, for every language on both stores.

Each line is one store: the rows of every table after a scenario of a language was played, and for each run what `show`
and `history` gave. Every fourth scenario has a fork of its first run, at half of its events. A few runs are long enough
for snapshots. On PostgreSQL every sixth scenario stands as it is after a copy. One line is a whole backup file.
"""

import asyncio
import base64
import json
import lzma
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw
import psycopg

import perdure
from perdure.engine.tasks.executor import NullExecutor
from perdure.kernel.json_values import jsontext
from perdure.services.flow.conformance import read_suite
from perdure.stores.admin import copy_store
from perdure.stores.protocol import RunFilter
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import FakeClock
from perdure.testing.opening import worlds_on
from perdure.wiring import Observer, open_admin
from tests.corpus import FOLDER, LATER
from tests.dialects.flow.suite import OWN
from tests.dialects.playbook import cases as playbooks
from tests.dialects.story import cases as stories
from tests.dialects.test_stores import play_flow
from tests.postgres import as_url, server

Play = Callable[..., Awaitable[Any]]
SCENARIOS: dict[str, tuple[Play, Callable[[], Any]]] = {
    "flow": (play_flow, lambda: read_suite([OWN]).scenarios),
    "playbook": (playbooks.stage_play, playbooks.all_cases),
    "story": (stories.stage_play, stories.all_cases),
}
ROUNDS = 120  # tasks of a run that is long enough for snapshots


async def write(name: str) -> None:
    with server(18, f"corpus-{name}") as postgres:
        for language in SCENARIOS:
            lines: list[str] = []
            async for title, path in _stores(language):
                line = await _line(title, path)
                lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
                if len(lines) % 6 == 1:
                    with postgres.database() as conninfo:
                        copied = await asyncio.to_thread(_postgres_line, line, path, as_url(conninfo), conninfo)
                    lines.append(json.dumps(copied, ensure_ascii=False, separators=(",", ":")))
            packed = lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
            (FOLDER / f"{name}-{language}.jsonl.xz").write_bytes(packed)


async def _stores(language: str) -> AsyncIterator[tuple[str, Path]]:
    """Stores that are closed, each with its title."""
    play, cases = SCENARIOS[language]
    with tempfile.TemporaryDirectory() as place:
        for number, case in enumerate(cases()):
            folder = Path(place) / str(number)
            folder.mkdir()
            path = folder / "played.db"
            with worlds_on(lambda where, now, path=path: SqliteStore(path, now)):  # type: ignore[misc]
                stage = await play(case, folder)
                await stage.world.close()
            if number % 4 == 0:
                await _fork(path)
            yield case.name, path
        long = Path(place) / "long.db"
        await _play_long(language, long)
        yield "long", long
        copy_of_it = Path(place) / "backup.db"
        async with Observer(f"sqlite:///{long}") as observer:
            await observer.store.backup(str(copy_of_it))
        yield "backup", copy_of_it


async def _fork(path: Path) -> None:
    """Its first run, where it can be forked, and nothing of the fork is done."""
    address, clock = f"sqlite:///{path}", FakeClock(LATER)
    async with perdure.Engine(address, hands=NullExecutor(), clock=clock, recover=False) as engine:
        run = (await engine.store.search(RunFilter()))[0].id
        for at in range(len(await engine.history(run)) // 2, 0, -1):
            try:
                await engine.fork(run, at)
            except perdure.PerdureError:
                continue
            return


async def _play_long(language: str, path: Path) -> None:
    described = import_module(f"bench.languages.{language}").LANGUAGE
    document = described.sequence(90, "echo") if language == "story" else described.rounds(ROUNDS, "echo")
    async with perdure.Engine(f"sqlite:///{path}") as engine:
        handle = await engine.start(document, {"value": 1} if language == "story" else {"i": 1})
        await handle.result()


async def _line(title: str, path: Path) -> dict[str, Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = [
        str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    ]
    tables = {}
    for name in names:
        if name.startswith("sqlite_"):
            continue
        columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})").fetchall()]
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
        tables[name] = {"columns": columns, "rows": [[_plain(value) for value in row] for row in rows]}
    schema = connection.pragma("user_version")
    connection.close()
    shown, histories = {}, {}
    async with Observer(f"sqlite:///{path}", clock=FakeClock(LATER)) as observer:
        for row in await observer.store.search(RunFilter()):
            shown[row.id] = json.loads(jsontext.encode(await observer.show(row.id)))
            histories[row.id] = json.loads(jsontext.encode(await observer.history(row.id)))
    return {"name": title, "store": "sqlite", "schema": schema, "tables": tables, "shown": shown, "history": histories}


def _postgres_line(line: dict[str, Any], path: Path, url: str, conninfo: str) -> dict[str, Any]:
    clock = FakeClock(LATER)
    target = open_admin(url, clock)
    target.migrate()
    copy_store(open_admin(f"sqlite:///{path}", clock), target)
    tables: dict[str, Any] = {}
    with psycopg.connect(conninfo, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN"
            " ('pg_catalog', 'information_schema') ORDER BY 2"
        ).fetchall()
        for schema, name in rows:
            cursor = connection.execute(f'SELECT * FROM "{schema}"."{name}"')
            columns = [column.name for column in cursor.description or ()]
            tables[name] = {"columns": columns, "rows": [[_plain(value) for value in row] for row in cursor.fetchall()]}
    return {**line, "store": "postgres", "schema": len(_migrations()), "tables": tables}


def _migrations() -> list[str]:
    from perdure.stores.postgres.database import migration_names

    return list(migration_names())


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    return value if isinstance(value, str | int | float | bool | None | list | dict) else {"text": str(value)}


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
