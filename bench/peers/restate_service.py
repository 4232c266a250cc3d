"""The service that Restate calls; hypercorn imports it. Not a peer of its own."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import restate

from bench.marks import Marks

_marks = Marks(Path(os.environ["BENCH_MARKS"]), int(os.environ["BENCH_LIFE"]))
_service = restate.Service("Bench")


def _step(at: int) -> dict[str, Any]:
    return {"i": at, "n": ""}


@_service.handler()
async def sequence(context: restate.Context, body: dict[str, Any]) -> list[Any]:
    return [await context.run_typed("step", _step, at=at) for at in range(body["steps"])]


@_service.handler()
async def marked(context: restate.Context, body: dict[str, Any]) -> list[Any]:
    name = body["name"]
    return [await context.run_typed("step", _marks.leave, workflow=name, step=at) for at in range(body["steps"])]


@_service.handler()
async def long(context: restate.Context, body: dict[str, Any]) -> list[float]:
    stamps = []
    for at in range(body["steps"]):
        await context.run_typed("step", _step, at=at)
        stamps.append(time.perf_counter())
    return stamps


@_service.handler()
async def fan(context: restate.Context, body: dict[str, Any]) -> int:
    return len(await restate.gather(*[context.run_typed("step", _step, at=at) for at in range(body["width"])]))


@_service.handler()
async def short(context: restate.Context, body: dict[str, Any]) -> dict[str, str]:
    return {"hello": "world"}


@_service.handler()
async def one(context: restate.Context, body: dict[str, Any]) -> Any:
    return await context.run_typed("step", _step, at=0)


@_service.handler()
async def family(context: restate.Context, body: dict[str, Any]) -> int:
    return len(await restate.gather(*[context.service_call(one, arg={}) for _ in range(body["width"])]))


@_service.handler()
async def parked(context: restate.Context, body: dict[str, Any]) -> str:
    await context.sleep(timedelta(hours=1))
    return "awake"


app = restate.app([_service])
