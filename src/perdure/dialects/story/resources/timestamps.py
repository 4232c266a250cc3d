"""Timestamps in resources."""

from datetime import UTC, datetime, timedelta

from perdure.kernel.json_values.values import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(instant: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


def timestamp(instant: Instant) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return moment(instant).strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant // 1000 % 1000:03d}Z"
