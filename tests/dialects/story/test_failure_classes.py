"""How a failed attempt is classified (STY-123, STY-124, STY-258)."""

from typing import Any

import pytest

from perdure.dialects.story.values.engram_contract import classify_failure
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed
from perdure.services.story.engrams.failure import EngramError


def judged(**fields: Any) -> tuple[int, str, bool | None]:
    raised = EngramError("it went wrong", **fields)
    details = None if raised.details is None else jsontext.encode(raised.details)
    failure = classify_failure(Failed(raised.code, raised.message, raised.retryable, details), expired=False)
    return failure.exit_code, failure.exit_class, failure.error.retryable


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (1, "terminal", False)),
        ({"exit_code": 143}, (143, "retry", True)),
        ({"exit_code": 429}, (429, "rateLimited", True)),
        ({"exit_code": 137, "exit_class": "terminal"}, (137, "terminal", False)),
        ({"exit_code": 2, "retryable": True}, (2, "retry", True)),  # the Engram's word wins over the code's class
        ({"exit_code": 137, "retryable": False}, (137, "terminal", False)),
        ({"exit_code": 0}, (0, "terminal", False)),  # who raises has not succeeded
        ({"exit_class": "success"}, (1, "success", False)),  # given values win, and nothing is tried again
    ],
)
def test_the_class_is_what_the_engram_says_or_what_its_code_means(
    arguments: dict[str, Any], expected: tuple[int, str, bool | None]
) -> None:
    """STY-123 STY-124 STY-258."""
    assert judged(**arguments) == expected
