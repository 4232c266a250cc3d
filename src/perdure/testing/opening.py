"""Which store a world is opened on: a SQLite file in its folder, unless a test says otherwise.

    with worlds_on(lambda folder, now: PostgresStore(address_for(folder), now)):
        async with World(folder) as world: ...

The same folder always means the same store, so that a world finds again what it had before a crash.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from perdure.kernel.json_values.values import Instant
from perdure.stores.protocol import Store

Opening = Callable[[Path, Callable[[], Instant]], Store]

_chosen: ContextVar[Opening | None] = ContextVar("opening", default=None)


@contextmanager
def worlds_on(opening: Opening) -> Iterator[None]:
    before = _chosen.set(opening)
    try:
        yield
    finally:
        _chosen.reset(before)


def open_store(folder: Path, now: Callable[[], Instant], vfs: str | None = None) -> Store:
    """`vfs` is a file system of SQLite's: who names one means SQLite."""
    opening = _chosen.get()
    if opening is not None and vfs is None:
        return opening(folder, now)
    from perdure.stores.sqlite.store import SqliteStore

    return SqliteStore(sqlite_path(folder), now, vfs)


def sqlite_path(folder: Path) -> Path:
    return folder / "world.db"
