"""How many connections each of several processes has that listen on one socket, and which of them takes the next.

The counts are in memory that the processes share. A process that has more than another one leaves the next connection
to that one for a moment, which is the longer the more it has; if nobody has taken it by then, it takes it.
"""

import asyncio
import mmap
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.server.group_figures import GroupFigures

if TYPE_CHECKING:
    from perdure.server.listener import CountingSocket

MOMENT, LONGEST_MOMENT = 0.02, 0.1  # seconds, for each connection more than another process has
ACCEPT_RETRY_DELAY = 1.0  # seconds after a failure to accept: there are no descriptors, or no memory
ABSENT = (1 << 32) - 1
_COUNT = struct.Struct("=I")


class ConnectionCounts:
    def __init__(self, processes: int) -> None:
        self._memory = mmap.mmap(-1, processes * _COUNT.size)
        self._processes = processes
        self._place = 0
        self.figures = GroupFigures(processes)
        for place in range(processes):
            self.leave(place)

    def of(self, place: int) -> "ConnectionCounts":
        """For the process in this place."""
        self._place = place
        self.figures.of(place)
        self.set(0)
        return self

    def leave(self, place: int) -> None:
        """There is no process in this place now."""
        _COUNT.pack_into(self._memory, place * _COUNT.size, ABSENT)

    def set(self, count: int) -> None:
        _COUNT.pack_into(self._memory, self._place * _COUNT.size, count)

    def read(self) -> list[int]:
        """By place; `ABSENT` where there is no process."""
        return [_COUNT.unpack_from(self._memory, place * _COUNT.size)[0] for place in range(self._processes)]

    @property
    def present(self) -> list[bool]:
        """By place: whether there is a process."""
        return [count != ABSENT for count in self.read()]

    @property
    def surplus(self) -> int:
        """How many this process has more than the one that has fewest."""
        counts = self.read()
        return counts[self._place] - min(counts)


class Acceptor:
    """Takes connections from a socket that other processes listen on too: one at a time, and in turn with them."""

    def __init__(
        self,
        listener: "CountingSocket",
        counts: ConnectionCounts,
        make_protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._counts = counts
        self._make_protocol = make_protocol
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        listener.count_changed = self._count
        self._loop.add_reader(listener, self._accept)

    def _count(self) -> None:
        self._counts.set(len(self._listener.accepted))

    def _accept(self) -> None:
        if surplus := self._counts.surplus:
            self._rest(min(LONGEST_MOMENT, MOMENT * surplus))
        else:
            self._take()

    def _take(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            if self._pause is None:
                self._rest(ACCEPT_RETRY_DELAY)
            return
        connection.setblocking(False)
        self._count()
        self._connecting.add(task := self._loop.create_task(self._connect(connection)))
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection, ssl=self._context)
        except Exception:  # a handshake that fails, a caller that is gone: as with any server
            connection.close()

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)
        self._take()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        with suppress(ValueError):  # it is closed
            self._loop.remove_reader(self._listener)
        for task in self._connecting:
            task.cancel()
