"""What parent and subprocess say to each other: length-prefixed MessagePack, one structure per frame.

parent  ── Order ──▶              child
        ◀── Question ──           (any number, each answered by Answer or Refusal)
        ◀── Remark ──             (any number, unanswered)
        ◀── Ended ──              then the next Order may come
"""

import struct
from typing import Any

import msgspec

from perdure.kernel.assignments import Assignment
from perdure.kernel.outcomes import Outcome

_HEAD = struct.Struct(">I")


class Order(msgspec.Struct, array_like=True, tag=1):
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


class Answer(msgspec.Struct, array_like=True, tag=2):
    value: Any


class Refusal(msgspec.Struct, array_like=True, tag=3):
    """The question raised; code None means that it was not on purpose."""

    code: str | None
    message: str


class Question(msgspec.Struct, array_like=True, tag=4):
    verb: str
    arguments: list[Any]


class Remark(msgspec.Struct, array_like=True, tag=5):
    verb: str
    arguments: list[Any]


class Ended(msgspec.Struct, array_like=True, tag=6):
    """`is_worn`: the child will not take another order, it has hit a limit it cannot recover from.

    `is_found`: whether it could import what it was to call.
    """

    outcome: Outcome
    is_worn: bool = False
    is_found: bool = True


_encoder = msgspec.msgpack.Encoder(enc_hook=repr)  # log fields may hold anything
_decoder = msgspec.msgpack.Decoder(Order | Answer | Refusal | Question | Remark | Ended)

Frame = Order | Answer | Refusal | Question | Remark | Ended


def write(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return _HEAD.pack(len(body)) + body


class Reader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Frame | None:
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        end = _HEAD.size + _HEAD.unpack_from(buffer)[0]
        if len(buffer) < end:
            return None
        frame: Frame = _decoder.decode(memoryview(buffer)[_HEAD.size : end].tobytes())
        del buffer[:end]
        return frame
