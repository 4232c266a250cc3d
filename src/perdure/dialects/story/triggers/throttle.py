"""How many deliveries of an Impulse may be under way, and how fast they may follow each other (STY-157).

A semaphore first, then a bucket that fills evenly. The state is data, shared by all who deliver for the Impulse:

    {"inFlight": {holder: until}, "tokens": 3.5, "at": instant}

A place is a lease, so that one who died with it does not keep it; whoever lives renews it for as long as the delivery
takes, however long that is.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from perdure.dialects.story.resources.resource import Resource, spec_of
from perdure.kernel.values import SECOND, Instant

LEASE: Instant = 60 * SECOND
RENEW_EVERY: Instant = LEASE // 3
LOOK_AGAIN: Instant = SECOND // 20  # while all places are taken

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Throttle:
    in_flight: int = 0
    rate: int = 0
    burst: int = 0

    @classmethod
    def read(cls, impulse: Resource) -> "Throttle":
        found = spec_of(impulse).get("throttle")
        found = found if isinstance(found, dict) else {}
        rate = int(found.get("ratePerSecond") or 0)
        return cls(int(found.get("maxInFlight") or 0), rate, int(found.get("burst") or 0) or rate)

    @property
    def is_off(self) -> bool:
        return not self.in_flight and not self.rate

    def enter(self, state: State, holder: str, now: Instant) -> tuple[State, Instant]:
        """The state with a place taken and 0; or how long to wait before asking again, and what changed meanwhile."""
        held = {name: until for name, until in state.get("inFlight", {}).items() if until > now}
        if self.in_flight and holder not in held:
            if len(held) >= self.in_flight:
                return {**state, "inFlight": held}, LOOK_AGAIN
            held[holder] = now + LEASE
        state = {**state, "inFlight": held}
        if not self.rate:
            return state, 0
        tokens = min(
            float(self.burst),
            float(state.get("tokens", self.burst)) + max(0, now - state.get("at", now)) * self.rate / SECOND,
        )
        state |= {"tokens": tokens, "at": max(now, state.get("at", now))}
        if tokens < 1:
            return state, ceil((1 - tokens) * SECOND / self.rate)
        return state | {"tokens": tokens - 1}, 0


def renew(state: State, holder: str, now: Instant) -> State:
    held = state.get("inFlight", {})
    return {**state, "inFlight": {**held, holder: now + LEASE}} if holder in held else state


def leave(state: State, holder: str) -> State:
    return {**state, "inFlight": {name: until for name, until in state.get("inFlight", {}).items() if name != holder}}
