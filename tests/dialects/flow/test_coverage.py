"""Every rule of the language has a test that cites it, or a written reason; the page lists them."""

from tests.dialects.flow.coverage import PAGE, REASONS, RULES, citations, page


def test_every_rule_is_proved_or_explained() -> None:
    proved = citations()

    assert [rule for rule in RULES if rule not in proved and rule not in REASONS] == []


def test_no_test_cites_a_rule_that_does_not_exist() -> None:
    assert {rule for rule in citations() if rule not in RULES} == set()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.dialects.flow.coverage"
