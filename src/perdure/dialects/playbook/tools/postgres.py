"""`postgres`: statements on a PostgreSQL server (PBK-097)."""

from perdure.dialects.playbook.tools.databases import database

KIND = database("postgres", ("dsn", "host", "port", "user", "password", "dbname"))
