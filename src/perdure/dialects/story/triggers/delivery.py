"""How an Impulse delivers events (STY-013, 154, 155, 156): inputs, token and retry delay."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any

from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.resources.names import canonical
from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of, spec_of
from perdure.dialects.story.triggers.requests import target_name, target_of
from perdure.dialects.story.values import template_roots
from perdure.expressions.gotemplate import Ambient, ExpressionError, Structure
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.tasks.retry import Backoff, delay

# Limits on the number of concurrent deliveries of an Impulse and on their rate (STY-157).

LEASE: Instant = 60 * SECOND
RENEW_EVERY: Instant = LEASE // 3
RECHECK_AFTER: Instant = SECOND // 20  # while the maximum is in flight

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImpulseThrottle:
    in_flight: int = 0
    rate: int = 0
    burst: int = 0

    @classmethod
    def read(cls, impulse: Resource) -> "ImpulseThrottle":
        throttle = spec_of(impulse).get("throttle")
        throttle = throttle if isinstance(throttle, dict) else {}
        rate = int(throttle.get("ratePerSecond") or 0)
        return cls(int(throttle.get("maxInFlight") or 0), rate, int(throttle.get("burst") or 0) or rate)

    @property
    def is_off(self) -> bool:
        return not self.in_flight and not self.rate

    def acquire(self, state: State, holder: str, now: Instant) -> tuple[State, Instant]:
        """The state with a place taken, and 0; or the state without one, and the delay before the next try."""
        in_flight = {name: until for name, until in state.get("inFlight", {}).items() if until > now}
        if self.in_flight and holder not in in_flight:
            if len(in_flight) >= self.in_flight:
                return {**state, "inFlight": in_flight}, RECHECK_AFTER
            in_flight[holder] = now + LEASE
        state = {**state, "inFlight": in_flight}
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
    in_flight = state.get("inFlight", {})
    return {**state, "inFlight": {**in_flight, holder: now + LEASE}} if holder in in_flight else state


def release(state: State, holder: str) -> State:
    return {**state, "inFlight": {name: until for name, until in state.get("inFlight", {}).items() if name != holder}}


BASE_DELAY: Instant = SECOND
MAX_DELAY: Instant = 300 * SECOND
LEAST, MOST = 0.75, 1.25  # factors of a delay; the actual one is uniformly random


class BadDelivery(ValueError):
    """An event that cannot be delivered, even with retries; the message says why."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """The delivery policy of an Impulse: its own fields override those of its template (STY-154)."""

    mode: str
    key_template: str
    attempts: int
    backoff: Backoff
    base: Instant
    ceiling: Instant

    @classmethod
    def read(cls, impulse: Resource, template: Resource | None) -> "DeliveryPolicy":
        from_template = _delivery(template or {})
        from_impulse = _delivery(impulse)
        dedupe = {**_part(from_template, "dedupe"), **_part(from_impulse, "dedupe")}
        retry = {**_part(from_template, "retry"), **_part(from_impulse, "retry")}
        max_attempts = retry.get("maxAttempts")
        return cls(
            mode=dedupe.get("mode") or "none",
            key_template=dedupe.get("keyTemplate") or "",
            attempts=max_attempts if isinstance(max_attempts, int) and max_attempts > 0 else 1,
            backoff=Backoff(retry.get("backoff") or "exponential"),
            base=_duration(retry.get("baseDelay"), BASE_DELAY),
            ceiling=_duration(retry.get("maxDelay"), MAX_DELAY),
        )

    def wait_before(self, attempt: int, chance: float) -> Instant:
        """The delay before the second or a later attempt; `chance` is a random number from 0..1 (STY-156)."""
        plain = delay(self.backoff, self.base, attempt - 1, self.ceiling)
        return min(int(plain * (LEAST + (MOST - LEAST) * chance)), self.ceiling)


def map_event(impulse: Resource, event: Any, ambient: Ambient | None = None) -> dict[str, Any]:
    """The inputs for an event: the event itself, or the result of the mapping (STY-013)."""
    mapping = spec_of(impulse).get("mapping")
    if mapping is not None:
        try:
            event = Structure(mapping, template_roots.MAPPING).render({"context": event}, ambient)
        except ExpressionError as fault:
            raise BadDelivery(f"spec.mapping: {fault}") from None
    if event is None:
        return {}
    if not isinstance(event, dict):
        raise BadDelivery("the event is not an object; use spec.mapping to turn it into inputs")
    return event


def token_for(
    policy: DeliveryPolicy, impulse: Resource, inputs: Mapping[str, Any], caller_token: str | None
) -> str | None:
    """The token that identifies this delivery; None if nothing does (STY-155)."""
    if policy.mode == "key":
        token = _key_token(policy.key_template, impulse, inputs)
        if caller_token and caller_token != token:
            raise BadDelivery("the caller's token differs from the result of spec.deliveryPolicy.dedupe.keyTemplate")
        return token
    if policy.mode == "token" and not caller_token:
        raise BadDelivery("spec.deliveryPolicy.dedupe.mode is token, but no token was given")
    return caller_token or None


def _key_token(template: str, impulse: Resource, inputs: Mapping[str, Any]) -> str:
    name, namespace = target_name(target_of(spec_of(impulse)), namespace_of(impulse))
    roots = {
        "inputs": inputs,
        "story": {"name": name, "namespace": namespace},
        "impulse": {"name": name_of(impulse), "namespace": namespace_of(impulse)},
    }
    try:
        rendered = Structure(template, template_roots.TRIGGER_KEY).render(roots)
    except ExpressionError as fault:
        raise BadDelivery(f"spec.deliveryPolicy.dedupe.keyTemplate: {fault}") from None
    text = (rendered if isinstance(rendered, str) else canonical(rendered)).strip()
    if not text:
        raise BadDelivery("spec.deliveryPolicy.dedupe.keyTemplate gave an empty key")
    return sha256(text.encode()).hexdigest()


def _delivery(resource: Resource) -> dict[str, Any]:
    return _part(spec_of(resource), "deliveryPolicy")


def _part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name)
    return {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else {}


def _duration(text: Any, default: Instant) -> Instant:
    try:
        return read_duration(text) or default if text else default
    except BadDuration:
        return default
