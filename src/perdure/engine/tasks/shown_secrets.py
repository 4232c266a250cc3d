"""What looks like a secret in what tasks say, although the engine was not given it: it is not recorded (STY-259)."""

from typing import Any

from perdure.kernel.outcomes import Outcome
from perdure.kernel.secrets.secret_masking import data_without_secrets, failure_without_secrets, without_secrets
from perdure.kernel.tasks.assignments import Assignment

_ENGRAMS = ("engram.", "engram:")
"""Their failures are for people. Those of other tasks are data, which documents catch and compare."""


def recordable(assignment: Assignment, outcome: Outcome) -> Outcome:
    return failure_without_secrets(outcome) if assignment.provider.startswith(_ENGRAMS) else outcome


def recordable_line(text: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return without_secrets(text), data_without_secrets(fields) if fields else fields
