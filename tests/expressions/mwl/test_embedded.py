"""Which strings are expressions (MWL-100 to MWL-102)."""

import sys
from types import FrameType
from typing import Any

import pytest

from perdure.expressions.mwl import find_expression


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("{{ vars.x }}", " vars.x "),
        ("{{vars.x}}", "vars.x"),
        ("{{ {'a': {'b': 1}} }}", " {'a': {'b': 1}} "),
        ("{{ {'a': {'b': 1}}}}", " {'a': {'b': 1}}"),
        ("{{ '}}' }}", " '}}' "),
        ('{{ "a }} b {{ c" }}', ' "a }} b {{ c" '),
        ("{{ '''}}''' + r'\\' }}", " '''}}''' + r'\\' "),
        ("{{ 'it\\'s }}' }}", " 'it\\'s }}' "),
        ("{{\n  vars.x\n}}", "\n  vars.x\n"),
        ("{{}}", ""),
    ],
)
def test_one_pair_that_spans_the_value_is_an_expression(text: str, body: str) -> None:
    """MWL-100, MWL-101: braces and string literals inside the body do not end it."""
    assert find_expression(text) == body


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "{{",
        "}}",
        "{{}",
        " {{ vars.x }}",
        "{{ vars.x }} ",
        "Hello {{ vars.name }}",
        "{{ a }} and {{ b }}",
        "{{ a }}{{ b }}",
        "{ { a } }",
        "{{ it's }} and {{ more }}",
    ],
)
def test_everything_else_is_a_literal(text: str) -> None:
    """MWL-100: text around, two pairs, or a pair that does not close."""
    assert find_expression(text) is None


@pytest.mark.parametrize(
    ("noise", "most"),
    [("\\'", 1), ("{", 1), ("'''", 25_001), ('b"', 25_001), ("r'\n", 50_000), ("'\n\"\n", 100_000)],
)
def test_a_long_text_is_scanned_in_one_pass(noise: str, most: int) -> None:
    """A string is looked for once where one closes, and once per line and quote where none does."""
    text, looks = "{{'" + noise * 50_000 + "}}", 0

    def count(frame: FrameType, event: str, called: Any) -> None:
        nonlocal looks
        looks += event == "c_call" and called.__name__ == "match"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = find_expression(text)
    finally:
        sys.setprofile(before)

    assert result == text[2:-2]
    assert looks <= most


def test_a_pair_that_closes_early_is_found_without_reading_on() -> None:
    assert find_expression("{{'" + "}" * 50_000 + "}}") is None


@pytest.mark.parametrize("text", ["{{ { }}", "{{ {'a': 1 }}"])
def test_an_unbalanced_body_is_an_expression_that_will_fault(text: str) -> None:
    """O-06: no earlier closer, so the outer pair counts."""
    assert find_expression(text) == text[2:-2]
