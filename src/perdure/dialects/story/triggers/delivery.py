"""How an Impulse delivers what it has heard of (STY-013, 154, 155, 156): inputs, token, and when to try again."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any

from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.resources.names import canonical
from perdure.dialects.story.resources.resource import Resource, name_of, namespace_of, read_reference, spec_of
from perdure.dialects.story.values import template_roots
from perdure.expressions.gotemplate import Ambient, ExpressionError, Structure
from perdure.kernel.retry import Backoff, delay
from perdure.kernel.values import SECOND, Instant

# How many deliveries of an Impulse may be under way, and how fast they may follow each other (STY-157).

LEASE: Instant = 60 * SECOND
RENEW_EVERY: Instant = LEASE // 3
LOOK_AGAIN: Instant = SECOND // 20  # while all places are taken

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImpulseThrottle:
    in_flight: int = 0
    rate: int = 0
    burst: int = 0

    @classmethod
    def read(cls, impulse: Resource) -> "ImpulseThrottle":
        found = spec_of(impulse).get("throttle")
        found = found if isinstance(found, dict) else {}
        rate = int(found.get("ratePerSecond") or 0)
        return cls(int(found.get("maxInFlight") or 0), rate, int(found.get("burst") or 0) or rate)

    @property
    def is_off(self) -> bool:
        return not self.in_flight and not self.rate

    def acquire(self, state: State, holder: str, now: Instant) -> tuple[State, Instant]:
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


def release(state: State, holder: str) -> State:
    return {**state, "inFlight": {name: until for name, until in state.get("inFlight", {}).items() if name != holder}}


BASE_DELAY: Instant = SECOND
MAX_DELAY: Instant = 300 * SECOND
LEAST, MOST = 0.75, 1.25  # of a wait, drawn evenly


class BadDelivery(ValueError):
    """An event that cannot be delivered; trying again does not help. The sentence says why."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """What holds for an Impulse: its own words, field by field over those of its template (STY-154)."""

    mode: str
    key_template: str
    attempts: int
    backoff: Backoff
    base: Instant
    ceiling: Instant

    @classmethod
    def read(cls, impulse: Resource, template: Resource | None) -> "DeliveryPolicy":
        below = _delivery(template or {})
        above = _delivery(impulse)
        dedupe = {**_part(below, "dedupe"), **_part(above, "dedupe")}
        retry = {**_part(below, "retry"), **_part(above, "retry")}
        most = retry.get("maxAttempts")
        return cls(
            mode=dedupe.get("mode") or "none",
            key_template=dedupe.get("keyTemplate") or "",
            attempts=most if isinstance(most, int) and most > 0 else 1,
            backoff=Backoff(retry.get("backoff") or "exponential"),
            base=_span(retry.get("baseDelay"), BASE_DELAY),
            ceiling=_span(retry.get("maxDelay"), MAX_DELAY),
        )

    def wait_before(self, attempt: int, chance: float) -> Instant:
        """How long to wait before an attempt, the second or a later one; `chance` is drawn from 0..1 (STY-156)."""
        plain = delay(self.backoff, self.base, attempt - 1, self.ceiling)
        return min(int(plain * (LEAST + (MOST - LEAST) * chance)), self.ceiling)


def map_event(impulse: Resource, event: Any, ambient: Ambient | None = None) -> dict[str, Any]:
    """The inputs that an event stands for: itself, or what the mapping makes of it (STY-013)."""
    mapping = spec_of(impulse).get("mapping")
    if mapping is not None:
        try:
            event = Structure(mapping, template_roots.MAPPING).render({"context": event}, ambient)
        except ExpressionError as fault:
            raise BadDelivery(f"spec.mapping: {fault}") from None
    if event is None:
        return {}
    if not isinstance(event, dict):
        raise BadDelivery("the event is not an object; spec.mapping can make inputs of it")
    return event


def token_for(policy: DeliveryPolicy, impulse: Resource, inputs: Mapping[str, Any], given: str | None) -> str | None:
    """What tells this delivery from others; None: nothing does (STY-155)."""
    if policy.mode == "key":
        token = _key_token(policy.key_template, impulse, inputs)
        if given and given != token:
            raise BadDelivery("the caller's token is not the one that the keyTemplate gives")
        return token
    if policy.mode == "token" and not given:
        raise BadDelivery("the delivery policy asks for a token (dedupe.mode is token), and there is none")
    return given or None


def _key_token(template: str, impulse: Resource, inputs: Mapping[str, Any]) -> str:
    story = read_reference(spec_of(impulse).get("storyRef"), namespace_of(impulse))
    assert story is not None
    roots = {
        "inputs": inputs,
        "story": {"name": story.name, "namespace": story.namespace},
        "impulse": {"name": name_of(impulse), "namespace": namespace_of(impulse)},
    }
    try:
        rendered = Structure(template, template_roots.TRIGGER_KEY).render(roots)
    except ExpressionError as fault:
        raise BadDelivery(f"deliveryPolicy.dedupe.keyTemplate: {fault}") from None
    text = (rendered if isinstance(rendered, str) else canonical(rendered)).strip()
    if not text:
        raise BadDelivery("deliveryPolicy.dedupe.keyTemplate gave nothing, so that nothing tells deliveries apart")
    return sha256(text.encode()).hexdigest()


def _delivery(resource: Resource) -> dict[str, Any]:
    return _part(spec_of(resource), "deliveryPolicy")


def _part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return {key: value for key, value in found.items() if value is not None} if isinstance(found, dict) else {}


def _span(text: Any, default: Instant) -> Instant:
    try:
        return read_duration(text) or default if text else default
    except BadDuration:
        return default
