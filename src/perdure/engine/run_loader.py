"""Bringing runs into memory: many at a time, each folded from what is recorded."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.decision_threads import SMALL
from perdure.engine.run_views import compiled, dialect_of, fold_stored, size_of
from perdure.engine.slot import Slot
from perdure.kernel.dialect import Dialect
from perdure.kernel.execution import Execution
from perdure.kernel.inputs import Start
from perdure.kernel.versions import written_in
from perdure.stores.protocol import Store, Stored, Transition

LOADED_AT_ONCE = 256
PROGRAMS_KEPT = 256


class RunLoader:
    def __init__(
        self,
        store: Store,
        dialects: Mapping[str, Dialect],
        chores: BackgroundTasks,
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
        self._aside = 0  # runs that are being taken in beside the others, because that takes long
        self._compiling: dict[bytes, asyncio.Event] = {}

    @property
    def is_idle(self) -> bool:
        return not self._wanted and not self._is_busy and not self._aside

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
                one = stored.get(slot.id)
                if self._is_quick(slot, one):
                    await self._found(slot, one)
                else:
                    self._aside += 1
                    self._chores.spawn(self._find_aside(slot, one))
            await asyncio.sleep(0)
        self._is_busy = False

    def _is_quick(self, slot: Slot, stored: Stored | None) -> bool:
        """Whether those behind it may wait: there is little to fold and nothing to compile."""
        if stored is not None:
            return stored.row.program in self._programs and size_of(stored) <= SMALL
        starts = (mail.given for mail in slot.mailbox if isinstance(mail.given, Start))
        return all(start.program in self._programs for start in starts)

    async def _find_aside(self, slot: Slot, stored: Stored | None) -> None:
        try:
            await self._found(slot, stored)
        finally:
            self._aside -= 1

    async def fold(self, stored: Stored) -> Execution:
        dialect = dialect_of(self._dialects, stored.row.language)
        return await fold_stored(self._store, stored, dialect, await self.program(stored.row.program, dialect))

    async def program(self, name: bytes, dialect: Dialect) -> Any:
        while (under_way := self._compiling.get(name)) is not None:
            await under_way.wait()
        if name in self._programs:
            self._programs.move_to_end(name)
            return self._programs[name]
        done = self._compiling[name] = asyncio.Event()
        try:
            pinned = await self._store.program(name)
            if pinned is None:
                raise LookupError(f"document {name.hex()[:12]} is not in the store")
            program = await compiled(dialect, *pinned)
        finally:
            del self._compiling[name]
            done.set()
        self._programs[name] = program
        if len(self._programs) > PROGRAMS_KEPT:
            self._programs.popitem(last=False)
        return program

    def mark_editions(self, change: Transition) -> None:
        """Documents as they are pinned, so that an older program does not misread them."""
        editions = {name: written_in(dialect) for name, dialect in self._dialects.items()}
        change.programs = [(name, editions.get(language, language), text) for name, language, text in change.programs]
