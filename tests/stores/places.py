"""Where a store can be: a file, or a database on any server we test with."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg

from perdure.kernel.json_values.values import Instant
from perdure.stores.admin import StoreAdmin
from perdure.stores.postgres.admin import PostgresAdmin
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Store
from perdure.stores.sqlite.admin import SqliteAdmin
from perdure.stores.sqlite.database import path_of
from perdure.stores.sqlite.store import SqliteStore
from tests.postgres import Server
from tests.stores.test_postgres import as_url

NOW: Instant = 1_000

WAYS = [("sqlite", "sqlite"), ("sqlite", "15"), ("sqlite", "18"), ("18", "sqlite"), ("15", "18")]
"""Pairs of places between which everything is carried."""


class Place(Protocol):
    address: str

    def open(self) -> Store: ...

    def caretaker(self) -> StoreAdmin: ...

    def forget_dead_owners(self) -> None:
        """As if the leases of whoever died here had run out."""


@dataclass
class File:
    address: str

    def open(self) -> Store:
        return SqliteStore(path_of(self.address), lambda: NOW)

    def caretaker(self) -> StoreAdmin:
        return SqliteAdmin(path_of(self.address), lambda: NOW)

    def forget_dead_owners(self) -> None:
        """A lock is free at the instant of death."""


@dataclass
class Database:
    address: str

    def open(self) -> Store:
        return PostgresStore(self.address, lambda: NOW)

    def caretaker(self) -> StoreAdmin:
        return PostgresAdmin(self.address)

    def forget_dead_owners(self) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("UPDATE perdure.servers SET until = 0")


def place(kind: str, name: str, folder: Path, servers: Callable[[int], Server], stack: ExitStack) -> Place:
    """An empty one of this kind: `sqlite`, or a version of PostgreSQL."""
    if kind == "sqlite":
        return File(f"sqlite:///{folder / name}.db")
    return Database(as_url(stack.enter_context(servers(int(kind)).database())))
