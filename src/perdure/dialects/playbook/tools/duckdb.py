"""`duckdb`: statements on a DuckDB database (PBK-097)."""

from perdure.dialects.playbook.tools.databases import database

KIND = database("duckdb", ("database",))
