"""What can be wrong with a store, and what to do about it."""

from perdure.kernel.errors import PerdureError


class StoreError(PerdureError):
    """The store failed in a way that has no name of its own."""

    code = "STORE-FAILED"
    hint = "Nothing acknowledged is lost. Look at the message, then continue with `perdure resume`."


class StoreFull(StoreError):
    """There is not enough disk space for another commit."""

    code = "STORE-FULL"
    hint = (
        "Free space on its disk or give it a larger one, or remove old runs with `perdure prune --older-than 30d`, then"
        " continue with `perdure resume`."
    )


class StoreLocked(StoreError):
    """Another program keeps the file locked."""

    code = "STORE-LOCKED"
    hint = "Find the program that holds the file open in a transaction (a SQLite shell, a backup) and end it."


class StoreMoved(StoreError):
    """The store's file was deleted, replaced or written over while it was in use."""

    code = "STORE-MOVED"
    hint = (
        "What was reported before this is in the file that was there. Put the right file in place (`perdure restore`"
        " brings a backup back), then start again."
    )


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written."""

    code = "STORE-READ-ONLY"
    hint = "Give write permission to the file and to its folder, or choose another file with --db."


class StoreCorrupt(StoreError):
    """The file is damaged, or it is not a Perdure store at all."""

    code = "STORE-CORRUPT"
    hint = "Check the path given with --db; restore the file from a copy made with `perdure backup`."


class StoreNewer(StoreError):
    """The file was written by a newer Perdure."""

    code = "STORE-NEWER"
    hint = "Upgrade Perdure, or choose another file with --db. The file was not touched."


class StoreMissing(StoreError):
    """There is no such file, and the command only reads."""

    code = "STORE-MISSING"
    hint = "Start a run first (`perdure run FILE`), or name the file with --db sqlite:///path/to/runs.db."


class BadStoreUrl(StoreError):
    """The store's address is not understood."""

    code = "STORE-URL"
    hint = (
        "Use sqlite:///runs.db for a file in the current folder, sqlite:////var/lib/runs.db for an absolute path, or"
        " postgresql://user@host:5432/database."
    )


class StoreInUse(StoreError):
    """A live engine owns runs of the store, and what was asked for needs it to stand still."""

    code = "STORE-IN-USE"
    hint = "Stop every engine on the store (`perdure serve`, `perdure run`, scripts), then try again."


class StoreNotEmpty(StoreError):
    """A copy needs a store in which there is nothing yet."""

    code = "STORE-NOT-EMPTY"
    hint = "Name a file that does not exist yet, or an empty database."


class CopyDiffers(StoreError):
    """What arrived is not what was sent; nothing of it was kept."""

    code = "COPY-DIFFERS"
    hint = "Look at the source with `perdure db validate`; report a bug if that finds nothing."


class StoreUnreachable(StoreError):
    """The database server does not answer, or the connection was lost and could not be had again in time."""

    code = "STORE-UNREACHABLE"
    hint = "Check that the server runs and that host and port are right. Nothing acknowledged is lost."


class StoreAccessDenied(StoreError):
    """The server knows us not: a wrong password, an unknown role, or a host that may not connect."""

    code = "STORE-ACCESS-DENIED"
    hint = "Check user and password (in the address, in PGPASSWORD or in ~/.pgpass) and the server's pg_hba.conf."


class StoreRightsMissing(StoreError):
    """The role may connect, but not do what is needed."""

    code = "STORE-RIGHTS-MISSING"
    hint = "Give the role the rights that docs/reference/postgres.md lists."


class StoreServerUnfit(StoreError):
    """The database server is too old, or set up in a way that Perdure cannot work with."""

    code = "STORE-SERVER-UNFIT"
    hint = "Use PostgreSQL 15 or newer, and a database with the encoding UTF8."


class StoreNotDurable(StoreError):
    """The server may lose what it has acknowledged (`fsync = off`)."""

    code = "STORE-NOT-DURABLE"
    hint = "Set `fsync = on` in postgresql.conf and reload. Perdure promises that nothing acknowledged is lost."


class StoreClockBehind(StoreError):
    """The clock is more than a day behind what the store has recorded."""

    code = "STORE-CLOCK-BEHIND"
    hint = "Set the clock of this machine (on PostgreSQL: of the database's), then try again. Nothing was touched."


class StoreDriverMissing(StoreError):
    """The package that speaks to the database is not installed."""

    code = "STORE-DRIVER-MISSING"
    hint = "Install it: pip install 'perdure[postgres]'"


class BackupRefused(StoreError):
    """This store is not copied by Perdure, but by the tools of its database."""

    code = "STORE-BACKUP"
    hint = "Use the database's own tools."


class NotTheEnd(LookupError):
    """A transition was decided after an event that is not the last one of its log."""
