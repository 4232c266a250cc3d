"""How events and snapshots become bytes. One log row holds the turns that one commit recorded for one run."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from operator import or_
from typing import Any

import msgspec

from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import NewerRecord
from perdure.kernel.events import KERNEL_EVENTS, Event
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Instant
from perdure.kernel.state import State
from perdure.kernel.turn_budget import rest

Turns = list[tuple[Instant, list[Event]]]

SNAPSHOT_VERSION = 2

_encode = msgspec.msgpack.Encoder().encode

encode_turns: Callable[[Sequence[tuple[Instant, list[Event]]]], bytes] = _encode


@cache
def _decoder(events: tuple[type[Event], ...]) -> msgspec.msgpack.Decoder[Any]:
    union: Any = reduce(or_, (*KERNEL_EVENTS, *events))
    return msgspec.msgpack.Decoder(list[tuple[int, list[union]]])


def decode_turns(dialect: Dialect, row: bytes) -> Turns:
    try:
        turns: Turns = _decoder(dialect.events).decode(row)
    except msgspec.ValidationError as error:  # a complete record, with unknown events or fields
        raise NewerRecord(f"its history contains something that this version does not know ({error})") from None
    return turns


class _Snapshot(msgspec.Struct, gc=False, array_like=True):
    version: int
    dialect_version: int
    state: State
    body: bytes


class _Header(msgspec.Struct, gc=False, array_like=True):
    version: int
    dialect_version: int


def encode_snapshot(execution: Execution) -> bytes:
    dialect = execution.dialect
    return _encode(_Snapshot(SNAPSHOT_VERSION, dialect.version, execution.state, dialect.freeze(execution.body)))


_header = msgspec.msgpack.Decoder(_Header)
_snapshot = msgspec.msgpack.Decoder(_Snapshot)


class DamagedLog(ValueError):
    """Rows of one log overlap, or one of them is missing."""


def restore(execution: Execution, snapshot: bytes) -> bool:
    """Load a snapshot into a fresh execution; False if it has another version and the whole log must be folded."""
    try:
        header = _header.decode(snapshot)
        if header.version != SNAPSHOT_VERSION or header.dialect_version != execution.dialect.version:
            return False
        saved = _snapshot.decode(snapshot)
        body = execution.dialect.thaw(execution.program, saved.body)
    except msgspec.DecodeError:
        return False
    execution.state, execution.body = saved.state, body
    return True


def fold(execution: Execution, rows: Iterable[tuple[int, bytes]]) -> Execution:
    """Apply the log rows that the execution has not seen yet: (last sequence number, turns) each."""
    for last, row in rows:
        if last > execution.state.seq:
            rest()
            execution.fold(decode_turns(execution.dialect, row))
            if execution.state.seq != last:
                raise DamagedLog(
                    f"the log row that ends with event {last} does not continue the one before it:"
                    f" with it the log has {execution.state.seq} events"
                )
    return execution
