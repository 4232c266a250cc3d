"""JSON values with expressions in their leaves (MWL-104)."""

from typing import Any

import pytest

from perdure.expressions.mwl import EVALUATION_ERROR, ExpressionFault, Template

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
    with pytest.raises(ExpressionFault, match="division by zero"):
        Template({"a": "{{ 1 / 0 }}", "b": "{{ vars.n }}"}, ROOTS).evaluate(DATA)


def test_findings_carry_a_json_pointer() -> None:
    template = Template({"a/b": [0, "{{ nope }}"], "~": "{{ 1 + }}"}, ROOTS)

    assert [(pointer, problem.message) for pointer, problem in template.findings] == [
        ("/a~1b/1", "`nope` is not in scope"),
        ("/~0", "the expression ends too early"),
    ]


def test_a_document_nested_beyond_reason_is_a_fault() -> None:
    document: Any = "{{ vars.n }}"
    for _ in range(2000):
        document = [document]

    with pytest.raises(ExpressionFault, match="nested too deeply"):
        Template(document, ROOTS).evaluate(DATA)


def test_expressions_of_one_value_share_one_budget() -> None:
    """Invariant 29: thousands of expressions may use no more than one."""
    dear = "{{ lists.range(100000).map(i, i).size() }}"
    assert Template({"a": dear, "b": dear}, frozenset()).evaluate({}) == {"a": 100_000, "b": 100_000}
    with pytest.raises(ExpressionFault) as caught:
        Template({f"k{at}": dear for at in range(2_000)}, frozenset()).evaluate({})
    assert caught.value.code == EVALUATION_ERROR


@pytest.mark.parametrize("body", ["vars.x", "[vars.x]", "{'a': vars.x}", "vars.x.filter(one, true)", "vars.text"])
def test_the_same_data_given_again_and_again_are_paid_for(body: str) -> None:
    """Invariant 29: what is written is bounded, although each result is only a reference to data."""
    data = {"x": [{"a": "b" * 100} for _ in range(600)], "text": "c" * 60_000}
    some = Template([f"{{{{ {body} }}}}"] * 20, frozenset({"vars"}))
    assert len(some.evaluate({"vars": data})) == 20  # type: ignore[arg-type]
    with pytest.raises(ExpressionFault) as caught:
        Template([f"{{{{ {body} }}}}"] * 3_000, frozenset({"vars"})).evaluate({"vars": data})
    assert caught.value.code == EVALUATION_ERROR
