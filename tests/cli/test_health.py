"""The health page, asked by strangers."""

import asyncio
import socket
from contextlib import suppress

from tests.workers.scene import on_loop

from perdure.cli.health import MAX_CONNECTIONS, health_page


@on_loop
async def test_strangers_who_ask_for_the_health_of_a_server_take_few_of_its_descriptors() -> None:
    """Whoever uses the machine can connect: beyond a number they are turned away, silent ones after a while."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with health_page(port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        turned_away, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):
            assert await turned_away.read() == b""
        writer.close()
        for _, writer in silent:
            writer.close()
        for _ in range(1_000):  # until those are noticed to be gone
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                if answer := await reader.read():
                    break
        writer.close()

        assert b"503" in answer and b'"well":false' in answer
