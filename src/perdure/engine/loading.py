"""Bringing runs into memory: many at a time, each folded from what is recorded."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from perdure.engine.chores import Chores
from perdure.engine.slot import Slot
from perdure.engine.views import dialect_of, fold_stored
from perdure.kernel.dialect import Dialect
from perdure.kernel.execution import Execution
from perdure.kernel.versions import read_pinned, written_in
from perdure.stores.protocol import Store, Stored, Transition

LOADED_AT_ONCE = 256
PROGRAMS_KEPT = 256


class Loader:
    def __init__(
        self,
        store: Store,
        dialects: Mapping[str, Dialect],
        chores: Chores,
        found: Callable[[Slot, Stored | None], Awaitable[None]],
    ) -> None:
        """`found` gets each slot with what the store has of it, if anything."""
        self._store = store
        self._dialects = dialects
        self._chores = chores
        self._found = found
        self._wanted: deque[Slot] = deque()
        self._programs: OrderedDict[bytes, Any] = OrderedDict()
        self._is_busy = False

    @property
    def is_idle(self) -> bool:
        return not self._wanted and not self._is_busy

    def want(self, slot: Slot) -> None:
        self._wanted.append(slot)
        if not self._is_busy:
            self._is_busy = True
            self._chores.spawn(self._load())

    def close(self) -> None:
        self._wanted.clear()

    async def _load(self) -> None:
        while self._wanted:
            slots = [self._wanted.popleft() for _ in range(min(len(self._wanted), LOADED_AT_ONCE))]
            stored = {one.row.id: one for one in await self._store.load([slot.id for slot in slots])}
            for slot in slots:
                await self._found(slot, stored.get(slot.id))
            await asyncio.sleep(0)
        self._is_busy = False

    async def fold(self, stored: Stored) -> Execution:
        dialect = dialect_of(self._dialects, stored.row.language)
        return await fold_stored(self._store, stored, dialect, await self.program(stored.row.program, dialect))

    async def program(self, name: bytes, dialect: Dialect) -> Any:
        program = self._programs.get(name)
        if program is None:
            pinned = await self._store.program(name)
            if pinned is None:
                raise LookupError(f"document {name.hex()[:12]} is not in the store")
            program = self._programs[name] = read_pinned(dialect, *pinned)
            if len(self._programs) > PROGRAMS_KEPT:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(name)
        return program

    def mark_editions(self, change: Transition) -> None:
        """Documents as they are pinned, so that an older program does not misread them."""
        editions = {name: written_in(dialect) for name, dialect in self._dialects.items()}
        change.programs = [(name, editions.get(language, language), text) for name, language, text in change.programs]
