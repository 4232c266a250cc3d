"""Retry maths: how long to wait before the next attempt. Counting attempts is the dialect's business."""

from enum import StrEnum

from perdure.kernel.values import SECOND, Instant


class Backoff(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


LONGEST: Instant = 100 * 365 * 24 * 3600 * SECOND
"""A wait beyond a century is a mistake in the document, and would leave the range of stored instants."""


def delay(
    backoff: Backoff, base: Instant, failures: int, ceiling: Instant | None = None, factor: float = 2.0
) -> Instant:
    """The wait after the `failures`-th failure (counted from 1), never above `ceiling`."""
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
