"""Metadata that the hub adds to messages: which run and step they belong to, and their trace (STR-046, 099).

A journey is a trace, a publication is a span. The context has the form of W3C: `00-TRACE-SPAN-FLAGS`, where the flag 01
says that the journey was sampled. Workers find it as `traceparent` in the metadata of a message and may continue it;
what they write there does not count. A packet from outside may bring one: its journey belongs to that trace.

Ids are digests of what they name: a packet that comes again has the same ones.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

from perdure.streams.stream_graph import Settings, StreamStep
from perdure.streams.stream_messages import StreamMessage

TRACE_PARENT = "traceparent"
OWN = frozenset({"storyrun-name", "storyrun-namespace", "current-step-id", TRACE_PARENT})

SAMPLED, NOT_SAMPLED = "01", "00"
PERCENT = 100

_CONTEXT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def without_own(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata without what is the hub's: what anybody else writes there does not count (STR-046)."""
    return {name: value for name, value in metadata.items() if name not in OWN}


def own_metadata(message: StreamMessage, run: Mapping[str, str], step: str) -> dict[str, str]:
    """The metadata of a message as a step sees it, with what the hub says of the run, the step and the trace."""
    own = {"storyrun-name": run["name"], "storyrun-namespace": run["namespace"], "current-step-id": step}
    if message.trace:
        own[TRACE_PARENT] = message.trace
    return {**message.metadata, **own}


def is_trace_context(text: str) -> bool:
    return _CONTEXT.fullmatch(text) is not None


def is_sampled(context: str) -> bool:
    return bool(context) and int(context[-2:], 16) & 1 == 1


class Tracer:
    """Makes the trace contexts of one topology."""

    def __init__(self, run: Mapping[str, str]) -> None:
        self._run = f"{run.get('namespace', '')}/{run.get('name', '')}"
        self._begun: dict[str, int] = {}  # journeys, by the step that they began with

    def trace(self, plan: StreamStep, message: StreamMessage, *, begins: bool) -> str:
        """The context of what a step publishes: a new trace, or another span of the one that the message has."""
        if begins or not message.trace:
            trace_id = _digest(32, self._run, message.root)
            flags = SAMPLED if self._samples(plan, trace_id) else NOT_SAMPLED
        else:
            trace_id, flags = message.trace[3:35], message.trace[-2:]
        return f"00-{trace_id}-{_digest(16, trace_id, plan.name, message.id)}-{flags}"

    def adopt(self, plan: StreamStep, message: StreamMessage) -> None:
        """A packet from outside continues the trace that it brings, or begins one if its step is traced."""
        if not message.metadata and not plan.settings.tracing:
            return
        brought = message.metadata.get(TRACE_PARENT, "")
        message.metadata = without_own(message.metadata)
        if is_trace_context(brought):
            message.trace = brought
        elif plan.settings.tracing:
            message.trace = self.trace(plan, message, begins=True)

    def _samples(self, plan: StreamStep, trace_id: str) -> bool:
        settings: Settings = plan.settings
        if settings.tracing in ("always", "never"):
            return settings.tracing == "always"
        if settings.tracing == "random":
            return int(trace_id[:8], 16) * PERCENT < settings.trace_rate << 32
        before = self._begun.get(plan.name, 0)  # rate: evenly, so that of 100 journeys exactly so many are sampled
        self._begun[plan.name] = before + 1
        return (before + 1) * settings.trace_rate // PERCENT > before * settings.trace_rate // PERCENT


def _digest(length: int, *parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:length]
