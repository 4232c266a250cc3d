"""What can be said of the end of a dead owner, from the lock file that it left beside the store (invariant 27).

It had one partition, and the work that lies there is what it had, as long as nobody has looked after it since: who does
removes the file. If that is the work of one run, no other task was open in the process.
"""

from collections.abc import Callable
from typing import Any

from perdure.kernel.crash_attribution import Loss
from perdure.kernel.values import RunId
from perdure.stores.sqlite.partition_locks import PartitionLock, boot_id

_WITH_WORK = "SELECT id FROM runs WHERE partition = ? AND has_work = 1"


class OwnerLosses:
    def __init__(self, read: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]) -> None:
        self._read = read
        self._known: dict[RunId, Loss] = {}

    def look(self, lock: PartitionLock, partition: int) -> None:
        """A partition of a dead owner is locked by us: what it left is looked at before anything of it is touched."""
        if not lock.left:
            return
        if lock.left != boot_id():
            self._known.update((run, Loss.STOPPED) for (run,) in self._read(_WITH_WORK, (partition,)))
        elif len(runs := self._read(f"{_WITH_WORK} LIMIT 2", (partition,))) == 1:
            self._known[runs[0][0]] = Loss.ONLY

    def tell(self, run: RunId) -> Loss:
        """Once: what comes later is another loss."""
        return self._known.pop(run, Loss.PROCESS)
