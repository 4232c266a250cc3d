"""Removing what has been kept long enough, as its language says: children first, then the run itself.

In bounded batches. A run is told to `clean` and records it before anything of it goes, so that a crash between the two
is made up for by the next sweep.
"""

import asyncio

import msgspec

from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.engine.run_removal import descendants
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Retention
from perdure.kernel.errors import NewerRecord
from perdure.kernel.execution import Execution
from perdure.kernel.values import Instant, RunId
from perdure.kernel.versions import read_pinned
from perdure.stores.commit_types import Message
from perdure.stores.protocol import RunRow

LOOKED_AT_ONCE = 500
MOST_KNOWN = 100_000
PATIENCE = 40  # looks, 50 ms apart, at a run that another process has to write to


class Swept(msgspec.Struct, frozen=True):
    cleaned: int = 0
    removed: int = 0


class Sweeper:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._keeping: dict[bytes, Retention] = {}
        self._clean: set[RunId] = set()  # known to be

    async def sweep(self, limit: int = 500) -> Swept:
        """Clean or remove up to `limit` runs whose time has come, those that ended first first."""
        client = self._client
        keeping = [name for name, language in client.languages.items() if language.has_retention]
        cleaned = removed = 0
        behind: tuple[Instant, RunId] = (0, RunId(""))
        while cleaned + removed < limit and (rows := await client.store.ended(keeping, behind, LOOKED_AT_ONCE)):
            for row in rows:
                if cleaned + removed >= limit:
                    break
                try:
                    done = await self._look(row)
                except NewerRecord:
                    continue  # who can read it looks after it
                cleaned, removed = cleaned + done.cleaned, removed + done.removed
            behind = (rows[-1].ended_at or 0, rows[-1].id)
        if len(self._clean) > MOST_KNOWN:
            self._clean.clear()
        if removed:
            await client.store.prune(0, 1)  # which finds none, and clears what no run names any more
        return Swept(cleaned, removed)

    async def _look(self, row: RunRow) -> Swept:
        keeping = await self._keeping_of(row)
        if keeping is None or row.ended_at is None:
            return Swept()
        age = self._client.clock.now() - row.ended_at
        cleaned = 0
        if keeping.children is not None and age >= keeping.children and row.id not in self._clean:
            was_clean = await self._cleaned(row)
            if was_clean is None:
                return Swept()  # something of it has not ended, or nobody could write to it
            cleaned += not was_clean
        if keeping.record is None or age < keeping.record or not await self.remove(row.id):
            return Swept(cleaned)
        self._clean.discard(row.id)
        return Swept(cleaned, 1)

    async def remove(self, run: RunId) -> bool:
        """The run, its children before it; False when some of them have not ended, or have words to be decided."""
        store = self._client.store
        below = await descendants(store, run)
        if any(not row.status.is_final for row in below) or await store.unstarted_children(run):
            return False
        if any(row.has_control_messages for row in (await self._client.find(run), *below)):
            return False
        await self._remove_entries(run)
        return run in await self._client.store.remove([*(row.id for row in reversed(below)), run])

    async def disown(self, run: RunId) -> None:
        """Have a run removed, by whoever owns it, once what is below it has been cancelled and has stopped."""
        await self._remove_entries(run)
        await self._client.store.send(Message(run, self._client.clock.now(), i.encode(i.Disown())))

    async def _remove_entries(self, run: RunId) -> None:
        row = await self._client.find(run)
        execution = await run_views.load(self._client.store, self._client.languages, row)
        language = self._client.languages[row.language]
        if entries := language.goes_with(execution):
            await self._client.catalog.delete(entries)

    async def _keeping_of(self, row: RunRow) -> Retention | None:
        language = self._client.languages.get(row.language)
        if language is None or not language.has_retention:
            return None
        if row.program not in self._keeping:
            pinned = await self._client.store.program(row.program)
            if pinned is None:
                return None
            self._keeping[row.program] = language.retention(read_pinned(language, *pinned))
        return self._keeping[row.program]

    async def _cleaned(self, row: RunRow) -> bool | None:
        """Have the run note that its children go, and remove them; whether that was done before; None: not now."""
        client = self._client
        below = await descendants(client.store, row.id)
        if any(not row_below.status.is_final for row_below in below):
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
        return dialect.has_retention and dialect.is_clean(execution)
