"""Counters in the status of an Impulse (STY-158). Timestamps only move forward; each decision is counted where it is
stored.
"""

from typing import Any

from perdure.dialects.story.resources.timestamps import timestamp
from perdure.kernel.json_values.values import Instant

Status = dict[str, Any]


def count_decision(status: Status, launched: bool, now: Instant) -> Status:
    """Count a decided trigger: its Story was launched, or it was rejected."""
    status = _more(status, "triggersReceived", "storiesLaunched" if launched else "failedTriggers")
    status = _later(status, "lastTrigger", now)
    return _later(status, "lastSuccess", now) if launched else status


def count_refusal(status: Status, now: Instant) -> Status:
    """Count a trigger that did not become a request, because of a missing token or invalid inputs."""
    return _later(_more(status, "triggersReceived", "failedTriggers"), "lastTrigger", now)


def count_throttled(status: Status, now: Instant) -> Status:
    return _later(_more(status, "throttledTriggers"), "lastThrottled", now)


def _more(status: Status, *names: str) -> Status:
    return {**status, **{name: int(status.get(name) or 0) + 1 for name in names}}


def _later(status: Status, name: str, now: Instant) -> Status:
    text = timestamp(now)
    return {**status, name: max(text, str(status.get(name) or ""))}
