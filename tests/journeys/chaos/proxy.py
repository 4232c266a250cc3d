"""A way to a server that can be held (nothing passes, nothing ends) and cut (every connection is reset)."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress


class Proxy:
    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._may_pass = asyncio.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> "Proxy":
        self._may_pass.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *exit: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self) -> None:
        self._loop.call_soon_threadsafe(self._may_pass.clear)

    def cut(self) -> None:
        """Reset every connection; new ones pass."""
        self._call(self._cut())

    def _call(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, sock=self._listening)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            opened = writer.get_extra_info("socket")
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._may_pass.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._may_pass.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._writers -= pair
            for side in pair:
                side.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._may_pass.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()  # either direction ends both
