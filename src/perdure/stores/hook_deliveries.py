"""What a store keeps for outgoing hooks: how far each has read the change feed, and each delivery until it is done.

change feed ──one transaction: position and deliveries──▶ open ──answered 2xx──▶ delivered ──later──▶ removed
                                                           ├──else, after a pause──▶ open
                                                           └──given up──▶ dead ──retry──▶ open
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.kernel.json_values.values import Instant

OPEN, DELIVERED, DEAD = "open", "delivered", "dead"


class HookRow(msgspec.Struct, gc=False, frozen=True):
    name: str
    address: str  # without credentials
    position: int  # of the change feed: up to here its deliveries are written
    is_paused: bool
    seen_at: Instant  # by a server that has it in its settings


class DeliveryRow(msgspec.Struct, gc=False, frozen=True):
    """One event on its way to the receiver of a hook."""

    hook: str
    position: int  # of the change that it tells of
    run: str
    namespace: str
    body: bytes
    created_at: Instant
    state: str = OPEN
    attempts: int = 0
    next_at: Instant = 0  # not before this; while it is under way, when another server may try
    answered_at: Instant | None = None
    status: int | None = None  # of the last answer
    error: str = ""  # why the last attempt failed


DELIVERY_COLUMNS = (
    "hook, position, run, namespace, body, created_at, state, attempts, next_at, answered_at, status, error"
)
HOOK_COLUMNS = "name, address, position, is_paused, seen_at"


class HookStore(Protocol):
    async def note_hooks(self, hooks: Mapping[str, str], now: Instant, expired: Instant) -> list[HookRow]:
        """A server has these hooks, by name, with their addresses; a new one begins at the end of the change feed.

        Those that no server has named since `expired` are removed, with their deliveries. All that there are.
        """

    async def hooks(self) -> list[HookRow]: ...

    async def pause_hook(self, name: str, *, is_paused: bool) -> bool:
        """False if there is no such hook. Nothing of a paused hook is sent; what happens meanwhile is kept."""

    async def add_deliveries(self, hook: str, after: int, position: int, rows: Sequence[DeliveryRow]) -> bool:
        """Write these and move the hook from one position to the next; False, and nothing, if another server did."""

    async def take_deliveries(
        self, hooks: Sequence[str], now: Instant, until: Instant, limit: int
    ) -> list[DeliveryRow]:
        """Open ones of these hooks whose time has come, in order; nobody else gets them before `until`."""

    async def settle_delivery(self, row: DeliveryRow) -> None:
        """Write what became of an attempt: state, next time, answer."""

    async def deliveries(self, hook: str, state: str | None, before: int | None, limit: int) -> list[DeliveryRow]:
        """The latest first."""

    async def retry_deliveries(self, hook: str, now: Instant) -> int:
        """Try dead ones again; how many there were."""

    async def drop_deliveries(self, before: Instant) -> int:
        """Remove those that were delivered before then; how many."""
