"""Whether a server works on the store, which resumes runs without a live owner; and whether this one is healthy."""

import asyncio

from perdure.engine.client import Client
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import RunId
from perdure.stores.errors import StoreError

HEALTH_TIMEOUT = 2.0  # seconds for the store's answer
LAST_LOOK = 1.0  # seconds, for a store that may be the reason why we are being stopped

TAKEN_UP = "a server will resume it"


async def is_served(client: Client) -> bool:
    return any(server.serves for server in await client.store.servers())


async def is_served_after_us(client: Client) -> bool:
    """The same, asked while this process stops: if the store does not answer soon, no."""
    return await _servers_after_us(client) > 0


async def others_serve(client: Client) -> bool:
    """The same, asked by a server that stops."""
    return await _servers_after_us(client) > 1


async def _servers_after_us(client: Client) -> int:
    try:
        async with asyncio.timeout(LAST_LOOK):
            return sum(server.serves for server in await client.store.servers())
    except (StoreError, TimeoutError):
        return 0


async def who_goes_on(client: Client, command: str) -> str:
    """Who continues a run that was recorded and has no live owner yet."""
    return TAKEN_UP if await is_served(client) else f"no server is running; resume it with: {command}"


async def health_json(engine: Client | None) -> dict[str, object]:
    if engine is None or engine.runtime is None:
        return {"well": False, "lease": False, "store": False}
    is_working = engine.runtime.stopped is None and not engine.store.is_late
    reaches_store = await _reaches_store(engine)
    has_lease = is_working and not engine.runtime.is_guest  # who leaves runs to others needs none
    return {"well": is_working and reaches_store, "lease": has_lease, "store": reaches_store}


async def _reaches_store(engine: Client) -> bool:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT):
            await engine.store.find(RunId(""))
    except (PerdureError, TimeoutError):
        return False
    return True
