"""Ids of step-runs and tokens, and timestamps, as readers and templates see them."""

from datetime import UTC, datetime

from perdure.kernel.json_values.values import Instant


def run_id(number: int) -> str:
    return f"r{number}"


def token_id(number: int) -> str:
    return f"t{number}"


def timestamp(at: Instant) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{at % 1_000_000:06d}Z"
