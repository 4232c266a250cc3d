"""The cursor that the languages share: where it is, what it reports, and how findings become problems."""

import pytest

from perdure.documents import read_document
from perdure.documents.cursor import Cursor, Report
from perdure.kernel.documents.problems import Problem, Severity

TEXT = b"""
name: demo
steps:
  - run: one
    odd: true
  - run: 2
"""


def cursor() -> Cursor[Report]:
    return Cursor(Report(), read_document(TEXT).data)


def test_it_goes_to_values_items_and_members() -> None:
    root = cursor()

    assert (root.at("steps", 1, "run").value, root.at("steps", 1, "run").path) == (2, ("steps", 1, "run"))
    assert [item.path for item in root.at("steps").items()] == [("steps", 0), ("steps", 1)]
    assert [(name, member.value) for name, member in root.at("steps", 0).members()] == [("run", "one"), ("odd", True)]
    assert list(root.items()) == [] and list(root.at("name").members()) == []
    with pytest.raises(KeyError):
        root.at("missing")


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        ({}, "an object", True),
        ([], "a map", False),
        (True, "a whole number", False),
        (True, "true or false", True),
        (1, "a boolean", False),
        (1.5, "a number", True),
        (None, "a boolean or null", True),
        (None, "a text", False),
    ],
)
def test_a_value_of_another_kind_is_reported(value: object, kind: str, fits: bool) -> None:
    report = Report()

    assert Cursor(report, {"a": value}).at("a").has(kind, "CODE") is fits
    assert [finding.message for finding in report.findings] == ([] if fits else [f"'a' must be {kind}"])


def test_findings_become_problems_with_positions() -> None:
    document = read_document(TEXT)
    root = Cursor(Report(), document.data)
    root.at("steps").problem("A", "wrong", 1, "run", hint="Repair it.")
    root.at("steps", 0).problem_of_key("B", "unknown", "odd")
    root.at("name").warn("C", "doubtful")

    assert root.report.has_errors
    assert [finding.to_problem(document) for finding in root.report.findings] == [
        Problem("A", "wrong", "steps[1].run", 6, 10, "Repair it."),
        Problem("B", "unknown", "steps[0].odd", 5, 5),
        Problem("C", "doubtful", "name", 2, 7, severity=Severity.WARNING),
    ]
    assert root.report.findings[0].to_problem() == Problem("A", "wrong", "steps[1].run", hint="Repair it.")


def test_warnings_are_no_errors() -> None:
    root = cursor()
    root.warn("C", "doubtful")

    assert not root.report.has_errors
