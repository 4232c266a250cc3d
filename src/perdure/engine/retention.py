"""Removing what has been kept long enough, as its language says: children first, then the run itself.

In bounded batches. A run is told to `clean` and records it before anything of it goes, so that a crash between the two
is made up for by the next sweep.
"""

import asyncio

import msgspec

from perdure.engine import views
from perdure.engine.client import Client
from perdure.kernel.dialect import Keeping, Retaining
from perdure.kernel.execution import Execution
from perdure.kernel.outcomes import Status
from perdure.kernel.values import RunId
from perdure.stores.protocol import Filter, RunRow

FINAL = tuple(status for status in Status if status.is_final)
PATIENCE = 40  # looks, 50 ms apart, at a run that another process has to write to


class Swept(msgspec.Struct, frozen=True):
    cleaned: int = 0
    removed: int = 0


class Sweeper:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._keeping: dict[bytes, Keeping] = {}
        self._clean: set[RunId] = set()  # known to be

    async def sweep(self, limit: int = 500) -> Swept:
        """Clean or remove up to `limit` runs whose time has come."""
        client, now = self._client, self._client.clock.now()
        rows = await client.search(Filter(statuses=FINAL, roots_only=True))
        cleaned = removed = 0
        for row in sorted(rows, key=lambda one: one.ended_at or 0):
            if cleaned + removed >= limit:
                break
            keeping = await self._keeping_of(row)
            if keeping is None or row.ended_at is None:
                continue
            age = now - row.ended_at
            if keeping.children is not None and age >= keeping.children and row.id not in self._clean:
                was_clean = await self._cleaned(row)
                if was_clean is None:
                    continue  # something of it has not ended, or nobody could write to it
                cleaned += not was_clean
            if keeping.record is not None and age >= keeping.record:
                removed += await self.remove(row.id)
        self._clean &= {row.id for row in rows}
        return Swept(cleaned, removed)

    async def remove(self, run: RunId) -> bool:
        """The run, its children before it; False when some of them have not ended."""
        below = await self.descendants(run)
        if any(not row.status.is_final for row in below):
            return False
        row = await self._client.find(run)
        execution = await views.load(self._client.store, self._client.languages, row)
        language = self._client.languages[row.language]
        if isinstance(language, Retaining) and (entries := language.goes_with(execution)):
            await self._client.catalog.delete(entries)
        await self._client.store.remove([*(one.id for one in reversed(below)), run])
        return True

    async def _keeping_of(self, row: RunRow) -> Keeping | None:
        language = self._client.languages.get(row.language)
        if not isinstance(language, Retaining):
            return None
        if row.program not in self._keeping:
            pinned = await self._client.store.program(row.program)
            if pinned is None:
                return None
            self._keeping[row.program] = language.keeping(language.load(pinned[1]))
        return self._keeping[row.program]

    async def _cleaned(self, row: RunRow) -> bool | None:
        """Have the run note that its children go, and remove them; whether that was done before; None: not now."""
        client = self._client
        below = await self.descendants(row.id)
        if any(not one.status.is_final for one in below):
            return None
        execution = await client.execution(row.id)
        was_clean = self._is_clean(execution)
        if not was_clean:
            await client.steer(row.id, "clean", key=f"clean:{execution.state.incarnation}", by="retention")
            if client.runtime is not None and not await client.store.owned([row.partition]):
                await client.runtime.adopt([row.id])
            for _ in range(PATIENCE):
                if self._is_clean(await client.execution(row.id)):
                    break
                await asyncio.sleep(0.05)
            else:
                return None
        if below:
            await client.store.remove([one.id for one in reversed(below)])
        self._clean.add(row.id)
        return was_clean

    def _is_clean(self, execution: Execution) -> bool:
        dialect = execution.dialect
        return isinstance(dialect, Retaining) and dialect.is_clean(execution)

    async def descendants(self, run: RunId) -> list[RunRow]:
        """Parents before their children."""
        found: list[RunRow] = []
        waiting = [run]
        while waiting:
            rows = await self._client.search(Filter(parent=waiting.pop()))
            found += rows
            waiting += [row.id for row in rows]
        return found
