"""The protocol between parent and subprocess: length-prefixed MessagePack, one structure per frame.

parent  ── CallRequest ──▶        child
        ◀── ParentRequest ──      (any number, each answered by ParentReply or ParentRefusal)
        ◀── Notification ──       (any number, unanswered)
        ◀── CallResult ──         then the next CallRequest may come
"""

import struct
from typing import Any

import msgspec

from perdure.kernel.outcomes import Outcome
from perdure.kernel.tasks.assignments import Assignment

_HEAD = struct.Struct(">I")


class CallRequest(msgspec.Struct, array_like=True, tag=1):
    """One call.

    `sources` are what the parent has loaded and `origin` the module that defines the provider;
    with `import_path` they make the same names mean the same in the child, and so do the working directory `folder`
    and the operator's `policy`.
    """

    assignment: Assignment
    origin: str
    sources: list[str]
    import_path: list[str]
    result_limit: int
    folder: str
    policy: bytes


class ParentReply(msgspec.Struct, array_like=True, tag=2):
    value: Any


class ParentRefusal(msgspec.Struct, array_like=True, tag=3):
    """The request raised an exception; code None means that it was not a `ProviderFailure`."""

    code: str | None
    message: str


class ParentRequest(msgspec.Struct, array_like=True, tag=4):
    verb: str
    arguments: list[Any]


class Notification(msgspec.Struct, array_like=True, tag=5):
    verb: str
    arguments: list[Any]


class CallResult(msgspec.Struct, array_like=True, tag=6):
    """`is_worn`: the child takes no further calls, because it has reached a limit from which it cannot recover.

    `is_found`: whether it could import the function to call.
    """

    outcome: Outcome
    is_worn: bool = False
    is_found: bool = True


_encoder = msgspec.msgpack.Encoder(enc_hook=repr)  # log fields may contain anything
_decoder = msgspec.msgpack.Decoder(
    CallRequest | ParentReply | ParentRefusal | ParentRequest | Notification | CallResult
)

Frame = CallRequest | ParentReply | ParentRefusal | ParentRequest | Notification | CallResult


def encode_frame(frame: msgspec.Struct) -> bytes:
    body = _encoder.encode(frame)
    return _HEAD.pack(len(body)) + body


SLACK = 1 << 20
"""Bytes that a frame may have beyond the largest result: everything but the value in it."""


class FrameTooLarge(ValueError):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes were to be sent at once, {limit} are allowed")
        self.size, self.limit = size, limit


class FrameReader:
    """Splits a stream of bytes into frames, none larger than `limit`. Raises what is wrong with them."""

    def __init__(self, limit: int | None = None, decoder: "msgspec.msgpack.Decoder[Any]" = _decoder) -> None:
        self.limit = limit
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Any:
        """The next frame; None: it is not here yet."""
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        size = _HEAD.unpack_from(buffer)[0]
        if self.limit is not None and size > self.limit:
            raise FrameTooLarge(size, self.limit)
        end = _HEAD.size + size
        if len(buffer) < end:
            return None
        with memoryview(buffer) as whole, whole[_HEAD.size : end] as body:
            frame = self._decoder.decode(body)
        del buffer[:end]
        return frame
