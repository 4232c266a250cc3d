"""Runs of which a newer program has recorded something that this one does not know: they are left alone.

    cannot be read ─▶ entrusted to a live server that reads more ─▶ goes on there
                   └▶ there is none: it waits, and says so ─▶ looked for again and again

Nothing of such a run is written but the note that it waits; letters to it stay where they are. Other runs go on.
"""

from collections.abc import Callable, Collection, Container

from perdure.kernel.values import RunId
from perdure.stores.errors import StoreError
from perdure.stores.protocol import Store


class IncompatibleRuns:
    def __init__(
        self,
        store: Store,
        resident: Container[RunId],
        stuck: dict[RunId, int],
        look_again: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        """`resident`: runs in memory; `look_again` reads the inbox, when letters to a run need not wait any longer."""
        self._store = store
        self._resident = resident
        self._stuck = stuck
        self._look_again = look_again
        self._tell = tell
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
        runs = [run for run in self._waiting if run not in self._resident and run not in self.moving]
        if not runs:
            return
        self.moving.update(runs)
        try:
            await self._entrust(runs)
        except StoreError:
            pass  # looked for again soon; what matters is told by whoever needs the store
        finally:
            self.moving.difference_update(runs)
        self._look_again()

    async def _entrust(self, runs: list[RunId]) -> None:
        for run in await self._store.entrust(runs):
            self._waiting.pop(run, None)
            self._stuck.pop(run, None)
            self._tell(f"run {run} goes on at a server with a newer Perdure")
