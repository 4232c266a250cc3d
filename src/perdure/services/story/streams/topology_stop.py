"""How a topology is stopped: drained, because its run ends, or handed over, because its process does.

cancelled, stopped, failed ─▶ drain: nothing new enters, what is there flows for a while ─▶ workers are ended (STR-034)
the process ends           ─▶ hand over: workers finish what they have in hand, or stop at once with the strategy
                              `rolling`; the rest waits for the next owner (STR-088)

Only the run knows which of the two a request to stop is: it has recorded the first one.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.providers.context import TaskContext
from perdure.streams.stream_graph import SECOND

if TYPE_CHECKING:
    from perdure.services.story.streams.live_topology import LiveTopology
    from perdure.services.story.streams.workers import WorkerTask

LAST_WORDS = 2.0  # seconds for workers to end once they were cancelled
MOST_FOR_HANDOFF = 3.0  # seconds; the process that ends does not wait for much longer
LOOK_EVERY = 0.02


class HandedOver(Exception):
    """The next owner of the run goes on from here; nothing has ended."""


class TopologyStop:
    def __init__(self, topology: "LiveTopology", context: TaskContext, workers: Mapping[str, "WorkerTask"]) -> None:
        self._topology = topology
        self._context = context
        self._workers = workers
        self.is_draining = self.is_handing_over = False

    async def watch(self) -> None:
        """Wait until the task is asked to stop, and find out what that means."""
        await self._context.wait_cancelled()
        open_steps = [name for name, worker in self._workers.items() if not worker.has_ended and worker.is_engram]
        try:
            is_cancelled = await self._topology.report({"stopping": open_steps})
        except Exception as error:  # the run is not ours any more: nothing that is done here counts
            self._topology.fail(error)
            return
        if is_cancelled:
            self.drain()
        else:
            await self._hand_over()

    def drain(self) -> None:
        """Nothing new enters; what is there flows, for a while (STR-034)."""
        if self.is_draining or self.is_handing_over:
            return
        self.is_draining = self._topology.hub.is_draining = True
        for worker in self._workers.values():
            if not worker.plan.needs and not worker.has_ended:
                worker.close()
        self._topology.spawn(self._end_drain())
        self._topology.check()

    async def _end_drain(self) -> None:
        await asyncio.sleep(self._topology.task["drain"] / SECOND)
        for worker in self._workers.values():
            worker.close()
        await asyncio.sleep(LAST_WORDS)
        for worker in self._workers.values():
            worker.abandon()

    async def _hand_over(self) -> None:
        """Let workers finish what they have in hand. Everything else is left to the next owner, as it is."""
        self.is_handing_over = True
        loop = asyncio.get_running_loop()
        begun = loop.time()
        open_workers = [worker for worker in self._workers.values() if not worker.has_ended]
        for worker in open_workers:
            worker.session_stop()
        longest = max((worker.drain for worker in open_workers if worker.is_engram), default=0.0)
        while open_workers and (elapsed := loop.time() - begun) < MOST_FOR_HANDOFF:
            for worker in open_workers:
                if elapsed >= (worker.drain if worker.is_engram else longest):
                    worker.leave()
            await asyncio.sleep(LOOK_EVERY)
            open_workers = [worker for worker in open_workers if not worker.has_ended]
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_FOR_HANDOFF):
                await self._topology.flushed()
        self._topology.fail(HandedOver("the process ends; the next owner of the run continues"))
