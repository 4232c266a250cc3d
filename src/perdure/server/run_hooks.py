"""Outgoing hooks: ends of runs are sent to addresses of the operator as signed CloudEvents, at least once.

Each server with hooks reads the change feed for them. Which server writes the deliveries of a change, and which one
sends a delivery, the store decides: one at a time. A server that dies leaves its deliveries to the others.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx
from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Status
from perdure.providers.failure import ProviderFailure
from perdure.providers.http_client import as_written, paced_transport
from perdure.server.hook_settings import Hook
from perdure.stores.feed_changes import FeedChange
from perdure.stores.hook_deliveries import DEAD, DELIVERED, OPEN, DeliveryRow, HookRow
from perdure.views.runs.run_changes import change_json, matches
from perdure.views.times import iso

_log = logging.getLogger("perdure.server")

LOOK_EVERY = 0.5  # seconds
NOTE_EVERY = 60.0  # seconds
READ_AT_ONCE = 100
AT_ONCE = 16  # deliveries of one hook under way: a receiver that does not answer holds up no other
LONGEST_PAUSE = 3_600.0  # seconds between two attempts
FORGOTTEN_AFTER = 86_400 * SECOND  # a hook that no server has named for so long is removed
DELIVERED_KEPT = 86_400 * SECOND
LAST_WAIT = 3.0  # seconds for deliveries under way when the server stops
GONE = 410
EVENT_TYPE = "dev.perdure.run.ended"
MEDIA_TYPE = "application/cloudevents+json"


def run_event(change: FeedChange) -> dict[str, Any]:
    """The end of a run as a CloudEvent. Each attempt and each server sends the same one."""
    return {
        "specversion": "1.0",
        "id": f"{change.name}-{change.number}",
        "source": f"/perdure/namespaces/{change.namespace}",
        "type": EVENT_TYPE,
        "subject": change.name,
        "time": iso(change.at),
        "datacontenttype": "application/json",
        "sequence": str(change.position),
        "data": change_json(change),
    }


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """As Standard Webhooks does."""
    made = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(made).decode()}"


def pause_after(attempts: int, asked: float, chance: float) -> float:
    """Seconds before the next attempt: doubled each time, and what the receiver asks for, up to an hour."""
    grown = min(LONGEST_PAUSE, 2.0 ** min(attempts - 1, 12))
    return min(LONGEST_PAUSE, max(grown * (0.8 + 0.4 * chance), asked))


class RunHooks:
    """The hooks of one server."""

    def __init__(self, client: Client, hooks: Sequence[Hook], say: Callable[[str], None]) -> None:
        self._client = client
        self._hooks = {hook.name: hook for hook in hooks}
        self._say = say
        self._began = client.clock.now()
        self._under_way: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)

    async def note(self) -> None:
        """Let the store know which hooks there are."""
        now = self._client.clock.now()
        is_known = now - self._began > FORGOTTEN_AFTER  # before, others may just not have started again
        addresses = {hook.name: hook.address for hook in self._hooks.values()}
        await self._client.store.note_hooks(addresses, now, now - FORGOTTEN_AFTER if is_known else 0)
        await self._client.store.drop_deliveries(now - DELIVERED_KEPT)

    async def run(self) -> None:
        """Until cancelled. A store that is away is waited for."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        async with AsyncExitStack() as stack:
            clients: dict[str, httpx.AsyncClient] = {}
            for hook in self._hooks.values():
                transport = paced_transport(limits, False, as_written, hook.certificates)
                http = httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)
                clients[hook.name] = await stack.enter_async_context(http)
            noted_at = time.monotonic()
            try:
                while True:
                    await asyncio.sleep(LOOK_EVERY if self._hooks else NOTE_EVERY)
                    try:
                        if time.monotonic() - noted_at >= NOTE_EVERY:
                            noted_at = time.monotonic()
                            await self.note()
                        if self._hooks:
                            await self._poll(clients)
                    except PerdureError as error:
                        _log.warning("hooks have to wait: %s", error)
            finally:
                tasks = [task for under_way in self._under_way.values() for task in under_way]
                if tasks:
                    await asyncio.wait(tasks, timeout=LAST_WAIT)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self, clients: Mapping[str, httpx.AsyncClient]) -> None:
        store = self._client.store
        for known in await store.hooks():
            if (hook := self._hooks.get(known.name)) is not None:
                await self._write_deliveries(hook, known)
        for hook in self._hooks.values():
            under_way = self._under_way[hook.name]
            now = self._client.clock.now()
            until = now + int((2 * hook.timeout + 10) * SECOND)
            free = AT_ONCE - len(under_way)
            for row in await store.take_deliveries([hook.name], now, until, free) if free > 0 else ():
                task = asyncio.ensure_future(self._deliver(clients[hook.name], hook, row))
                under_way.add(task)
                task.add_done_callback(under_way.discard)

    async def _write_deliveries(self, hook: Hook, row: HookRow) -> None:
        store, position = self._client.store, row.position
        while True:
            page = await store.read_feed(position, READ_AT_ONCE)
            if not page.continues(position):
                self._say(f"hook {hook.name}: ends of runs before now are not known any more, and not sent")
                await store.add_deliveries(hook.name, position, page.last, [])
                return
            if not page.changes:
                return
            now = self._client.clock.now()
            rows = [
                DeliveryRow(
                    hook.name, change.position, change.name, change.namespace, jsontext.encode(run_event(change)), now
                )
                for change in page.changes
                if _is_end(change) and matches(hook.filter, change)
            ]
            last = page.changes[-1].position
            if not await store.add_deliveries(hook.name, position, last, rows):
                return  # another server has written them
            position = last

    async def _deliver(self, http: httpx.AsyncClient, hook: Hook, row: DeliveryRow) -> None:
        if hook.send is not None:
            status, error = await hook.send(self._client, http, row)
            await self._record(hook, row, status, error, 0.0)
            return
        status, error, asked = None, "", 0.0
        event_id = str(jsontext.decode(row.body)["id"])
        timestamp = int(time.time())
        headers = {
            "Content-Type": MEDIA_TYPE,
            "webhook-id": event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(hook.key, event_id, timestamp, row.body),
        }
        try:
            async with (
                asyncio.timeout(hook.timeout),
                http.stream("POST", hook.url, content=row.body, headers=headers) as response,
            ):
                status = response.status_code
                asked = _asked_pause(response.headers.get("retry-after", ""))
        except (httpx.HTTPError, httpx.InvalidURL, ProviderFailure, OSError, TimeoutError) as failure:
            error = type(failure).__name__ if not str(failure) else f"{type(failure).__name__}: {failure}"
        await self._record(hook, row, status, error, asked)

    async def _record(self, hook: Hook, row: DeliveryRow, status: int | None, error: str, asked: float) -> None:
        try:
            await self._client.store.settle_delivery(self._settled(hook, row, status, error[:500], asked))
        except PerdureError as failure:
            _log.warning("hook %s: what became of a delivery is not recorded: %s", hook.name, failure)

    def _settled(self, hook: Hook, row: DeliveryRow, status: int | None, error: str, asked: float) -> DeliveryRow:
        now = self._client.clock.now()
        if status is not None and 200 <= status < 300:
            return replace(row, state=DELIVERED, status=status, answered_at=now, error="")
        reason = error or f"answered {status}"
        if status == GONE or now - row.created_at >= hook.give_up:
            self._say(f"hook {hook.name}: the end of run {row.run} was not delivered ({reason}); given up")
            return replace(row, state=DEAD, status=status, answered_at=now, error=reason)
        pause = pause_after(row.attempts, asked, random.random())
        later = now + int(pause * SECOND)
        return replace(row, state=OPEN, status=status, answered_at=now, error=reason, next_at=later)


def _is_end(change: FeedChange) -> bool:
    return not change.is_removed and change.status is not None and Status(change.status).is_final


def _asked_pause(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0.0


def hook_json(row: HookRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "address": row.address,
        "position": row.position,
        "paused": row.is_paused,
        "seen_at": iso(row.seen_at),
    }


def delivery_json(row: DeliveryRow) -> dict[str, Any]:
    return {
        "position": row.position,
        "run": row.run,
        "namespace": row.namespace,
        "state": row.state,
        "attempts": row.attempts,
        "created_at": iso(row.created_at),
        "next_at": iso(row.next_at) if row.state == OPEN else None,
        "answered_at": iso(row.answered_at),
        "status": row.status,
        "error": row.error or None,
    }
