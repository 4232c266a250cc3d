"""`sqlite`: statements on a SQLite file, in the manner of the other databases (PBK-097)."""

from perdure.dialects.playbook.tools.databases import database

KIND = database("sqlite", ("database",))
