"""Prefect 3: its own API server on SQLite, and flows whose results are persisted."""

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from socket import create_server
from typing import Any

from bench.peers.peer import Peer
from bench.scene import Scene, evenness, latencies, per_second

PEER = Peer(
    title="Prefect",
    packages=("prefect", "fastapi<0.145"),  # its server does not start with a newer one
    settings=(
        "its API server on SQLite, in a process of its own; results of flows and tasks persisted; logs stay local;"
        " a twentieth of the sizes"
    ),
    only=("w1", "w2", "w3", "w4"),
    share=0.05,
    missing=dict.fromkeys(("w5", "w6", "w7"), "not measured"),
)


def serve(scene: Scene) -> None:
    """Before Prefect is imported: it reads its settings then. The harness ends the server with the process group."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {
        "PREFECT_HOME": str(scene.folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "DO_NOT_TRACK": "1",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (scene.folder / "prefect.log").open("ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PREFECT_UI_ENABLED": "false"})
    end = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5).read()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end or server.poll() is not None:
                raise RuntimeError("Prefect's server did not start") from None
            time.sleep(0.1)


def flows(scene: Scene) -> tuple[Any, Any]:
    """One of so many steps in a row, which answers when each was over; and one of parallel steps."""
    serve(scene)
    from prefect import flow, task  # type: ignore[import-not-found]

    @task(persist_result=True)
    def step(at: int) -> dict[str, Any]:
        return {"i": at, "n": ""}

    @task(persist_result=True)
    async def step_async(at: int) -> dict[str, Any]:
        return {"i": at, "n": ""}

    @flow(persist_result=True)
    async def sequence(steps: int) -> list[float]:
        stamps = []
        for at in range(steps):
            await step_async(at)
            stamps.append(time.perf_counter())
        return stamps

    @flow(persist_result=True)
    def fan(width: int) -> int:
        return len([future.result() for future in step.map(list(range(width)))])

    return sequence, fan


def w1(scene: Scene) -> dict[str, float]:
    sizes = scene.sizes
    sequence, _ = flows(scene)

    async def work() -> dict[str, float]:
        await sequence(1)
        room = asyncio.Semaphore(5)

        async def run() -> list[float]:
            async with room:
                stamps: list[float] = await sequence(sizes.steps)
                return stamps

        began = time.perf_counter()
        results = await asyncio.gather(*[run() for _ in range(sizes.workflows)])
        assert all(len(result) == sizes.steps for result in results)
        return per_second(sizes.workflows * sizes.steps, began)

    return asyncio.run(work())


def w2(scene: Scene) -> dict[str, float]:
    _, fan = flows(scene)
    fan(1)
    began = time.perf_counter()
    assert fan(scene.sizes.width) == scene.sizes.width
    return per_second(scene.sizes.width, began)


def w3(scene: Scene) -> dict[str, float]:
    sequence, _ = flows(scene)

    async def work() -> dict[str, float]:
        times = []
        for _ in range(scene.sizes.starts * 11 // 10):
            began = time.perf_counter()
            await sequence(1)
            times.append(time.perf_counter() - began)
        return latencies(times)

    return asyncio.run(work())


def w4(scene: Scene) -> dict[str, float]:
    sequence, _ = flows(scene)
    return evenness(asyncio.run(sequence(scene.sizes.rounds)))
