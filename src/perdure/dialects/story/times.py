"""Instants as resources write them."""

from perdure.dialects.story.rendering import moment
from perdure.kernel.values import Instant


def timestamp(at: Instant) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return moment(at).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at // 1000 % 1000:03d}Z"
