"""Whether servers share the store: then a run that nobody drives is taken up without anybody typing anything."""

import asyncio

from perdure.engine.client import Client
from perdure.stores.errors import StoreError

LAST_LOOK = 1.0  # seconds, for a store that may be the reason why we are being stopped

TAKEN_UP = "a server takes it up"


async def is_served(client: Client) -> bool:
    return any(server.serves for server in await client.store.servers())


async def is_served_after_us(client: Client) -> bool:
    """The same, asked on the way out: when it cannot be found out soon, nobody is promised anything."""
    return await _servers_after_us(client) > 0


async def others_serve(client: Client) -> bool:
    """The same, asked by a server on its way out."""
    return await _servers_after_us(client) > 1


async def _servers_after_us(client: Client) -> int:
    try:
        async with asyncio.timeout(LAST_LOOK):
            return sum(server.serves for server in await client.store.servers())
    except (StoreError, TimeoutError):
        return 0


async def who_goes_on(client: Client, command: str) -> str:
    """Of a run that was recorded and is driven by nobody yet."""
    return TAKEN_UP if await is_served(client) else f"no live process drives it. Have it done with: {command}"
