"""The coverage page is true, and cites only rules that exist."""

from tests.dialects.story.rules import PAGE, citations, cited_in, page, titles


def test_only_rules_that_exist_are_cited() -> None:
    assert set(citations()) <= set(titles())


def test_the_coverage_page_is_up_to_date() -> None:
    """Write it anew with `python -m tests.dialects.story.rules`."""
    assert PAGE.read_text() == page()


def test_citations_may_be_lists_and_ranges() -> None:
    text = "STY-" + "001, 003 and STY-" + "005 to 007; 008"

    assert cited_in(text) == ["001", "003", "005", "006", "007"]
