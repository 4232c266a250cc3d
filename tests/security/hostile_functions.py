"""Functions that abuse the subprocess they run in; it must be able to import them."""

import gc
import os
import socket
import struct
from typing import Any

from perdure.providers.context import BlockingContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.isolation import frames


def parent() -> socket.socket:
    """The connection to the engine, which code of the same process can always find."""
    line: Any = next(candidate for candidate in gc.get_objects() if type(candidate).__name__ == "ParentConnection")
    connection: socket.socket = line._socket
    return connection


def announce(size: int) -> int:
    """A frame of so many bytes, of which a part is sent."""
    parent().sendall(struct.pack(">I", size) + b"x" * min(size, 1 << 20))
    return 1


def babble(frame: str) -> int:
    parent().sendall(struct.pack(">I", len(frame)) + frame.encode())
    return 1


def ask_without_end() -> int:
    question = frames.encode_frame(frames.ParentRequest("redact", [b'"%b"' % (b"x" * 10_000)]))
    for _ in range(20_000):
        parent().sendall(question)
    return 1


def fail_at_length(size: int) -> None:
    raise ProviderFailure("Own.Code", "large", details={"text": "x" * size})


def remember_at_length(context: BlockingContext, size: int) -> str:
    try:
        context.effect_once("key", lambda: "x" * size)
    except ProviderFailure as failure:
        return failure.code
    return "kept"


def same(value: int) -> int:
    return value


def write_lines(count: int) -> int:
    os.write(1, b"\n" * count)
    return 1


def print_lines(count: int) -> int:
    print("\n" * count)  # noqa: T201
    return 1


def log_lines(context: BlockingContext, count: int) -> int:
    for number in range(count):
        context.log(str(number))
    return 1
