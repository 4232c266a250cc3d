"""Where a topology keeps what must outlive its hub: in its run's store, or in a NATS stream (STR-110, 111).

open ─▶ what an earlier hub has left ─▶ write … write ─▶ clear (the topology has ended) ─▶ close
"""

from collections.abc import Mapping
from typing import Any, Protocol

from perdure.kernel.tasks.assignments import StreamRows
from perdure.providers.context import TaskContext
from perdure.streams.hub import Hub
from perdure.streams.inlet import InletState
from perdure.streams.stream_rows import Changes, KeptRows, life_of, life_row, read_rows, rows_of


class PacketLog(Protocol):
    writes_everything: bool
    """Whether changes are written that nobody waits for."""

    async def open(self) -> KeptRows:
        """Everything that an earlier hub of the same topology has left."""

    async def write(self, changes: Changes) -> None:
        """Returns once they are kept, all of them."""

    async def show_numbers(self, states: Mapping[str, InletState]) -> None:
        """Have the numbers of the steps in the run's store, for those who only look."""

    async def clear(self) -> None:
        """The topology has ended: nothing of it is needed any more."""

    async def close(self) -> None: ...


class StoreLog:
    """Rows beside the log of the run, written by the same fenced commits."""

    writes_everything = False

    def __init__(self, rows: StreamRows | None, life: int) -> None:
        self._rows = rows
        self._life = life

    async def open(self) -> KeptRows:
        if self._rows is None:
            return KeptRows({}, {}, {})
        kept = await self._rows.read()
        if life_of(kept) != self._life:  # of an earlier life of the run: nothing of it counts
            await self._rows.write([*((key, None) for key, _ in kept if key != b"h"), life_row(self._life)])
            kept = []
        return read_rows(kept)

    async def write(self, changes: Changes) -> None:
        if changes and self._rows is not None:
            await self._rows.write(rows_of(changes))

    async def show_numbers(self, states: Mapping[str, InletState]) -> None:
        return None  # they are written with the packets

    async def clear(self) -> None:
        if self._rows is not None:
            await self._rows.write([(key, None) for key, _ in await self._rows.read() if key != b"h"])

    async def close(self) -> None:
        return None


def packet_log(context: TaskContext, task: dict[str, Any], hub: Hub) -> PacketLog:
    """The place that the task names; the run's store if it names none."""
    store = StoreLog(context.stream_rows, task["life"])
    if not task.get("nats"):
        return store
    from perdure.services.story.streams.nats_log import NatsLog

    return NatsLog(store, context, task, hub)
