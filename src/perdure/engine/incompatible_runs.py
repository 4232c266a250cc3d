"""Runs of which a newer program has recorded something that this one does not know: they are left alone.

    cannot be read ─▶ entrusted to a live server that reads more ─▶ goes on there
                   └▶ there is none: it waits, and says so ─▶ looked for again and again

Nothing of such a run is written but the note that it waits; messages to it stay where they are. Other runs go on.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.kernel.values import RunId
from perdure.stores.errors import StoreError

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler


class IncompatibleRuns:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._context = context
        self._scheduler = scheduler
        self._waiting: dict[RunId, int] = {}  # with their partitions
        self.moving: set[RunId] = set()  # nothing may begin for these: they are another's from one moment to the next

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, run: RunId, partition: int) -> None:
        """The run, or a letter to it, cannot be read here."""
        self._waiting[run] = partition

    def leave(self, partitions: Collection[int]) -> None:
        """These are not ours any more."""
        self._waiting = {run: home for run, home in self._waiting.items() if home not in partitions}

    async def entrust(self, run: RunId, partition: int) -> bool:
        """Whether another server goes on with it; else it is noted."""
        self.note(run, partition)
        await self._entrust([run])
        return run not in self._waiting

    async def look(self) -> None:
        """Somebody who reads more may have come. A run in memory goes when it has come to rest."""
        runs = [run for run in self._waiting if run not in self._context.slots and run not in self.moving]
        if not runs:
            return
        self.moving.update(runs)
        try:
            await self._entrust(runs)
        except StoreError:
            pass  # looked for again soon; what matters is told by whoever needs the store
        finally:
            self.moving.difference_update(runs)
        self._scheduler.inbox.read_soon()

    async def _entrust(self, runs: list[RunId]) -> None:
        for run in await self._context.store.entrust(runs):
            self._waiting.pop(run, None)
            self._context.stuck.pop(run, None)
            self._scheduler.partitions.tell(f"run {run} was handed over to a server that runs a newer version")
