"""The page about the rules of streaming is true, and leaves none out."""

from tests.streams.rules import PAGE, UNTESTED, citations, page, titles


def test_the_page_is_up_to_date() -> None:
    """Write it anew with `python -m tests.streams.rules`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_only_rules_that_exist_are_cited() -> None:
    assert set(citations()) <= set(titles())


def test_every_rule_has_a_test_or_a_word() -> None:
    assert set(titles()) - set(citations()) - set(UNTESTED) == set()
