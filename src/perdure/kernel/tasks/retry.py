"""Retry delays: how long to wait before the next attempt. Dialects count the attempts."""

from enum import StrEnum

from perdure.kernel.json_values.values import SECOND, Instant


class Backoff(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


LONGEST: Instant = 100 * 365 * 24 * 3600 * SECOND
"""A delay of more than a century is a mistake in the document, and would exceed the range of stored instants."""


def delay(
    backoff: Backoff, base: Instant, failures: int, ceiling: Instant | None = None, factor: float = 2.0
) -> Instant:
    """The delay after the `failures`-th failure (counted from 1), at most `ceiling`."""
    if failures < 1:
        raise ValueError(f"a wait follows a failure; got {failures} failures")
    try:
        match backoff:
            case Backoff.CONSTANT:
                wait = float(base)
            case Backoff.LINEAR:
                wait = float(base) * failures
            case Backoff.EXPONENTIAL:
                wait = base * factor ** (failures - 1)
    except OverflowError:
        wait = float(LONGEST)
    return int(min(wait, LONGEST if ceiling is None else ceiling))
