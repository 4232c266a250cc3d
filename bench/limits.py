"""What the disk and the databases can do at best, right now: no engine can be faster."""

import os
import statistics
import time
from typing import Any

import apsw

from bench.scene import Scene

SECONDS = 0.5
ROW = ("w", 1, b"x" * 100)


def physical(scene: Scene) -> dict[str, float]:
    return {
        "sync_ms": _sync_ms(scene),
        "commits_per_s": _commits(scene, 1),
        "rows_per_s": _commits(scene, 100) * 100,
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
    connection = apsw.Connection(str(scene.folder / f"limit-{rows}.db"))
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table log (id integer primary key, run text, seq integer, body blob)")
    batch, count = [ROW] * rows, 0
    began = time.perf_counter()
    while (taken := time.perf_counter() - began) < SECONDS:
        connection.execute("begin immediate")
        connection.executemany("insert into log (run, seq, body) values (?, ?, ?)", batch)
        connection.execute("commit")
        count += 1
    connection.close()
    return count / taken
