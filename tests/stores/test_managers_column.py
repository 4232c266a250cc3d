"""Who has set which fields of an entry, in stores that an earlier version has written (SRV-079)."""

from pathlib import Path

import apsw

from perdure.engine.clock import SystemClock
from perdure.kernel.documents.lookups import ResourceKey
from perdure.stores.sqlite import database
from perdure.wiring import open_store

OLDER = "0024_field_managers.sql"
"""The migration from entries beside entries to a column."""


async def test_managers_become_a_column_of_their_entries(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with apsw.Connection(str(path)) as connection:
        names = database.migration_names()
        for script in database._migrations()[: names.index(OLDER)]:
            connection.execute(script)
        connection.pragma("user_version", names.index(OLDER))
        connection.pragma("application_id", database.APPLICATION_ID)
        rows = [
            ("Story", "x", "u1", b"{}", b""),
            ("ManagersOfStory", "x", "u2", b'{"managers":[{"manager":"one"}]}', b""),
            ("ConfigMap", "c", "u3", b"{}", b'{"managers":[]}'),
        ]
        for version, (kind, name, uid, body, source) in enumerate(rows, 1):
            connection.execute(
                "INSERT INTO resources VALUES (?, 'default', ?, ?, 1, ?, ?, ?, NULL, NULL, 1, 1, 0)",
                (kind, name, uid, version, body, source),
            )
            connection.execute("INSERT INTO editions VALUES (?, 1, ?, ?, 1)", (uid, body, source))
            connection.execute("INSERT INTO limits VALUES (?, 1)", (f"resource:{kind}/default/{name}",))
    connection.close()

    store = open_store(f"sqlite:///{path}", SystemClock())
    try:
        keys = [ResourceKey(kind, "default", name) for kind, name, *_ in rows]
        kept = await store.resources(keys)
        assert {key: row.managers for key, row in kept.items()} == {keys[0]: b'[{"manager":"one"}]', keys[2]: b"[]"}
        assert kept[keys[2]].source == b""
    finally:
        await store.close()
    with apsw.Connection(str(path)) as connection:
        assert connection.execute("SELECT count(*) FROM editions").get == 2
        assert connection.execute("SELECT scope FROM limits ORDER BY scope").fetchall() == [
            ("resource:ConfigMap/default/c",),
            ("resource:Story/default/x",),
        ]
