"""Instants as resources write them."""

from datetime import UTC, datetime, timedelta

from perdure.kernel.values import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def timestamp(at: Instant) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return moment(at).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at // 1000 % 1000:03d}Z"
