"""Instants in messages."""

from datetime import UTC, datetime, timedelta

from perdure.kernel.json_values.values import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_instant(at: Instant) -> str:
    """RFC 3339 in UTC, to the second."""
    return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")
