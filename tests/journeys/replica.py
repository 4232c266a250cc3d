"""A small web service with an engine inside, to be run twice: `python replica.py STORE [PROVIDER …]`.

    POST /orders/TOKEN   starts the order of this name, or finds it, and answers with its id
    GET /orders/ID       its status

It says on which port it listens. A provider that it is not told to have is not loaded.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import perdure

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


async def serve(store: str) -> None:
    async with perdure.Engine(store) as engine:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            method, path, _ = (await reader.readline()).decode().split()
            while (await reader.readline()).strip():
                pass
            name = path.rpartition("/")[2]
            if method == "POST":
                told: dict[str, str] = {"id": (await engine.start(ORDER, token=name)).id}
            else:
                told = {"status": await engine.handle(name).status()}
            body = json.dumps(told).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await server.serve_forever()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        given, _, what = name.partition("=")
        perdure.provider(given)(globals()[what or given])
    asyncio.run(serve(sys.argv[1]))
