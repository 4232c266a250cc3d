"""The health page of a server: HTTP on loopback, for whatever supervises the process.

`/healthz` says whether it is well, `/metrics` has the numbers of the topologies that it carries.
"""

import asyncio
import os
import pkgutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from perdure.cli.errors import BadUsage
from perdure.kernel.json_values import jsontext
from perdure.services import METRICS
from perdure.views.administration.prometheus_text import metrics_text
from perdure.views.administration.server_presence import health_json
from perdure.wiring import Engine

PATH, METRICS_PATH = "/healthz", "/metrics"
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"  # of Prometheus
TIMEOUT = 2.0  # seconds for reading the request, and for sending the response
MAX_REQUEST_BYTES = 8_192
MAX_CONNECTIONS = 32


class HealthPage:
    """The engine that the page is about: None while the store cannot be reached."""

    engine: Engine | None = None


def bind_health(port: int) -> socket.socket:
    """Where the page is answered; several processes may have it."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise BadUsage(
            f"--health {port}: {os.strerror(error.errno) if error.errno else error}",
            hint="Another process listens there; choose another port.",
        ) from None


@asynccontextmanager
async def health_page(port: int | socket.socket | None) -> AsyncIterator[HealthPage]:
    """`GET /healthz` answers 200 while the lease is ours and the store answers, 503 otherwise."""
    page = HealthPage()
    if port is None:
        yield page
        return

    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        if (
            connections >= MAX_CONNECTIONS
        ):  # anybody on this machine can connect: descriptors are needed for other things
            writer.transport.abort()
            return
        connections += 1
        try:
            await respond(reader, writer)
        finally:
            connections -= 1
            writer.close()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            response = await _respond(page.engine, head)
            async with asyncio.timeout(TIMEOUT):
                writer.write(response)
                await writer.drain()

    listener = bind_health(port) if isinstance(port, int) else port
    async with await asyncio.start_server(answer, sock=listener, limit=MAX_REQUEST_BYTES):
        yield page


async def _respond(engine: Engine | None, head: bytes) -> bytes:
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.split(" ")[0].partition("?")[0]
    if path not in (PATH, METRICS_PATH):
        return _response("404 Not Found", {"error": f"there are only {PATH} and {METRICS_PATH}"})
    if method not in ("GET", "HEAD"):
        return _response("405 Method Not Allowed", {"error": "only GET"})
    if path == METRICS_PATH:
        text = metrics_text([metric for function in METRICS for metric in pkgutil.resolve_name(function)()])
        return _message("200 OK", TEXT_FORMAT, text.encode(), with_body=method == "GET")
    health = await health_json(engine)
    return _response("200 OK" if health["well"] else "503 Service Unavailable", health, with_body=method == "GET")


def _response(status: str, body: dict[str, object], *, with_body: bool = True) -> bytes:
    return _message(status, "application/json", jsontext.encode(body), with_body=with_body)


def _message(status: str, content_type: str, text: bytes, *, with_body: bool) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + (text if with_body else b"")
