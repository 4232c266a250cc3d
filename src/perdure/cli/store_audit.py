"""Commands that change a store as a whole are in its audit log too (SRV-026)."""

import asyncio

from perdure.views.administration.audit_log import act_on_store, seal_on_store
from perdure.wiring import Observer


def record_command(url: str, verb: str, object: str) -> None:
    """Written behind what the command did, with `via: store`; a store without an audit log stays without one."""

    async def record() -> None:
        async with Observer(url) as client:
            if await client.store.last_audit_seal() is not None:
                await client.store.add_audit_rows([act_on_store(client, verb, object).record().audit])
                await seal_on_store(client)

    asyncio.run(record())
