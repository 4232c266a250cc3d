"""A small web service with an engine inside, whose code is chosen: `python replica.py STORE [PROVIDER …]`.

    POST /orders/TOKEN   starts the order of this name, or finds it, and answers with its id
    GET /orders/ID       its status

A provider that it is not told to have is not loaded; `NAME=hang` is one that never ends.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

import perdure
from perdure.testing.drill import Drill
from perdure.wiring import add_language

add_language(Drill)

ORDER: Mapping[str, Any] = {
    "drill": 1,
    "name": "order",
    "steps": [
        {"call": "reserve", "save": "place"},
        {"signal": "paid", "save": "said"},
        {"call": "ship", "with": {"place": "$place"}, "save": "box"},
        {"return": "$box"},
    ],
}


async def reserve() -> str:
    return "shelf 7"


async def ship(place: str) -> str:
    return f"shipped from {place}"


async def hang() -> None:
    await asyncio.sleep(3_600)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with perdure.Engine(sys.argv[1]) as engine:
        app.state.engine = engine
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{token}")
async def order(token: str) -> dict[str, str]:
    return {"id": (await app.state.engine.start(ORDER, token=token)).id}


@app.get("/orders/{run}")
async def status(run: str) -> dict[str, str]:
    return {"status": await app.state.engine.handle(run).status()}


if __name__ == "__main__":
    for name in sys.argv[2:]:
        provider, _, what = name.partition("=")
        perdure.provider(provider)(globals()[what or provider])
    uvicorn.run(app, port=0)
