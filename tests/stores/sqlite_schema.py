"""The schema of a new SQLite file, as its migrations leave it.

`python -m tests.stores.sqlite_schema` writes it anew, after a migration was added.
"""

from typing import Any

import apsw

from perdure.stores.sqlite import database

_HEAD = """\
-- What the migrations leave behind in an empty file: a new file gets it in one step.
-- Written by `python -m tests.stores.sqlite_schema`; a change of the schema is a new file in `migrations/`.
"""


def migrated() -> apsw.Connection:
    """An empty file, in memory, after all migrations."""
    connection = apsw.Connection(":memory:")
    for script in database._migrations():
        connection.execute(script)
    connection.pragma("user_version", len(database.migration_names()))
    return connection


def current() -> str:
    """Statements in the order of what they make, then the rows."""
    connection = migrated()
    made = connection.execute("SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY rowid").fetchall()
    lines = [sql for (sql,) in made]
    for table, rows in rows_of(connection).items():
        lines += [f"INSERT INTO {table} VALUES ({', '.join(map(apsw.format_sql_value, row))})" for row in rows]
    lines.append(f"PRAGMA user_version = {connection.pragma('user_version')}")
    return _HEAD + "".join(f"\n{line};\n" for line in lines)


def rows_of(connection: apsw.Connection) -> dict[str, list[tuple[Any, ...]]]:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid").fetchall()
    return {str(table): connection.execute(f"SELECT * FROM {table}").fetchall() for (table,) in tables}


if __name__ == "__main__":
    database._SCHEMA.write_text(current(), encoding="utf-8")
