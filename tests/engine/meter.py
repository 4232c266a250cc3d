"""Counts work instead of time: what the store is asked to write, and how often the disk is told to sync."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import ScriptedHands
from perdure.wiring import Engine
from tests.engine.forgetful_vfs import ForgetfulVFS


class Meter:
    """Counts what the store is asked to write."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.commits = 0
        self.rows = 0
        self.bytes: list[int] = []  # of each transition, its snapshot included
        self.row_bytes: list[int] = []
        self.value_bytes = 0  # beside the log
        self.summaries = 0
        self.snapshots = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _count(self, batch: Any) -> None:
        self.commits += 1
        for change in batch:
            self.rows += change.row is not None
            self.row_bytes.append(len(change.row or b""))
            self.bytes.append(len(change.row or b"") + len(change.snapshot or b""))
            self.value_bytes += sum(len(text) for _, text in change.values)
            self.summaries += change.summary is not None
            self.snapshots += change.snapshot is not None

    def commit_at_once(self, batch: Any) -> Any:
        answer = self._inner.commit_at_once(batch)
        if answer is not None:
            self._count(batch)
        return answer

    async def commit(self, batch: Any) -> Any:
        self._count(batch)
        return await self._inner.commit(batch)


_numbers = count()


@asynccontextmanager
async def metered(
    folder: Path, functions: dict[str, Callable[[Any, Any], Any]] | None = None, settings: Settings | None = None
) -> AsyncIterator[tuple[Engine, Meter, ForgetfulVFS]]:
    """An engine whose tasks end at once; its start and its end count nowhere."""
    name = f"metered-{next(_numbers)}"
    vfs = ForgetfulVFS(name, only_counts=True)
    clock = SystemClock()
    meter = Meter(SqliteStore(folder / "runs.db", clock.now, name))
    engine = Engine(meter, clock=clock, hands=ScriptedHands(functions), settings=settings or Settings())
    await engine.runtime.open()
    vfs.syncs = 0
    try:
        yield engine, meter, vfs
    finally:
        await engine.runtime.close()
