"""Timestamps in resources."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from perdure.kernel.json_values.values import SECOND, Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(instant: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


def timestamp(instant: Instant) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return f"{_second(instant // SECOND)}.{instant // 1000 % 1000:03d}Z"


def fine_timestamp(instant: Instant) -> str:
    """With microseconds, as every answer about a run has them."""
    return f"{_second(instant // SECOND)}.{instant % SECOND:06d}Z"


@lru_cache(1_024)  # runs that are listed together have many instants in few seconds
def _second(seconds: int) -> str:
    return moment(seconds * SECOND).strftime("%Y-%m-%dT%H:%M:%S")
