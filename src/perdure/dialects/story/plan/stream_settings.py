"""Settings of streaming steps: which transport a step uses, its settings merged, and their meaning (STR-003 to 010).

Later wins, member by member: the Transport's `defaultSettings`, its `streaming` with defaults filled in, then
`settings` and `streaming` of the Story's own entry.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.plan.settings import DEFAULTS
from perdure.dialects.story.plan.settings import Settings as OperatorSettings
from perdure.dialects.story.resources.durations import BadDuration, read_positive
from perdure.dialects.story.resources.resource import Resource, merged, spec_of
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.streams.stream_graph import Lane, Rule, Settings

LOCAL, NATS = "local", "nats"
DRIVERS = (LOCAL, NATS)

BUILT_IN: Resource = {
    "kind": "Transport",
    "metadata": {"name": LOCAL},
    "spec": {"driver": LOCAL, "supportedBinary": ["application/json", "application/octet-stream"]},
}
"""The Transport that nobody has to apply (STR-006)."""

_LANE_KINDS = ("audio", "video", "binary", "payload")
_FLOW = {
    "ackEvery": {"messages": 10, "maxDelay": "250ms"},
    "pauseThreshold": {"bufferPct": 90},
    "resumeThreshold": {"bufferPct": 50},
}
DEFAULT_MAX_DOWNSTREAMS = 32
_NONE: Mapping[str, Any] = {}


def entry_of(program: Program, step: Step) -> Mapping[str, Any]:
    """The Story's entry for the transport that a step uses; empty: the built-in one is used as it is (STR-003)."""
    entries = [entry for entry in program.spec.get("transports") or () if isinstance(entry, dict)]
    chosen = step.data.get("transport")
    if isinstance(chosen, str) and chosen.strip():
        return next((entry for entry in entries if entry.get("name") == chosen), _NONE)
    return entries[0] if len(entries) == 1 else _NONE


def transport_name(entry: Mapping[str, Any]) -> str:
    name = entry.get("transportRef")
    return name.strip() if isinstance(name, str) and name.strip() else LOCAL


def merge_settings(
    transport: Resource, entry: Mapping[str, Any], operator: OperatorSettings = DEFAULTS
) -> dict[str, Any]:
    """All settings of a step in one object, as its TransportBinding shows them."""
    spec = spec_of(transport)
    settings: dict[str, Any] = merged(object_at(spec, "defaultSettings"), _filled(object_at(spec, "streaming")))
    settings = merged(settings, object_at(entry, "settings"))
    settings = dict(merged(settings, object_at(entry, "streaming")))
    if not any("lanes" in object_at(entry, level) for level in ("settings", "streaming")):
        settings["lanes"] = _with_caps(settings, operator)
    return settings


def _with_caps(settings: Mapping[str, Any], operator: OperatorSettings) -> list[Any]:
    """The lanes of a Transport; caps that it does not write are the buffer's (STR-009, 123)."""
    messages, size = _buffer_caps(object_at(settings, "backpressure", "buffer"), operator)
    return [
        {"direction": "bidirectional", "maxMessages": messages, "maxBytes": size, **lane}
        if isinstance(lane, dict)
        else lane
        for lane in settings.get("lanes") or ()
    ]


def _buffer_caps(buffer: Mapping[str, Any], operator: OperatorSettings) -> tuple[int, int]:
    messages = buffer.get("maxMessages") or operator.hub_buffer_max_messages
    return messages, buffer.get("maxBytes") or operator.hub_buffer_max_bytes


def _filled(streaming: dict[str, Any]) -> dict[str, Any]:
    """The settings of a Transport with defaults; those of a Story are taken as written (STR-009)."""
    filled = dict(streaming)
    flow = object_at(streaming, "flowControl")
    if "flowControl" not in streaming:
        filled["flowControl"] = {"mode": "credits", **_FLOW}
    elif flow.get("mode") in ("credits", "window"):
        filled["flowControl"] = {**flow, **{name: flow.get(name, default) for name, default in _FLOW.items()}}
    routing = object_at(streaming, "routing")
    filled["routing"] = {**routing, "maxDownstreams": routing.get("maxDownstreams", DEFAULT_MAX_DOWNSTREAMS)}
    if "lanes" not in streaming:
        filled["lanes"] = [{"name": kind, "kind": kind} for kind in _LANE_KINDS]
    return filled


