"""How many starts others accept over the network, beside ours in one run: their server on the first core, as ours."""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from socket import create_server
from typing import Any

from bench.environments import CannotInstall, prepare
from bench.harness import ROOT

CALLERS = 64
PEERS = ("restate", "temporal")
SHARED: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}


class Connection(asyncio.Protocol):
    """One keep-alive connection: requests one after the other, each answered by status and body."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server has closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        head = bytes(self._data[:end]).lower()
        place = head.find(b"content-length:")
        length = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
        if len(self._data) >= end + 4 + length:
            body = bytes(self._data[end + 4 : end + 4 + length])
            self._data.clear()
            self._answer.set_result((int(head[9:12]), body))

    def send(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answer


async def connect(host: str, port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection


async def peer_starts(name: str, under: Path, seconds: float) -> float | str:
    """Starts that a peer accepts in a second; or why there is no figure."""
    try:
        home = prepare(name, under)
    except CannotInstall as reason:
        return str(reason)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as folder:
        try:
            return await MEASURES[name](home, Path(folder), seconds)
        except (OSError, RuntimeError, ValueError, AssertionError) as error:
            return f"{name}: {str(error)[:200] or type(error).__name__}"


async def _restate(home: Path, folder: Path, seconds: float) -> float:
    """One-way calls of a service of the Python SDK that answers at once; server and service share the core."""
    command = [str(home / "bin" / "python"), "-m", "bench.peers.restate", str(folder), str(home)]
    deployment = _on_first_core(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert deployment.stdout is not None
        port = json.loads(await asyncio.to_thread(deployment.stdout.readline))["port"]
        head = f"POST /Bench/short/send HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        return await _rate(f"{head}Content-Length: 2\r\n\r\n{{}}".encode(), "127.0.0.1", port, seconds)
    finally:
        deployment.communicate(timeout=60)


async def _temporal(home: Path, folder: Path, seconds: float) -> float:
    """Workflows that no worker takes up, by the client of the Python SDK: only their start is done."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(home / "bin" / "temporal"), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    command += ["--port", str(port), "--db-filename", str(folder / "temporal.db"), "--log-level", "error"]
    server = _on_first_core(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        caller = [str(home / "bin" / "python"), "-m", "bench.peers.temporal", str(port), str(seconds), str(CALLERS)]
        run = partial(subprocess.run, capture_output=True, text=True, timeout=300, **SHARED)
        done: subprocess.CompletedProcess[str] = await asyncio.to_thread(run, caller)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return float(json.loads(done.stdout)["per_s"])
    finally:
        server.terminate()
        server.wait(timeout=60)


MEASURES: dict[str, Callable[[Path, Path, float], Awaitable[float]]] = {
    "restate": _restate,
    "temporal": _temporal,
}


def _on_first_core(command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
    """Whoever calls has the last one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    try:
        return subprocess.Popen(command, **SHARED, **more)
    finally:
        os.sched_setaffinity(0, {cores[-1]})


def describe_peers(own: float, samples: dict[str, list[float | str]]) -> list[str]:
    """Lines of the page."""
    titles = {"restate": "Restate, one-way calls of a service", "temporal": "Temporal's development server, no worker"}
    lines = [
        "| starts over the network, in the same run | each second | starts of ours to one |",
        "| --- | ---: | ---: |",
    ]
    reasons = []
    for name, values in samples.items():
        rates = sorted(value for value in values if not isinstance(value, str))
        if rates:
            middle = rates[len(rates) // 2]
            shown = f"{middle:,.0f}" if len(rates) == 1 else f"{middle:,.0f} ({rates[0]:,.0f} to {rates[-1]:,.0f})"
            lines.append(f"| {titles[name]} | {shown} | {own / middle:.2f} |")
        else:
            reasons.append(f"{titles[name].partition(',')[0]} was not measured: {values[0]}.")
    return [*(lines if len(lines) > 2 else []), "", *reasons, *([""] if reasons else [])]


async def _rate(request: bytes, host: str, port: int, seconds: float) -> float:
    """By callers that wait for each answer, after a quarter of the time to warm up."""
    callers = [await connect(host, port) for _ in range(CALLERS)]

    async def calls(end: float) -> int:
        async def call(connection: Connection) -> int:
            count = 0
            while time.perf_counter() < end:
                status, answer = await connection.send(request)
                if not 200 <= status < 300:
                    raise RuntimeError(f"{status} {answer[:100]!r}")
                count += 1
            return count

        return sum(await asyncio.gather(*map(call, callers)))

    await calls(time.perf_counter() + seconds / 4)
    began = time.perf_counter()
    count = await calls(began + seconds)
    for connection in callers:
        connection.transport.close()
    return count / (time.perf_counter() - began)
