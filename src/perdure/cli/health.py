"""Whether a server is well, for whoever watches over its process: one page on loopback, and nothing else."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from perdure.cli.errors import BadUsage
from perdure.kernel import jsontext
from perdure.kernel.errors import PerdureError
from perdure.kernel.values import RunId
from perdure.wiring import Engine

PATH = "/healthz"
PATIENCE = 2.0  # seconds for the store's answer, and for the question
MOST_BYTES = 8_192
MOST_AT_ONCE = 32  # who ask


class Watched:
    """Of whom the page tells: nobody, as long as the store cannot be reached."""

    engine: Engine | None = None


@asynccontextmanager
async def health_page(port: int | None) -> AsyncIterator[Watched]:
    """`GET /healthz` answers 200 while the lease is ours and the store answers, 503 otherwise."""
    watched = Watched()
    if port is None:
        yield watched
        return

    asking = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asking
        if asking >= MOST_AT_ONCE:  # whoever uses this machine can ask: we need our descriptors for other things
            writer.transport.abort()
            return
        asking += 1
        try:
            await told(reader, writer)
        finally:
            asking -= 1
            writer.close()

    async def told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            page = await _page(watched.engine, head)
            async with asyncio.timeout(PATIENCE):
                writer.write(page)
                await writer.drain()

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port, limit=MOST_BYTES)
    except OSError as error:
        raise BadUsage(
            f"--health {port}: {os.strerror(error.errno) if error.errno else error}",
            hint="Another process listens there; choose another port.",
        ) from None
    async with server:
        yield watched


async def _page(engine: Engine | None, head: bytes) -> bytes:
    method, _, rest = head.decode("latin-1").partition(" ")
    if rest.split(" ")[0].partition("?")[0] != PATH:
        return _response("404 Not Found", {"error": f"there is only {PATH}"})
    if method not in ("GET", "HEAD"):
        return _response("405 Method Not Allowed", {"error": "only GET"})
    found = await health(engine)
    return _response("200 OK" if found["well"] else "503 Service Unavailable", found, with_body=method == "GET")


async def health(engine: Engine | None) -> dict[str, object]:
    if engine is None:
        return {"well": False, "lease": False, "store": False}
    has_lease = engine.runtime.stopped is None and not engine.store.is_late
    reaches_store = await _reaches_store(engine)
    return {"well": has_lease and reaches_store, "lease": has_lease, "store": reaches_store}


async def _reaches_store(engine: Engine) -> bool:
    try:
        async with asyncio.timeout(PATIENCE):
            await engine.store.find(RunId(""))
    except (PerdureError, TimeoutError):
        return False
    return True


def _response(status: str, body: dict[str, object], *, with_body: bool = True) -> bytes:
    text = jsontext.encode(body)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + (text if with_body else b"")
