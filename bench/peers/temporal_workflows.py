"""What a worker of Temporal does. Not a peer of its own."""

import asyncio
import time
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

QUEUE = "bench"
stamps: list[float] = []  # of the steps that have run; worker and caller are one process


@activity.defn
async def step(at: int) -> dict[str, Any]:
    stamps.append(time.perf_counter())
    return {"i": at, "n": ""}


async def _call(at: int) -> Any:
    return await workflow.execute_activity(step, at, start_to_close_timeout=timedelta(seconds=30))


@workflow.defn
class Sequence:
    @workflow.run
    async def run(self, steps: int) -> list[Any]:
        return [await _call(at) for at in range(steps)]


@workflow.defn
class Fan:
    @workflow.run
    async def run(self, width: int) -> int:
        return len(await asyncio.gather(*[_call(at) for at in range(width)]))
