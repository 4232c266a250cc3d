"""Messages: what a step publishes, what makes one valid (STR-038 to 043, 124, 125), and their JSON form."""

import base64
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.kernel.json_values import jsontext

DATA, ERROR, HOOK, HEARTBEAT, NOOP = "data", "error", "hook", "heartbeat", "noop"
LANES = ("audio", "video", "binary", "payload")
JSON_MIME = "application/json"

MOST_METADATA = 100
LONGEST_KEY, LONGEST_VALUE, LONGEST_ID = 128, 1024, 128
LARGEST = 10 * 1024 * 1024  # bytes of a frame, and of a message in all
MOST_TRANSPORTS = 10
LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999

ENVELOPE_KIND, ENVELOPE_ID = "bubu.envelope.kind", "bubu.envelope.message_id"
ENVELOPE_TIME = "bubu.envelope.timestamp_ms"
JOIN_KEY, IDENTITY = "bubu.join.key", "participant.identity"

_KIND = re.compile(r"[A-Za-z0-9._-]+")
_CHUNK_MEMBERS = frozenset({"stream_id", "chunk_id", "chunk_index", "chunk_count", "chunk_bytes", "total_bytes"})


class BadMessage(ValueError):
    """A message that cannot be published; the text says why."""


class Frame(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Bytes of audio, video or anything else."""

    payload: bytes
    mime_type: str = ""
    timestamp_ms: int = 0
    codec: str = ""
    sample_rate_hz: int = 0
    channels: int = 0
    width: int = 0
    height: int = 0


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which part of a binary frame a message carries (STR-082)."""

    stream_id: str
    chunk_id: str
    chunk_index: int
    chunk_count: int
    chunk_bytes: int | None = None
    total_bytes: int | None = None


class StreamMessage(msgspec.Struct, array_like=True, gc=False):
    """What was published. `payload`, `inputs` and `transports` are JSON texts, so that no two steps share an object.

    `steps` are the latest payloads of this journey by step, `root` is the id that the journey began with; `origin` is
    the step for which that id was made up, empty if somebody chose it.
    """

    id: str
    kind: str = DATA
    at_ms: int = 0
    metadata: dict[str, str] = {}
    payload: bytes | None = None
    inputs: bytes | None = None
    transports: bytes | None = None
    audio: Frame | None = None
    video: Frame | None = None
    binary: Frame | None = None
    chunk: Chunk | None = None
    partition: str = ""
    steps: dict[str, bytes] = {}
    root: str = ""
    origin: str = ""
    trace: str = ""  # the trace context of the publication, as `traceparent` has it

    @property
    def lane(self) -> str:
        if self.audio is not None:
            return "audio"
        if self.video is not None:
            return "video"
        return "payload" if self.binary is None else "binary"

    @property
    def size(self) -> int:
        size = 0 if self.payload is None else len(self.payload)
        if self.inputs is not None or self.transports is not None:
            size += len(self.inputs or b"") + len(self.transports or b"")
        if self.audio is not None or self.video is not None or self.binary is not None:
            size += sum(len(frame.payload) for frame in (self.audio, self.video, self.binary) if frame is not None)
        if self.metadata:
            size += sum(map(len, self.metadata)) + sum(map(len, self.metadata.values()))
        return size

    def json(self) -> dict[str, Any]:
        """The form of STR-038: as workers of other processes, recordings and signals have it."""
        shown: dict[str, Any] = {"kind": self.kind, "messageId": self.id, "timestamp": self.at_ms}
        if self.metadata:
            shown["metadata"] = dict(self.metadata)
        for name in ("payload", "inputs", "transports"):
            if (text := getattr(self, name)) is not None:
                shown[name] = jsontext.decode(text)
        for name in ("audio", "video", "binary"):
            if (frame := getattr(self, name)) is not None:
                shown[name] = msgspec.to_builtins(frame)
        if self.chunk is not None or self.partition:
            chunk = {} if self.chunk is None else msgspec.to_builtins(self.chunk)
            shown["envelope"] = {**chunk, **({"partition": self.partition} if self.partition else {})}
        return shown


def make_message(
    id: str,
    now_ms: int,
    *,
    payload: Any = None,
    kind: str = "",
    metadata: Mapping[str, str] | None = None,
    message_id: str = "",
    inputs: Any = None,
    transports: Any = None,
    audio: Any = None,
    video: Any = None,
    binary: Any = None,
    envelope: Any = None,
) -> StreamMessage:
    """A message from the arguments of `publish`; `id` is used if there is no `message_id`. Raises `BadMessage`."""
    metadata = {} if metadata is None else _metadata(metadata)
    at_ms = now_ms
    if metadata:
        kind = metadata.pop(ENVELOPE_KIND, kind) or kind
        message_id = metadata.pop(ENVELOPE_ID, message_id) or message_id
        at_ms = _milliseconds(metadata.pop(ENVELOPE_TIME, ""), now_ms)
    message = StreamMessage(_id(message_id) if message_id else id, kind or DATA, at_ms, metadata)
    if kind:
        _check_kind(kind)
    if payload is not None:
        message.payload = _text(payload, "payload")
    if inputs is not None:
        message.inputs = _text(inputs, "inputs")
    if transports is not None:
        message.transports = _transports(transports)
    if audio is not None or video is not None or binary is not None or envelope is not None:
        message.audio, message.video, message.binary = _frame(audio, "audio"), _frame(video, "video"), _binary(binary)
        _check_frames(message, envelope)
    _check_content(message)
    return message


def read_message(value: Any, id: str, now_ms: int) -> StreamMessage:
    """A message from its JSON form, with base64 frames. Raises `BadMessage`."""
    if not isinstance(value, dict):
        raise BadMessage("a message is an object with kind, messageId, metadata, payload, inputs, audio, video, binary")
    known = {"kind", "messageId", "timestamp", "metadata", "payload", "inputs", "transports", "envelope", *LANES}
    if unknown := sorted(set(value) - known):
        raise BadMessage(f"a message has no member {unknown[0]!r}")
    message_id, kind = value.get("messageId") or "", value.get("kind") or ""
    if not isinstance(message_id, str) or not isinstance(kind, str):
        raise BadMessage("kind and messageId are texts")
    envelope = value.get("envelope")
    message = make_message(
        id,
        now_ms,
        payload=value.get("payload"),
        kind=kind,
        metadata=value.get("metadata"),
        message_id=message_id,
        inputs=value.get("inputs"),
        transports=value.get("transports"),
        audio=_decoded(value.get("audio"), "audio"),
        video=_decoded(value.get("video"), "video"),
        binary=_decoded(value.get("binary"), "binary"),
        envelope=envelope if isinstance(envelope, dict) and "chunk_id" in envelope else None,
    )
    if isinstance(envelope, dict) and isinstance(envelope.get("partition"), str):
        message.partition = envelope["partition"][:LONGEST_ID]
    timestamp = value.get("timestamp")
    if isinstance(timestamp, int):
        if not 0 <= timestamp <= LATEST:
            raise BadMessage("timestamp is not a time in milliseconds")
        message.at_ms = timestamp
    return message


def hook_message(event: str, step: str, run: Mapping[str, str], now_ms: int) -> StreamMessage:
    """What the hub tells of a run and, for a step, of the step; its id is the same whenever it is told (STR-081)."""
    data: dict[str, Any] = {"timestamp": now_ms, "storyRun": dict(run)}
    if step:
        data["step"] = {"name": step}
    payload = {"kind": HOOK, "type": event, "hook": {"version": "v1", "event": event, "source": "hub", "data": data}}
    metadata = {"source": "hub", "provider": "hub", "kind": HOOK, "type": event}
    metadata |= {"hook.event": event, "hook.source": "hub"}
    id = f"hook:{run.get('namespace', '')}/{run.get('name', '')}:{event}:{step}"
    return StreamMessage(id, HOOK, now_ms, metadata, jsontext.encode(payload), root=id)


def error_payload(message: str, type: str = "execution_error", **members: Any) -> dict[str, Any]:
    """A structured error, version 1."""
    return {"version": "v1", "type": type, "message": message or "it failed", **members}


def _check_kind(kind: str) -> None:
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise BadMessage(f"{kind!r} is not a kind (letters, digits, '.', '-' and '_')")
    if kind == HOOK:
        raise BadMessage("the kind 'hook' is the hub's")


def _check_content(message: StreamMessage) -> None:
    is_silent = message.kind in (HEARTBEAT, NOOP)
    has_frame = not (message.audio is None and message.video is None and message.binary is None)
    has_content = has_frame or not (message.payload is None and message.inputs is None and message.transports is None)
    if is_silent:
        if has_content or message.metadata:
            raise BadMessage(f"a message of kind {message.kind!r} has no content")
        return
    if not has_content:
        raise BadMessage("a message needs at least one of audio, video, binary, payload, inputs, transports")
    if message.kind == ERROR and (message.payload is None or has_frame):
        raise BadMessage("a message of kind 'error' has a payload and no frame")
    if message.size > LARGEST:
        raise BadMessage(f"the message has {message.size} bytes; the limit is {LARGEST}")


def _check_frames(message: StreamMessage, envelope: Any) -> None:
    frames = [frame for frame in (message.audio, message.video, message.binary) if frame is not None]
    if len(frames) > 1:
        raise BadMessage("a message has at most one frame of audio, video or binary")
    for frame in frames:
        if len(frame.payload) > LARGEST:
            raise BadMessage(f"the frame has {len(frame.payload)} bytes; the limit is {LARGEST}")
    audio, video = message.audio, message.video
    if audio is not None and audio.sample_rate_hz and not 8_000 <= audio.sample_rate_hz <= 192_000:
        raise BadMessage(f"{audio.sample_rate_hz} is not a sample rate (8000 to 192000 Hz)")
    if audio is not None and audio.channels and not 1 <= audio.channels <= 8:
        raise BadMessage(f"audio has 1 to 8 channels, not {audio.channels}")
    if video is not None and max(video.width, video.height) > 16_384:
        raise BadMessage("a side of a video frame has at most 16384 pixels")
    binary = message.binary
    if binary is not None and message.payload is None and not (message.inputs is None and message.transports is None):
        raise BadMessage("binary beside inputs or transports must be the same bytes as a payload")
    if binary is not None and message.payload not in (None, binary.payload):
        raise BadMessage("binary beside a payload must be the same bytes, as application/json")
    if envelope is not None:
        message.chunk = _chunk(envelope)
        if binary is None or message.payload is not None or message.inputs is not None or message.transports:
            raise BadMessage("only a message with a binary frame alone can be a chunk")
        check_chunk(message.chunk, len(binary.payload))


def _chunk(envelope: Any) -> Chunk:
    if not isinstance(envelope, Mapping) or not set(envelope) <= {*_CHUNK_MEMBERS, "partition", "sequence"}:
        raise BadMessage(f"an envelope has the members {', '.join(sorted(_CHUNK_MEMBERS))}")
    members = {name: value for name, value in envelope.items() if name in _CHUNK_MEMBERS}
    try:
        return msgspec.convert(members, Chunk)
    except msgspec.ValidationError as error:
        raise BadMessage(f"the envelope of a chunk is not valid: {error}") from None


MOST_CHUNKS = 256
LARGEST_ASSEMBLY = 64 * 1024 * 1024


def check_chunk(chunk: Chunk, size: int) -> None:
    """Raise `BadMessage` unless the chunk is one of at most 256, and says the truth about its size (STR-082)."""
    if not (1 <= len(chunk.stream_id) <= LONGEST_ID and 1 <= len(chunk.chunk_id) <= LONGEST_VALUE):
        raise BadMessage(
            f"a chunk needs a stream_id (at most {LONGEST_ID} characters) and a chunk_id (at most {LONGEST_VALUE})"
        )
    if not (1 <= chunk.chunk_count <= MOST_CHUNKS and 0 <= chunk.chunk_index < chunk.chunk_count):
        raise BadMessage(f"chunk {chunk.chunk_index} of {chunk.chunk_count}: 0 <= index < count <= {MOST_CHUNKS}")
    if chunk.chunk_bytes is not None and chunk.chunk_bytes != size:
        raise BadMessage(f"the chunk has {size} bytes, and says {chunk.chunk_bytes}")
    if chunk.total_bytes is not None and not 0 <= chunk.total_bytes <= LARGEST_ASSEMBLY:
        raise BadMessage(f"all chunks together have at most {LARGEST_ASSEMBLY} bytes")


def _id(message_id: str) -> str:
    if not isinstance(message_id, str) or message_id != message_id.strip() or len(message_id) > LONGEST_VALUE:
        raise BadMessage(f"{message_id!r:.80} is not a message id (a text without blanks around it)")
    return message_id


def _milliseconds(text: str, default: int) -> int:
    return int(text) if len(text) <= len(str(LATEST)) and text.isascii() and text.isdigit() else default


def _metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, Mapping):
        raise BadMessage("metadata maps texts to texts")
    if len(metadata) > MOST_METADATA:
        raise BadMessage(f"metadata has at most {MOST_METADATA} entries")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadMessage("metadata maps texts to texts")
        if not 1 <= len(key) <= LONGEST_KEY or key != key.strip():
            raise BadMessage(f"a key of metadata has 1 to {LONGEST_KEY} characters and no blanks around it")
        if len(value) > LONGEST_VALUE:
            raise BadMessage(f"metadata {key!r} has more than {LONGEST_VALUE} characters")
    return dict(metadata)


