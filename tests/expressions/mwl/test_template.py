"""JSON values with expressions in their leaves (MWL-104)."""

from typing import Any

import pytest

from perdure.expressions.mwl import Fault, Template

ROOTS = frozenset({"vars"})
DATA: dict[str, Any] = {"vars": {"n": 5, "list": [1, 2]}}


def test_every_string_leaf_is_a_literal_or_an_expression_of_its_own() -> None:
    template = Template(
        {"a": ["{{ vars.n }}", "n is {{ vars.n }}", 7], "{{ vars.n }}": {"b": "{{ vars.list }}"}}, ROOTS
    )

    assert template.evaluate(DATA) == {
        "a": [5, "n is {{ vars.n }}", 7],
        "{{ vars.n }}": {"b": [1, 2]},
    }


def test_a_value_without_expressions_is_itself() -> None:
    document = {"a": [1, "text", {"b": None}]}
    template = Template(document, ROOTS)

    assert template.is_literal
    assert template.evaluate(DATA) is document


def test_a_whole_value_may_be_one_expression() -> None:
    template = Template("{{ vars.list }}", ROOTS)

    assert not template.is_literal
    assert template.evaluate(DATA) is DATA["vars"]["list"]


def test_expressions_in_data_are_never_evaluated() -> None:
    """MWL-111."""
    assert Template(["{{ vars.text }}"], ROOTS).evaluate({"vars": {"text": "{{ 1 / 0 }}"}}) == ["{{ 1 / 0 }}"]


def test_the_first_fault_ends_it() -> None:
    with pytest.raises(Fault, match="division by zero"):
        Template({"a": "{{ 1 / 0 }}", "b": "{{ vars.n }}"}, ROOTS).evaluate(DATA)


def test_findings_carry_a_json_pointer() -> None:
    template = Template({"a/b": [0, "{{ nope }}"], "~": "{{ 1 + }}"}, ROOTS)

    assert [(pointer, found.message) for pointer, found in template.findings] == [
        ("/a~1b/1", "`nope` is not in scope"),
        ("/~0", "the expression ends too early"),
    ]


def test_a_document_nested_beyond_reason_is_a_fault() -> None:
    document: Any = "{{ vars.n }}"
    for _ in range(2000):
        document = [document]

    with pytest.raises(Fault, match="nested too deeply"):
        Template(document, ROOTS).evaluate(DATA)
