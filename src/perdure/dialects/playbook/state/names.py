"""Ids of step-runs and tokens, and timestamps, as readers and templates see them."""

from datetime import UTC, datetime
from functools import lru_cache

from perdure.kernel.json_values.values import Instant

CLAIM = -1  # instead of a position in a pipeline: the task that claims the next frame of a cursor loop


def run_id(number: int) -> str:
    return f"r{number}"


def token_id(number: int) -> str:
    return f"t{number}"


def timestamp(at: Instant) -> str:
    second, rest = divmod(at, 1_000_000)
    return f"{_second(second)}.{rest:06d}Z"


@lru_cache(64)
def _second(second: int) -> str:
    """Many events are recorded in one."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