def _text(value: Any, name: str) -> bytes:
    try:
        return jsontext.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise BadMessage(f"{name} has no JSON form: {error}") from None


def _transports(transports: Any) -> bytes:
    if not isinstance(transports, list | tuple) or len(transports) > MOST_TRANSPORTS:
        raise BadMessage(f"transports is a list of at most {MOST_TRANSPORTS}")
    return _text(list(transports), "transports")


def _frame(value: Any, name: str) -> Frame | None:
    if value is None or isinstance(value, Frame):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return Frame(bytes(value))
    if not isinstance(value, Mapping) or not isinstance(value.get("payload"), bytes | bytearray):
        raise BadMessage(f"{name} is bytes, or {{payload: bytes, mimeType, timestampMs}}")
    try:
        return msgspec.convert({**value, "payload": bytes(value["payload"])}, Frame)
    except msgspec.ValidationError as error:
        raise BadMessage(f"{name} is not a frame: {error}") from None


def _binary(value: Any) -> Frame | None:
    return _frame(value, "binary")


def _decoded(value: Any, name: str) -> Any:
    """A frame of JSON: its payload is base64."""
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("payload"), str):
        raise BadMessage(f"{name} is {{payload: base64, mimeType, timestampMs}}")
    try:
        return {**value, "payload": base64.b64decode(value["payload"], validate=True)}
    except ValueError:
        raise BadMessage(f"the payload of {name} is not base64") from None
