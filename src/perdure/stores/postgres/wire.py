"""Statements and their values as PostgreSQL takes them: binary, arrays instead of many rows, prepared when met again.

A commit is a handful of arrays. Packing them here costs a few microseconds; a general adapter costs more than the
database does.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any

from psycopg.abc import Buffer
from psycopg.pq.abc import PGresult

Kind = Callable[[Any], bytes]

_LONG = Struct(">q")
_MEASURED_LONG = Struct(">iq")
_LENGTH = Struct(">i")
_ARRAY = Struct(">iiiii")  # dimensions, has nulls, type of elements, length, first index

_BYTEA, _INT8, _TEXT = 17, 20, 25


def INT(value: int) -> bytes:  # noqa: N802  (kinds read like types)
    return _LONG.pack(value)


def TEXT(value: str) -> bytes:  # noqa: N802
    """PostgreSQL's text knows no NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")


def storable(text: str) -> str:
    """The text as it will be read back."""
    return TEXT(text).decode()


def BLOB(value: bytes) -> bytes:  # noqa: N802
    return value


def INTS(values: Sequence[int | None]) -> bytes:  # noqa: N802
    if None in values:
        return _array(_INT8, [None if value is None else _LONG.pack(value) for value in values])
    pack = _MEASURED_LONG.pack
    head = _ARRAY.pack(1, 0, _INT8, len(values), 1) if values else _empty(_INT8)
    return head + b"".join([pack(8, value) for value in values])


def TEXTS(values: Iterable[str | None]) -> bytes:  # noqa: N802
    return _array(_TEXT, [None if value is None else TEXT(value) for value in values])


def BLOBS(values: Sequence[bytes | None]) -> bytes:  # noqa: N802
    return _array(_BYTEA, values)


def _empty(kind: int) -> bytes:
    return _ARRAY.pack(0, 0, kind, 0, 0)[:12]


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    if not values:
        return _empty(kind)
    pack = _LENGTH.pack
    parts = [_ARRAY.pack(1, int(None in values), kind, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts.append(pack(len(value)))
            parts.append(value)
    return b"".join(parts)


ELEMENTS: dict[Kind, Kind] = {INTS: INT, TEXTS: TEXT, BLOBS: BLOB}

CASTS: dict[Kind, str] = {
    INT: "bigint",
    TEXT: "text",
    BLOB: "bytea",
    INTS: "bigint[]",
    TEXTS: "text[]",
    BLOBS: "bytea[]",
}


_ADAPTERS: dict[Kind, Callable[[Any], Any]] = {
    INT: int,
    TEXT: storable,
    BLOB: bytes,
    INTS: lambda values: [None if value is None else int(value) for value in values],
    TEXTS: lambda values: [None if value is None else storable(value) for value in values],
    BLOBS: list,
}


class Statement:
    """SQL with `{}` for each value, whose kinds are told in the same order."""

    __slots__ = ("_kinds", "formats", "sql")

    def __init__(self, sql: str, *kinds: Kind) -> None:
        self._kinds = kinds
        self.formats = [1] * len(kinds)
        self.sql = sql.format(*[f"${place}::{CASTS[kind]}" for place, kind in enumerate(kinds, start=1)]).encode()

    def pack(self, values: Sequence[Any]) -> list[Buffer | None]:
        return [None if value is None else kind(value) for kind, value in zip(self._kinds, values, strict=True)]

    def adapt(self, values: Sequence[Any]) -> list[Any]:
        """The values as a cursor of psycopg takes them."""
        return [
            None if value is None else _ADAPTERS[kind](value) for kind, value in zip(self._kinds, values, strict=True)
        ]


def rows_of(result: PGresult) -> list[tuple[Any, ...]]:
    readers = [_READERS[result.ftype(column)] for column in range(result.nfields)]
    columns = list(enumerate(readers))
    value_at = result.get_value
    return [
        tuple([None if (value := value_at(row, column)) is None else read(value) for column, read in columns])
        for row in range(result.ntuples)
    ]


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _text(value: bytes) -> str:
    return value.decode()


_READERS: dict[int, Callable[[bytes], Any]] = {
    16: b"\x01".__eq__,  # boolean
    _BYTEA: bytes,
    _INT8: _integer,
    21: _integer,
    23: _integer,
    _TEXT: _text,
    1043: _text,
    2278: lambda value: None,  # void
}


# Labels as `jsonb`, so that they can be searched by what they contain.


def jsonb(labels: Mapping[str, str | None]) -> str:
    return json.dumps({storable(name): value and storable(value) for name, value in labels.items()})
