"""What is read from a message: its partition, values at paths, and what templates see of it.

Templates see `packet`, and the latest payloads of its journey as `steps` (STR-044, 045).
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Protocol

from perdure.kernel.json_values import jsontext
from perdure.streams.stream_graph import Settings
from perdure.streams.stream_messages import ENVELOPE_TIME, HOOK, IDENTITY, LATEST, StreamMessage

_NO_SIGNALS: Mapping[str, Any] = {}


class GateProblem(Exception):
    """An expression failed for a packet; the text says how."""


class Expressions(Protocol):
    """The templates of a topology. Each raises `GateProblem`."""

    def holds(self, step: str, roots: dict[str, Any]) -> bool:
        """Whether the step's `if` lets the packet pass."""

    def matches(self, step: str, rule: int, roots: dict[str, Any]) -> bool:
        """Whether the `when` of a publisher's routing rule holds."""

    def render(self, step: str, roots: dict[str, Any]) -> Any:
        """The step's inputs for this packet."""

    def with_stored_values(self, roots: dict[str, Any]) -> dict[str, Any]:
        """The same with offloaded data in place of references to it, where templates may read it (STR-053)."""


STORAGE = b'"$bubuStorageRef"'
"""What a JSON text contains that refers to offloaded data."""


def refers_to_storage(message: StreamMessage) -> bool:
    """Whether any template over this message could touch offloaded data; most cannot."""
    return STORAGE in (message.payload or b"") or any(STORAGE in text for text in message.steps.values())


def roots_of(message: StreamMessage, partition: str = "", signals: Mapping[str, Any] = _NO_SIGNALS) -> dict[str, Any]:
    """`steps` and `packet`; who evaluates adds `inputs`."""
    return {
        "steps": {name: step_view(text, signals.get(name)) for name, text in message.steps.items()},
        "packet": packet_view(message, partition),
    }


def step_view(payload: bytes, signals: Any = None) -> dict[str, Any]:
    """A payload as `steps.NAME`: its members, and the payload as `output` and `outputs` unless it has such members."""
    value = jsontext.decode(payload)
    view = {"output": value, "outputs": value}
    if signals is not None:
        view["signals"] = signals
    return {**view, **value} if isinstance(value, dict) else view


def packet_view(message: StreamMessage, partition: str = "") -> dict[str, Any]:
    payload = None if message.payload is None else jsontext.decode(message.payload)
    members = payload if isinstance(payload, dict) else {}
    is_hook = message.kind == HOOK
    return {
        "kind": message.kind,
        "type": message.metadata.get("type") or _plain(members.get("type")),
        "identity": message.metadata.get(IDENTITY, ""),
        "text": "" if is_hook else members.get("text", ""),
        "history": "" if is_hook else members.get("history", ""),
        "metadata": message.metadata,
        "payload": "" if payload is None else payload,
        "messageId": message.id,
        "timestamp": message.at_ms,
        "partition": partition or message.partition,
        "sequence": "",
    }


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else ""


def partition_of(message: StreamMessage, settings: Settings) -> str:
    """Which partition a packet belongs to (STR-055)."""
    mode = settings.partitioning
    if mode == "preserve" or (mode == "hash" and settings.sticky and message.partition):
        return message.partition
    if mode != "hash":
        return ""
    value = value_at(message, settings.partition_key)
    if value is None:
        return ""
    number = int.from_bytes(sha256(jsontext.canonical(value)).digest()[:8])
    return str(number % max(settings.partitions, 1))


def value_at(message: StreamMessage, path: str) -> Any:
    """The value at `metadata.x`, `payload.x.y`, `inputs.x` or `audio.timestamp_ms`; None if there is none."""
    root, _, rest = path.partition(".")
    if root == "metadata":
        return message.metadata.get(rest)
    if root in ("audio", "video", "binary"):
        frame = getattr(message, root)
        return None if frame is None else getattr(frame, rest, None)
    text = {"payload": message.payload, "inputs": message.inputs}.get(root)
    if text is None:
        return None
    value = jsontext.decode(text)
    for name in rest.split(".") if rest else ():
        value = value.get(name) if isinstance(value, dict) else None
    return value


def moment_of(message: StreamMessage, source: str) -> int:
    """The time that a message has at a path, in microseconds; 0 if there is none that can be one (STR-098)."""
    value = message.at_ms if source == f"metadata.{ENVELOPE_TIME}" else value_at(message, source)
    try:
        moment = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return moment * 1_000 if 0 <= moment <= LATEST else 0
