"""NATS servers that a document names, and that are not what they should be (SRV-024, STR-110)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats import errors

from perdure.providers import nats, nats_connection
from perdure.providers.failure import ProviderFailure
from perdure.providers.nats_connection import NatsConnector, NatsFailure
from perdure.providers.registry import DATABASE, Mode
from perdure.services.story.streams.nats_log import NatsSettings, connector_for

PASSWORD = "quite-secret-word"
INFO = {"server_id": "x", "version": "2.11.0", "max_payload": 1048576, "auth_required": True, "headers": True}

Hostile = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class Secrets:
    """The host's secrets: a name and a password, and no token."""

    def __getitem__(self, name: str) -> str:
        try:
            return {"login/username": "me", "login/password": PASSWORD}[name]
        except KeyError:
            raise ProviderFailure("Secrets.NotFound", name) from None

    def config(self, name: str, key: str) -> str | None:
        return None

    def are_in(self, text: str) -> bool:
        return PASSWORD in text

    def redact(self, value: Any) -> Any:
        return value


@asynccontextmanager
async def hostile(then: Hostile | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that accepts every login in clear; its port, and all that it was told."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        try:
            while line := await reader.readline():
                heard.append(line)
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
                    if then is not None:
                        await then(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], heard


def connector(scheme: str, port: int) -> NatsConnector:
    settings = NatsSettings((f"{scheme}://127.0.0.1:{port}",), secret="login")
    return connector_for(settings, Secrets(), "test")


async def test_a_login_is_not_sent_in_clear_where_tls_is_meant() -> None:
    """Whoever stands between can leave out that the server asks for TLS."""
    async with hostile() as (port, heard):
        with pytest.raises(NatsFailure) as failure:
            await connector("tls", port).connect()
        assert failure.value.code == "Transport.Nats.TlsFailed" and not failure.value.retryable
        assert heard == [], "not a word"
        client = await connector("nats", port).connect()
        await client.close()
        assert PASSWORD.encode() in b"".join(heard), "without TLS it is the document's decision"


@pytest.mark.parametrize("start", [b"MSG a 1 999999999999\r\n", b"INFO {", b"MSG "])
async def test_a_message_without_end_is_not_kept(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_connection, "LARGEST_MESSAGE", 1 << 20)
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(start)
        while sent < 64 << 20:  # far more than what sockets keep
            writer.write(b"a" * 65536)
            await writer.drain()
            sent += 65536

    async with hostile(flood) as (port, _):
        client = await connector("nats", port).connect()
        async with asyncio.timeout(60):
            while not client.is_closed:
                await asyncio.sleep(0.01)
        assert len(client._ps.buf) < 1 << 20 and sent < 64 << 20, "the connection is given up"


async def test_a_server_says_little_about_itself() -> None:
    """Headers and JSON are read by the library on the event loop, in one call."""
    answers = {
        b"headers": b"NATS/1.0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"$JS.API.X": b"[" + b"1," * 30_000 + b"1]",
        b"$JS.API.DIRECT.GET.X": b"[" + b"1," * 30_000 + b"1]",
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            word, *rest = line.split() or [b""]
            if word == b"PING":
                writer.write(b"PONG\r\n")
            elif word == b"SUB":
                sid = rest[-1]
            elif word == b"PUB":
                inbox, body = rest[1], answers[rest[0]]
                await reader.readexactly(int(rest[-1]) + 2)
                if rest[0] == b"headers":
                    writer.write(b"HMSG %b %b %d %d\r\n%b\r\n" % (inbox, sid, len(body), len(body), body))
                else:
                    writer.write(b"MSG %b %b %d\r\n%b\r\n" % (inbox, sid, len(body), body))

    async with hostile(answer) as (port, _):
        client = await connector("nats", port).connect()
        message = await client.request("$JS.API.DIRECT.GET.X", timeout=5)
        assert len(message.data) > 60_000, "a value of somebody else"
        with pytest.raises(errors.ProtocolError):
            await client.request("$JS.API.X", timeout=5)
        with pytest.raises((errors.Error, asyncio.CancelledError)):
            await client.request("headers", timeout=2)
        assert client.is_closed, "the connection is given up"


def test_operations_on_nats_servers_run_in_limited_subprocesses() -> None:
    """Lists, objects and values are kept by the library before anybody can count them."""
    assert nats.PROVIDER.mode is Mode.ISOLATED and nats.PROVIDER.group == DATABASE
    assert nats.PROVIDER.memory is not None and nats.PROVIDER.memory() < 2 << 30
    with pytest.raises(ProviderFailure, match="more than 2000000 values"):
        nats._answer(b"[" + b"0," * 2_000_001 + b"0]", "value")
