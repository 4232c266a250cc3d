"""Secrets in this process' memory, and nowhere else: found by their key, made when they are not there, once at a time.

Nothing here is ever written: another process, or this one after a restart, makes what it needs again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.kernel.sealed_arguments import CannotOpen, Entry, Found
from perdure.kernel.values import SECOND, Instant

if TYPE_CHECKING:
    from perdure.services.playbook.keychain import Resolved

SWEEP = 256  # keys that may come before those that have ended are looked for


@dataclass(frozen=True, slots=True)
class Kept:
    found: Found
    secrets: tuple[str, ...]


Make = Callable[[], "Awaitable[Resolved]"]


class SecretCache:
    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._kept: dict[str, Kept] = {}
        self._flights: dict[str, asyncio.Task[Kept]] = {}
        self._sweep_at = SWEEP

    async def get(self, entry: Entry, make: Make) -> Kept:
        """The entry's value. However many want it, it is made once; if that fails, it fails for all who waited.

        One that has ended is made anew only where its author says so (PBK-183).
        """
        if not entry.renews and entry.due is not None and entry.due <= self._now():
            message = f"{entry.name} has expired; `auto_renew: true` would renew it"
            raise CannotOpen("auth", message, "KEYCHAIN_EXPIRED")
        kept = self._kept.get(entry.key)
        if kept is not None and (kept.found.due is None or kept.found.due > self._now()):
            return kept
        flight = self._flights.get(entry.key)
        if flight is None:
            flight = self._flights[entry.key] = asyncio.get_running_loop().create_task(self._make(entry, make))
            flight.add_done_callback(lambda _: self._flights.pop(entry.key, None))
        return await asyncio.shield(flight)  # the first to come may be cancelled, those behind it wait for the same

    async def _make(self, entry: Entry, make: Make) -> Kept:
        made = await make()
        lifetime = entry.lifetime if made.lifetime is None else made.lifetime
        due = self._now() + int(lifetime * SECOND)
        kept = Kept(Found(made.kind or entry.kind, made.value, due), tuple(made.secrets()))
        self._kept[entry.key] = kept
        self._sweep()
        return kept

    def _sweep(self) -> None:
        if len(self._kept) < self._sweep_at:
            return
        now = self._now()
        self._kept = {key: kept for key, kept in self._kept.items() if kept.found.due is None or kept.found.due > now}
        self._sweep_at = max(SWEEP, 2 * len(self._kept))

    async def close(self) -> None:
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        self._kept.clear()
