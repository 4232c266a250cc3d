"""Taking up what other processes left behind: families of runs, one by one, that can be done here.

    no live owner ─▶ all it needs is loaded here ─▶ moved into our partition, goes on
                  └▶ something is missing: left alone, for whoever has it      ◀── given back when that turns out later

A family is a root run with everything below it. Nothing is taken for being in the same partition as something else: a
process that cannot do a run must not be its live owner, or whoever can would be locked out.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from perdure.engine.context import EngineContext
from perdure.engine.runs import run_views
from perdure.engine.runs.run_removal import descendants
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.ids import root_of
from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.permits import RESOURCES, resource_of
from perdure.stores.errors import StoreError
from perdure.stores.protocol import RunRow, Store

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

# Runs that wait for a resource which loaded code stands for: nobody applies it, so nobody else tells them.


async def brought_by_code(
    store: Store, dialects: Iterable[Dialect], partitions: Sequence[int]
) -> list[tuple[RunId, int]]:
    """Runs of these partitions, and the permits under which each waits for something that is loaded here (STY-118)."""
    providing = [dialect for dialect in dialects if dialect.provides_resources]
    awaited = await store.waiting_permits(RESOURCES, partitions) if providing else []
    is_here: dict[str, bool] = {}
    for _, _, scope in awaited:
        if scope not in is_here:
            resource = resource_of(scope)
            is_here[scope] = resource is not None and any(
                dialect.provided(*resource) is not None for dialect in providing
            )
    return [(run, permit) for run, permit, scope in awaited if is_here[scope]]


_log = logging.getLogger("perdure.engine")

TAKEN_AT_ONCE = 100  # families in one transaction
TAKEN_WHOLE = 16  # families that one of several processes takes; of more each takes its part first
TAKEN_BY_OTHERS = 5.0  # seconds that a process leaves to each of the others its part
LOOK_AGAIN = 30.0  # seconds before a family that was left alone is looked at again, unless code was loaded


class Recovery:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._dialects = context.dialects
        self._partitions = context.partitions
        self._executor = context.executor
        self._scheduler = scheduler
        self._settings = context.settings
        self._left: dict[RunId, float] = {}  # families that were not taken, and when each is looked at again
        self._taken: set[RunId] = set()
        self._is_looking = False

    def code_changed(self) -> None:
        """What was missing may be here now."""
        self._left.clear()

    async def look_for_orphans(self) -> None:
        """Give back what cannot be done here after all, then take over what can."""
        if self._is_looking:
            return
        self._is_looking = True
        try:
            if self._taken:
                await self._give_back_undoable()
            await self._take_up()
        except StoreError as error:
            _log.warning("cannot look for runs without an owner, will retry: %s", error)
        finally:
            self._is_looking = False

    async def _give_back_undoable(self) -> None:
        """Since they were taken up they may have come to something that only another process has."""
        lacking = {root_of(run) for run in self._scheduler.dispatcher.runs_without_provider()}
        for run, _, scope in await self._store.waiting_permits(RESOURCES, self._partitions):
            if root_of(run) in self._taken and await self._lack_of_resources(run, {scope}):
                lacking.add(root_of(run))
        for family in lacking & self._taken:
            if await self._scheduler.partitions.give_back(family):
                self._taken.discard(family)
                self._left[family] = _now() + LOOK_AGAIN
                _log.info("run %s is given back: something it needs is not loaded here", family, extra={"run": family})

    async def _take_up(self) -> None:
        orphaned = await self._store.orphaned_partitions()
        families = await self._store.families(orphaned) if orphaned else []
        self._left = {family: due for family, due in self._left.items() if family in families}
        is_divided = self._settings.processes > 1 and len(families) > TAKEN_WHOLE
        fit: list[RunId] = []
        for family in families:
            if self._left.get(family, 0.0) > _now():
                continue
            if is_divided and family not in self._left and not self._is_our_part(family):
                self._left[family] = _now() + TAKEN_BY_OTHERS
                continue
            if lack := await self._lack(family):
                if family not in self._left:
                    _log.info("run %s has no live owner and is left alone: %s", family, lack, extra={"run": family})
                self._left[family] = _now() + LOOK_AGAIN
                continue
            fit.append(family)
            if len(fit) == TAKEN_AT_ONCE:
                await self._take(fit)
                fit = []
        if fit:
            await self._take(fit)

    def _is_our_part(self, family: RunId) -> bool:
        return crc32(family.encode()) % self._settings.processes == self._settings.place

    async def _take(self, families: list[RunId]) -> None:
        if not self._partitions:
            return  # we are leaving, or were late: there is nothing to take them into
        await self._scheduler.partitions.adopt(families)
        self._taken.update(families)
        _log.info("took up %s", families[0] if len(families) == 1 else f"{len(families)} runs and all below them")

    async def _lack(self, family: RunId) -> str:
        """What the open runs of a family need and is not here; empty: it can be done here, as far as it is decided."""
        top = await self._store.find(family)
        rows = [*([] if top is None else [top]), *await descendants(self._store, family)]
        for row in rows:
            if not row.status.is_final and (lack := await self._lack_of(row)):
                return lack
        return ""

    async def _lack_of(self, row: RunRow) -> str:
        try:
            state = (await run_views.load(self._store, self._dialects, row)).state
        except StoreError:
            raise
        except Exception as error:  # whoever can read it goes on; here it would only be stuck
            return f"run {row.id} cannot be read here ({error})"
        for task in state.tasks.values():
            if not task.pool and not self._executor.can_perform(task.provider):
                return f"run {row.id} needs provider {task.provider!r}"
        waiting = {permit.scope for permit in state.permits.values() if not permit.granted}
        return await self._lack_of_resources(row.id, waiting)

    async def _lack_of_resources(self, run: RunId, waiting: set[str]) -> str:
        """Code may stand for a resource: whoever has that code is the one to go on."""
        resources = [resource for scope in waiting if (resource := resource_of(scope)) is not None]
        applied = await self._store.resources([ResourceKey(*names) for names in resources]) if resources else {}
        for resource in resources:
            if ResourceKey(*resource) not in applied and not any(
                dialect.provided(*resource) is not None for dialect in self._dialects.values()
            ):
                return f"run {run} waits for {'/'.join(resource)}"
        return ""


def _now() -> float:
    return asyncio.get_running_loop().time()
