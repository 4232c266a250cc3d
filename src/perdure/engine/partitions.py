"""Which partitions are ours, now: a private one, or a fair part of what all who serve share.

What was lost (a commit was fenced, a lease was over) is dropped whole. Then the process joins anew and goes on with
what it gets.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from math import inf
from typing import TypeVar
from zlib import crc32

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.handover import Handover
from perdure.engine.settings import Settings
from perdure.kernel.values import RunId
from perdure.stores.errors import StoreError
from perdure.stores.protocol import Left, Share, Store

_log = logging.getLogger("perdure.engine")

T = TypeVar("T")

AGAIN = 1.0  # seconds before the store is asked again, after trouble


class Partitions:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        partitions: list[int],
        handover: Handover,
        chores: BackgroundTasks,
        take_up: Callable[[Sequence[int]], Awaitable[None]],
        wake: Callable[[Sequence[RunId]], Awaitable[None]],
        forget: Callable[[Collection[int]], None],
    ) -> None:
        """`take_up` begins to drive runs of partitions that are ours now, `wake` single runs; `forget` drops those
        that are not ours.
        """
        self._store = store
        self._settings = settings
        self._partitions = partitions
        self._handover = handover
        self._chores = chores
        self._take_up = take_up
        self._wake = wake
        self._forget = forget
        self.home = 0  # where runs of a process that does not serve are born
        self.tell: Callable[[str], None] = _log.info
        self.is_leaving = False  # nothing more is taken: it would be what we have just given up
        self._is_looking = False
        self._is_coming_back = False

    def birthplace(self, run: RunId) -> int | None:
        """Where a new run of ours is born; None while we own nothing."""
        if not self._partitions:
            return None
        if self.home in self._partitions:
            return self.home
        return sorted(self._partitions)[crc32(run.encode()) % len(self._partitions)]

    async def join(self) -> None:
        if self._settings.serves:
            await self._take(await self._store.share())
        else:
            self.home = await self._store.claim()
            self._partitions.append(self.home)

    def look(self) -> None:
        """See who came, who left and who was late, if it is time to; called often."""
        if self._store.is_late:
            self.late()
        elif self._settings.serves and self._store.should_share():
            self.look_around()
        if len(self._handover):
            self._chores.spawn(self._handover.look())

    def look_around(self) -> None:
        if self._settings.serves and not (self._is_looking or self._is_coming_back or self.is_leaving):
            self._is_looking = True
            self._chores.spawn(self._share())

    async def _share(self) -> None:
        is_seen = True
        try:
            await self._take(await self._store.share())
        except StoreError as error:
            _log.warning("the other servers cannot be seen, looking again soon: %s", error)
            is_seen = False
            await asyncio.sleep(AGAIN)
        finally:
            self._is_looking = False
        if not is_seen:
            self.look_around()

    async def _take(self, got: Share) -> None:
        for name in got.ended:
            self.tell(f"taking up the runs of {name}")
        taken = [partition for partition in got.taken if partition not in self._partitions]
        if taken:
            self._handover.lost(taken)
            self._partitions.extend(taken)
            if self.is_leaving:  # it was asked for before we knew
                self._handover.begin(taken, inf)
                return
            await self._take_up(taken)
        elif got.left:
            await self._wake(runs_of(got.left))
        if got.surplus > len(self._handover):
            chosen = self._handover.choose(got.surplus - len(self._handover))
            self._handover.begin(chosen, self._settings.drain)

    # Losing, and coming back.

    def late(self) -> None:
        """Our lease is over: others may have taken everything over, and nothing in memory is worth anything."""
        if not self._is_coming_back:
            _log.warning("this process was late to renew its lease; it drops what it has in memory and joins anew")
        self.lost([*self._partitions, *self._handover.leaving])

    def lost(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._partitions:
                self._partitions.remove(partition)
        self._handover.lost(partitions)
        self._forget(partitions)
        if not self._is_coming_back:
            self._is_coming_back = True
            self._chores.spawn(self._come_back())

    async def _come_back(self) -> None:
        try:
            await self._rejoin()
        finally:
            self._is_coming_back = False
        self.look_around()

    async def _rejoin(self) -> None:
        known = [*self._partitions, *self._handover.leaving]
        ours = await self._patiently(self._store.rejoin)
        taken_over = [partition for partition in known if partition not in ours]
        if taken_over:
            self.lost(taken_over)
        again = [partition for partition in ours if partition not in known]
        self._partitions.extend(again)
        if not self._settings.serves and self.home not in ours:
            _log.warning("another process has taken over the runs of this one; from here on they are only followed")
            self.home = await self._patiently(self._store.claim)
            self._partitions.append(self.home)
        await self._take_up(again)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A server outlives trouble with its store; any other process says what the trouble is."""
        while True:
            try:
                return await ask()
            except StoreError as error:
                if not self._settings.serves or self.is_leaving:
                    raise
                _log.warning("cannot join the other servers, trying again: %s", error)
                await asyncio.sleep(AGAIN)


def runs_of(left: Sequence[Left]) -> list[RunId]:
    return [run for one in left for run in one.runs]
