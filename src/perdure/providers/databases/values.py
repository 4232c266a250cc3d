"""Database values as JSON data. No digits are lost: what no JSON number can represent becomes text."""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from perdure.providers.failure import ProviderFailure


def plain(value: Any) -> Any:
    """The value as JSON data.

    A decimal is a number if a double represents it exactly, otherwise text. Instants are ISO 8601, those with a zone in
    UTC; bytes are base64; values without a JSON form (addresses, ranges, uuids) become their text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _named(value)
        case Decimal():
            return _number(value)
        case datetime():
            return (value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z") if value.tzinfo else value.isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {name if isinstance(name, str) else str(plain(name)): plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _:
            return str(value)


def _named(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return _named(float(value)) if not value.is_snan() else "NaN"
    if value == value.to_integral_value() and -20 < value.adjusted() < 20:
        return int(value)
    near = float(value)
    return near if math.isfinite(near) and Decimal(repr(near)) == value else str(value)


def _duration(value: timedelta) -> str:
    """`P1DT2H3.5S`; in a negative one every part is negative, as in PostgreSQL."""
    sign = -1 if value < timedelta(0) else 1
    value = abs(value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    exact = Decimal(seconds) + Decimal(value.microseconds) / 1_000_000
    clock = "".join(
        f"{sign * amount:f}{unit}" if isinstance(amount, Decimal) else f"{sign * amount}{unit}"
        for amount, unit in ((hours, "H"), (minutes, "M"), (exact.normalize() if exact else 0, "S"))
        if amount
    )
    days = f"{sign * value.days}D" if value.days else ""
    return f"P{days}{'T' + clock if clock else ''}" if days or clock else "PT0S"


def unique(names: Iterable[str]) -> list[str]:
    """Column names that are unique in a row: a second `id` is `id_2`."""
    unique_names: dict[str, None] = {}
    for name in names:
        free, count = name, 1
        while free in unique_names:
            count += 1
            free = f"{name}_{count}"
        unique_names[free] = None
    return list(unique_names)


def table(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns, and each row as a map by column."""
    names = unique(columns)
    return names, [dict(zip(names, map(plain, row), strict=True)) for row in rows]


def bounded(rows: Iterable[Sequence[Any]], limit: int, prefix: str) -> list[Sequence[Any]]:
    """The rows, counted while they are read: a result that is too large is not collected first."""
    collected: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        size += 2 + sum(map(_size, row))
        if size > limit:
            message = f"the result has more than {limit} bytes; ask for less at a time"
            raise ProviderFailure(f"{prefix}.TooLarge", message, retryable=False, details={"limit": limit})
        collected.append(row)
    return collected


def _size(value: Any) -> int:
    match value:
        case str() | bytes() | bytearray() | memoryview():
            return len(value)
        case Mapping():
            return 2 + sum(len(str(name)) + _size(item) for name, item in value.items())
        case list() | tuple():
            return 2 + sum(map(_size, value))
    return 8
