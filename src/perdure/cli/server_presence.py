"""Whether a server works on the store: it resumes runs without a live owner, and nobody needs to type a command."""

import asyncio

from perdure.engine.client import Client
from perdure.stores.errors import StoreError

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