def max_downstreams(settings: Mapping[str, Any]) -> int:
    return int(object_at(settings, "routing").get("maxDownstreams") or DEFAULT_MAX_DOWNSTREAMS)


ROLLING = "rolling"


def strategy_of(settings: Mapping[str, Any]) -> str:
    return str(object_at(settings, "lifecycle").get("strategy") or "")


def drain_seconds(settings: Mapping[str, Any]) -> int:
    """How long what is there may flow; a strategy of `rolling` that was written has no such time (STR-088)."""
    if strategy_of(settings) == ROLLING:
        return 0
    return int(object_at(settings, "lifecycle").get("drainTimeoutSeconds") or 0)


def nats_problem(value: Any) -> str | None:
    """What is wrong with `defaultSettings.nats` of a Transport; None if it names servers, and no login."""
    if not isinstance(value, dict) or not value.get("servers"):
        return "the driver nats needs defaultSettings.nats.servers, as in [nats://nats.example:4222]"
    if unknown := sorted(set(value) - {"servers", "secretRef", "replicas"}):
        return f"defaultSettings.nats has no member {unknown[0]!r} (there are servers, secretRef, replicas)"
    servers = value["servers"]
    if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
        return "defaultSettings.nats.servers is a list of addresses, as in [nats://nats.example:4222]"
    for server in servers:
        if problem := _address_problem(server):
            return problem
    secret = value.get("secretRef")
    if secret is not None and (not isinstance(secret, dict) or not secret.get("name") or set(secret) != {"name"}):
        return "defaultSettings.nats.secretRef is {name: NAME} of a secret with token, or username and password"
    replicas = value.get("replicas", 1)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not 1 <= replicas <= 5:
        return "defaultSettings.nats.replicas is a number from 1 to 5"
    return None


def _address_problem(server: str) -> str | None:
    try:
        parts = urlsplit(server)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        return "a NATS server is an address such as nats://nats.example:4222 or tls://nats.example:4222"
    if "@" in parts.netloc:
        return "the address of a NATS server has no user and no password: name a secret with secretRef"
    if parts.scheme not in ("nats", "tls") or not has_host or parts.path not in ("", "/") or parts.query:
        return f"{server!r} is not the address of a NATS server (expected e.g. nats://nats.example:4222)"
    return None


def read_nats(transport: Resource) -> dict[str, Any] | None:
    """How to reach the NATS servers of a Transport; None if it has another driver.

    A Story cannot change that: it would send the login that the Transport names to a server of its own.
    """
    spec = spec_of(transport)
    if spec.get("driver") != NATS:
        return None
    nats = object_at(spec, "defaultSettings", "nats")
    return {
        "servers": nats["servers"],
        "secret": object_at(nats, "secretRef").get("name", ""),
        "replicas": nats.get("replicas", 1),
    }


