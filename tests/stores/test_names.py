"""Names of runs in stores that were made before names were kept: the first has its name, the others are reported."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import psycopg

from perdure.engine.clock import SystemClock
from perdure.stores.protocol import RunFilter
from perdure.stores.sqlite import database
from perdure.wiring import open_admin, open_store
from tests.postgres import as_url

_RUN = (
    "INSERT INTO runs (id, partition, language, name, program, labels, key, status, has_work, created_at, ended_at)"
    " VALUES (?, 1, ?, 'n', ?, ?, x'00', 'succeeded', 0, ?, 5)"
)
LABEL = "bubustack.io/storyrun"


def older(path: Path, before: str) -> None:
    """A store as it was before a migration, with runs of several namespaces in it."""
    names = database.migration_names()
    scripts = [(database._MIGRATIONS / name).read_text() for name in names[: names.index(before)]]
    with closing(apsw.Connection(str(path))) as store:
        for script in scripts:
            store.execute(script)
        store.pragma("user_version", len(scripts))
        store.pragma("application_id", database.APPLICATION_ID)
        for place, namespace in enumerate(("one", "two")):
            text = json.dumps({"story": {"metadata": {"name": "s", "namespace": namespace}}}).encode()
            store.execute("INSERT INTO programs VALUES (?, 'story', ?)", (bytes([place]), text))
        rows = [("a", 0, "x"), ("b", 0, "x"), ("c", 1, "x"), ("d", 0, "y")]
        for at, (id, program, name) in enumerate(rows):
            store.execute(_RUN, (id, "story", bytes([program]), json.dumps({LABEL: name}), at))
        store.execute(_RUN, ("e", "flow", b"\x00", None, 9))


async def test_of_two_runs_with_one_name_the_first_keeps_it_and_the_other_is_reported(tmp_path: Path) -> None:
    """STY-284."""
    path = tmp_path / "runs.db"
    older(path, "0009_names.sql")
    store = open_store(f"sqlite:///{path}", SystemClock())
    try:
        assert await store.run_named("story", "one", "x") == "a"
        assert await store.run_named("story", "two", "x") == "c"
        assert await store.run_named("story", "one", "y") == "d"
    finally:
        await store.close()
    with open_admin(f"sqlite:///{path}", SystemClock()).snapshot() as dump:
        doubles = [
            (row.run, row.message) for row in dump.orphan_rows(100) if row.what == "runs" and "name" in row.message
        ]

    assert doubles == [("b", "its name 'x' belongs to another run, which was there before")]


def test_validate_names_those_who_came_second(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    older(path, "0009_names.sql")
    for verb, code in (("migrate", 0), ("validate", 7)):
        command = [sys.executable, "-m", "perdure", "db", verb, "--db", f"sqlite:///{path}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr

    assert "its name 'x' belongs to another run" in done.stdout + done.stderr


async def test_on_postgresql_the_first_keeps_it_too(postgres_url: str) -> None:
    url = as_url(postgres_url)
    await open_store(url, SystemClock()).close()
    with psycopg.connect(postgres_url) as store:  # as it was before runs had names
        store.execute("SET search_path = perdure")
        newer = "namespace opener turn offered_at lease request holder touched releases answer lost_lease lost_delivery"
        newest = ("pipeline", "number", "reported")
        dropped = ", ".join(f"DROP COLUMN {name}" for name in ["place", "machine", *newer.split(), *newest])
        store.execute(f"ALTER TABLE tasks {dropped}")
        store.execute("DROP TABLE workers")
        store.execute("ALTER TABLE runs DROP COLUMN namespace")
        store.execute("DROP VIEW run_counts")
        store.execute("DROP FUNCTION count_run, add_up_run_counts CASCADE")
        store.execute("DROP TABLE run_count_sums, run_count_changes")
        store.execute("DROP INDEX runs_called, runs_label_values, runs_in_language, runs_stuck")
        store.execute("DROP INDEX runs_newest")
        store.execute("CREATE INDEX runs_latest ON runs (created_at, number)")
        store.execute("ALTER TABLE resources DROP COLUMN from_api, DROP COLUMN managers")
        store.execute("ALTER TABLE servers DROP COLUMN machine")
        store.execute("DROP TABLE names")
        store.execute("DROP TABLE task_logs, stream_rows, access_tokens, audit, audit_seals, request_keys")
        store.execute("DROP TABLE feed, feed_state, hooks, hook_deliveries, sessions")
        store.execute("UPDATE schema SET version = 5")
        for place, namespace in enumerate(("one", "two")):
            text = json.dumps({"story": {"metadata": {"name": "\0", "namespace": namespace}}}).encode()
            store.execute(
                "INSERT INTO programs (digest, language, text) VALUES (%s, 'story', %s)", (bytes([place]), text)
            )
        for at, (id, program, name) in enumerate([("a", 0, "x"), ("b", 0, "x"), ("c", 1, "x"), ("d", 0, "y")]):
            store.execute(
                "INSERT INTO runs (id, number, partition, language, name, program, labels, key, status, has_work,"
                " created_at, ended_at) VALUES (%s, %s, 1, 'story', 'n', %s, %s, '', 'succeeded', false, %s, 5)",
                (id, at, bytes([program]), json.dumps({LABEL: name}), at),
            )
    open_admin(url, SystemClock()).migrate()
    store_again = open_store(url, SystemClock())
    try:
        assert await store_again.run_named("story", "one", "x") == "a"
        assert await store_again.run_named("story", "two", "x") == "c"
        namespaces = {row.id: row.namespace for row in await store_again.search(RunFilter())}
        assert namespaces == {"a": "one", "b": "default", "c": "two", "d": "one"}
    finally:
        await store_again.close()
    with open_admin(url, SystemClock()).snapshot() as dump:
        assert [row.run for row in dump.orphan_rows(100) if "its name" in row.message] == ["b"]
