"""What the disk and the databases can do at best, right now, and what a program without features makes of that."""

import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw

from bench.scene import Scene

SECONDS = 0.5
ROW = ("w", 1, b"x" * 100)
INSERT = "insert into log (run, seq, body) values (?, ?, ?)"
ROWS_A_COMMIT = 50  # as many as Perdure has in short workflows and parallel steps


def physical(scene: Scene) -> dict[str, float]:
    return {
        "sync_ms": _sync_ms(scene),
        "commits_per_s": _commits(scene, 1),
        "rows_per_s": _commits(scene, 100) * 100,
        "minimal_short_per_s": _short_workflows(scene),
        "minimal_long_per_s": _long_workflow(scene),
    }


def physical_of_postgres(scene: Scene) -> dict[str, float]:
    import psycopg

    from bench import postgres

    with psycopg.connect(postgres.start(scene), autocommit=True) as connection:
        connection.execute(
            "create table log (id bigint generated always as identity primary key, run text, body bytea)"
        )
        return {
            "postgres_commits_per_s": _inserts(connection, 1),
            "postgres_rows_per_s": _inserts(connection, 100) * 100,
        }


def _inserts(connection: Any, rows: int) -> float:
    """The same with PostgreSQL: one statement, which is a transaction, each."""
    batch = [[ROW[0]] * rows, [ROW[2]] * rows]
    count, began = 0, time.perf_counter()
    while (taken := time.perf_counter() - began) < SECONDS:
        connection.execute("insert into log (run, body) select * from unnest(%s::text[], %s::bytea[])", batch)
        count += 1
    return count / taken


def _sync_ms(scene: Scene) -> float:
    """Median of appending 4 KiB and syncing them."""
    file = os.open(scene.folder / "synced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    block, times, end = b"x" * 4096, [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        os.write(file, block)
        os.fdatasync(file)
        times.append(time.perf_counter() - began)
    os.close(file)
    return statistics.median(times) * 1e3


def _commits(scene: Scene, rows: int) -> float:
    """Synced commits a second, with so many rows of 100 bytes in each."""
    connection = _log(scene, f"limit-{rows}")
    batch, count = [ROW] * rows, 0
    began = time.perf_counter()
    while (taken := time.perf_counter() - began) < SECONDS:
        _commit(connection, batch)
        count += 1
    connection.close()
    return count / taken


def _short_workflows(scene: Scene) -> float:
    """Steps a second of a program without features: the function is called, its result is a row, rows are committed."""
    connection, sizes = _log(scene, "minimal-short"), scene.sizes
    rows: list[tuple[str, int, bytes]] = []
    values: dict[str, Any] = {f"w{number}": {"i": 1, "n": ""} for number in range(sizes.workflows)}
    began = time.perf_counter()
    for at in range(sizes.steps):
        for run, value in values.items():
            values[run] = _step(value)
            rows.append((run, at, json.dumps(values[run]).encode()))
            if len(rows) == ROWS_A_COMMIT:
                _commit(connection, rows)
                rows.clear()
    _commit(connection, rows)
    taken = time.perf_counter() - began
    connection.close()
    return sizes.workflows * sizes.steps / taken


def _long_workflow(scene: Scene) -> float:
    """The same for one workflow whose function works in a thread: every step is a commit of its own."""
    connection, rounds = _log(scene, "minimal-long"), scene.sizes.rounds
    value: Any = {"i": 1, "n": ""}
    with ThreadPoolExecutor(1) as threads:
        began = time.perf_counter()
        for at in range(rounds):
            value = threads.submit(_step, value).result()
            _commit(connection, [("w", at, json.dumps(value).encode())])
        taken = time.perf_counter() - began
    connection.close()
    return rounds / taken


def _step(value: Any) -> Any:
    return value


def _log(scene: Scene, name: str) -> apsw.Connection:
    connection = apsw.Connection(str(scene.folder / f"{name}.db"))
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table log (id integer primary key, run text, seq integer, body blob)")
    return connection


def _commit(connection: apsw.Connection, rows: list[tuple[str, int, bytes]]) -> None:
    connection.execute("begin immediate")
    connection.executemany(INSERT, rows)
    connection.execute("commit")