def read_settings(program: Program, settings: Mapping[str, Any], driver: str = LOCAL) -> Settings:
    """What the settings mean. An empty text counts as absent; a replay mode makes delivery at least once (STR-010)."""
    buffer = object_at(settings, "backpressure", "buffer")
    flow = object_at(settings, "flowControl")
    delivery = object_at(settings, "delivery")
    replay = object_at(delivery, "replay")
    join = object_at(settings, "fanIn")
    partitioning = object_at(settings, "partitioning")
    mode = replay.get("mode") or "none"
    is_kept = mode != "none" or delivery.get("semantics") == "at_least_once"
    watermark = object_at(settings, "observability", "watermark")
    tracing = object_at(settings, "observability", "tracing")
    operator = program.settings
    caps = _buffer_caps(buffer, operator)
    return Settings(
        driver=driver,
        max_messages=caps[0],
        max_bytes=caps[1],
        max_age=_seconds(buffer.get("maxAgeSeconds")) or read_positive(operator.hub_buffer_eviction_ttl),
        drops_oldest=buffer.get("dropPolicy") == "drop_oldest",
        flow=flow.get("mode") or "credits",
        credit_messages=object_at(flow, "initialCredits").get("messages") or 0,
        credit_bytes=object_at(flow, "initialCredits").get("bytes") or 0,
        ack_messages=object_at(flow, "ackEvery").get("messages") or 10,
        ack_bytes=object_at(flow, "ackEvery").get("bytes") or 0,
        ack_delay=_duration(object_at(flow, "ackEvery").get("maxDelay"), SECOND // 4),
        pause_at=object_at(flow, "pauseThreshold").get("bufferPct", 90),
        resume_below=object_at(flow, "resumeThreshold").get("bufferPct", 50),
        ordering=_ordering(delivery.get("ordering") or "none", is_kept),
        at_least_once=is_kept,
        replay="memory" if is_kept and mode == "none" else mode,
        retention=_seconds(replay.get("retentionSeconds")),
        checkpoint=_duration(replay.get("checkpointInterval"), SECOND),
        join=join.get("mode") or "all",
        quorum=join.get("quorum") or 0,
        join_timeout=_seconds(join.get("timeoutSeconds")),
        max_joins=join.get("maxEntries") or 1_000,
        partitioning=partitioning.get("mode") or "none",
        partition_key=partitioning.get("key") or "",
        partitions=partitioning.get("partitions") or 0,
        sticky=partitioning.get("sticky") is True,
        rules=tuple(map(_rule, rules_of(settings))),
        lanes=tuple(_lane(lane) for lane in settings.get("lanes") or () if _limits(lane, *caps)),
        watermark=_watermark(watermark),
        message_timeout=read_positive(operator.hub_message_timeout),
        tracing=_tracing(tracing),
        trace_rate=tracing.get("sampleRate", 100),
        has_metrics=object_at(settings, "observability", "metrics").get("enabled") is not False,
    )


def rules_of(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [rule for rule in object_at(settings, "routing").get("rules") or () if isinstance(rule, dict)]


def _ordering(ordering: str, is_kept: bool) -> str:
    return "per_stream" if is_kept and ordering == "none" else ordering


def _rule(rule: Mapping[str, Any]) -> Rule:
    when = rule.get("when")
    has_condition = isinstance(when, str) and bool(when.strip())
    return Rule(rule.get("action") == "deny", has_condition, tuple(object_at(rule, "target").get("steps") or ()))


def _limits(lane: Any, messages: int, size: int) -> bool:
    """Whether a lane forbids anything that the buffer allows."""
    return isinstance(lane, dict) and (
        (lane.get("maxMessages") or messages) < messages
        or (lane.get("maxBytes") or size) < size
        or lane.get("direction") in ("publish", "subscribe")
    )


def _lane(lane: Mapping[str, Any]) -> Lane:
    return Lane(
        str(lane.get("kind") or ""),
        lane.get("direction") or "bidirectional",
        lane.get("maxMessages") or 0,
        lane.get("maxBytes") or 0,
    )


def _watermark(watermark: Mapping[str, Any]) -> str:
    if watermark.get("enabled") is not True:
        return ""
    return watermark.get("timestampSource") or "metadata.bubu.envelope.timestamp_ms"


def _tracing(tracing: Mapping[str, Any]) -> str:
    return (tracing.get("samplePolicy") or "rate") if tracing.get("enabled") is True else ""


def _seconds(value: Any) -> Instant:
    return value * SECOND if isinstance(value, int) else 0


def _duration(text: Any, default: Instant) -> Instant:
    try:
        return read_positive(text)
    except BadDuration:
        return default
