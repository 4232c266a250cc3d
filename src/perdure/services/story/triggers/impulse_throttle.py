"""Waiting at the throttle of an Impulse (STY-157), by deliveries in progress and by requests that are stored already.

The state of a throttle is in the status of its Impulse, so that all servers share it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.resource import Resource, annotations_of, name_of
from perdure.dialects.story.triggers import impulse_counts
from perdure.dialects.story.triggers.delivery import ImpulseThrottle, release
from perdure.dialects.story.triggers.requests import impulse_of
from perdure.engine.client import Client
from perdure.engine.resources.lookup_answers import document
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import Instant
from perdure.services.entry_status import change_status
from perdure.stores.errors import StoreLocked

TRANSIENT = (StoreLocked, TimeoutError, ConnectionError)


def throttle_metrics() -> list[tuple[str, str, str, list[tuple[str, tuple[tuple[str, str], ...], float]]]]:
    """As `perdure.services.TOTALS` describes it."""
    help_text = "Deliveries of Impulses that had to wait for their throttle."
    return [("bobrapet_impulse_throttled_triggers_total", "counter", help_text, [("", (), ThrottledDelivery.waited)])]


class ThrottledDelivery:
    """One delivery waiting at the throttle: how it changes the Impulse's status, and how long it has to wait."""

    waited: ClassVar[int] = 0  # how many had to wait, in this process

    def __init__(self, throttle: ImpulseThrottle, holder: str, *, counts: bool = True) -> None:
        self._throttle = throttle
        self._holder = holder
        self._counts = counts
        self._first: Instant | None = None  # when it first had to wait, which is counted once
        self.wait: Instant = 0

    def attempt(self, now: Instant, status: dict[str, Any]) -> dict[str, Any]:
        before = status.get("throttle", {})
        state, wait = self._throttle.acquire(before, self._holder, now)
        self.wait = wait
        if not wait:
            return {**status, "throttle": state}
        if self._first is None:
            self._first = now
            ThrottledDelivery.waited += self._counts
        if self._first == now and self._counts:
            status = impulse_counts.count_throttled(status, now)
        elif not self._throttle.in_flight or self._holder in before.get("inFlight", {}):
            return status  # only the time has changed
        return {**status, "throttle": state}


def throttling_impulse(trigger: Resource) -> ResourceKey | None:
    """The Impulse whose throttle a stored request passes: one that came over HTTP."""
    return impulse_of(trigger) if labels.THROTTLED in annotations_of(trigger) else None


async def enter(client: Client, trigger: Resource) -> bool:
    """Whether a stored request may be decided now."""
    impulse = throttling_impulse(trigger)
    if impulse is None:
        return True
    row = (await client.store.resources([impulse])).get(impulse)
    throttle = ImpulseThrottle() if row is None else ImpulseThrottle.read(document(row))
    if throttle.is_off:
        return True
    delivery = ThrottledDelivery(throttle, name_of(trigger), counts=False)
    await change_status(client, impulse, partial(delivery.attempt, client.clock.now()))
    return not delivery.wait


async def leave(client: Client, key: ResourceKey | None, holder: str) -> None:
    """Give the place back. If the store cannot be written now, it expires by itself."""
    if key is not None:
        with suppress(*TRANSIENT, Conflict):
            await change_status(client, key, lambda status: _without(status, holder))


def _without(status: dict[str, Any], holder: str) -> dict[str, Any]:
    places = status.get("throttle", {}).get("inFlight", {})
    return with_throttle(status, release, holder) if holder in places else status


def with_throttle(
    status: dict[str, Any], change: Callable[..., Mapping[str, Any]], holder: str, **more: Any
) -> dict[str, Any]:
    return {**status, "throttle": change(status.get("throttle", {}), holder, **more)}
