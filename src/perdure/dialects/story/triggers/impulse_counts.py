"""What an Impulse's status counts (STY-158). Instants only go forward; each decision is counted where it is kept."""

from typing import Any

from perdure.dialects.story.resources.timestamps import timestamp
from perdure.kernel.values import Instant

Status = dict[str, Any]


def count_decision(status: Status, launched: bool, now: Instant) -> Status:
    """A trigger was decided: its Story was launched, or it was rejected."""
    status = _more(status, "triggersReceived", "storiesLaunched" if launched else "failedTriggers")
    status = _later(status, "lastTrigger", now)
    return _later(status, "lastSuccess", now) if launched else status


def count_refusal(status: Status, now: Instant) -> Status:
    """A trigger never came to be a request: its token is missing, its inputs are not in order."""
    return _later(_more(status, "triggersReceived", "failedTriggers"), "lastTrigger", now)


def count_throttled(status: Status, now: Instant) -> Status:
    return _later(_more(status, "throttledTriggers"), "lastThrottled", now)


def _more(status: Status, *names: str) -> Status:
    return {**status, **{name: int(status.get(name) or 0) + 1 for name in names}}


def _later(status: Status, name: str, now: Instant) -> Status:
    moment = timestamp(now)
    return {**status, name: max(moment, str(status.get(name) or ""))}
