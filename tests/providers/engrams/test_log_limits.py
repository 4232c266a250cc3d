"""What one execution logs is limited and contains no secrets (STY-263)."""

from typing import Any

import pytest

from perdure.kernel.errors import Conflict
from perdure.services.story.engrams.step_log import LONGEST_LINE, MAX_REPORT_BYTES, StepLog
from perdure.workers.secrets import Secrets


class Reports:
    def __init__(self, refuses: bool = False, secret: str = "") -> None:
        self.told: list[dict[str, Any]] = []
        self.asked = 0
        self.secrets = Secrets({"S": secret}.get)
        assert self.secrets["S"] == secret
        self._refuses = refuses

    def report(self, body: dict[str, Any]) -> None:
        self.asked += 1
        if self._refuses:
            raise Conflict("the task is not open (any more)")
        self.told.append(body)


def test_nothing_is_told_where_nothing_was_said() -> None:
    """STY-263."""
    reports = Reports()
    StepLog().report_blocking(reports)  # type: ignore[arg-type]

    assert reports.told == []


def test_the_latest_lines_are_kept_and_the_others_counted() -> None:
    """STY-263 STY-274."""
    book, reports = StepLog(), Reports()
    for number in range(10_000):
        book.add(f"line {number}", fields={"n": number})
    book.add("x" * 10 * LONGEST_LINE)
    book.report_blocking(reports)  # type: ignore[arg-type]
    (report,) = reports.told

    assert len(str(report)) < 2 * MAX_REPORT_BYTES
    assert report["log"][-1]["message"] == "x" * LONGEST_LINE
    assert report["log"][-2]["message"] == "line 9999"
    assert report["log"][-2]["fields"] == {"n": "9999"}
    assert report["dropped"] + len(report["log"]) == 10_001


def test_what_looks_like_a_secret_is_not_kept() -> None:
    """STY-263 STY-259."""
    book, reports = StepLog(), Reports()
    book.add_text("calling\n\nAuthorization: Bearer abc123\npassword=hunter2 sent", level="warning")
    book.report_blocking(reports)  # type: ignore[arg-type]

    assert [line["message"] for line in reports.told[0]["log"]] == [
        "calling",
        "Authorization: [REDACTED]",
        "password=[REDACTED] sent",
    ]
    assert {line["level"] for line in reports.told[0]["log"]} == {"warning"}


def test_who_may_not_tell_any_more_is_not_stopped_by_it() -> None:
    """STY-120 STY-263: how an Engram ended counts more than what it said."""
    book, reports = StepLog(), Reports(refuses=True)
    book.add("late")
    book.report_blocking(reports)  # type: ignore[arg-type]

    assert (reports.asked, reports.told) == (1, [])


@pytest.mark.parametrize("before", ["password=", "x" * (LONGEST_LINE - 9)])
def test_a_secret_is_taken_out_before_a_line_is_changed_or_cut(before: str) -> None:
    """STY-263: neither what looks like a secret in front of it nor the end of the line leaves a half of it."""
    secret = 'two words and "more"'
    book, reports = StepLog(), Reports(secret=secret)
    book.add(before + secret, fields={"f": before[-1000:] + secret})
    book.report_blocking(reports)  # type: ignore[arg-type]

    assert not [part for part in secret.split() if part in str(reports.told)]
