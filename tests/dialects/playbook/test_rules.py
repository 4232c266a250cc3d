"""The coverage page is correct, and no rule of the language is left out."""

from tests.dialects.playbook.rules import ABSENT, PAGE, citations, page, titles


def test_every_rule_is_cited_or_its_absence_explained() -> None:
    cited = citations()

    assert [number for number in titles() if number not in cited and number not in ABSENT] == []


def test_only_rules_that_exist_are_cited() -> None:
    assert set(citations()) <= set(titles())


def test_the_coverage_page_is_up_to_date() -> None:
    """Write it anew with `python -m tests.dialects.playbook.rules`."""
    assert PAGE.read_text() == page()
