"""Any template gives JSON or a TemplateError, and stock Jinja agrees where both have a result."""

import json
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.expressions.jinja import Guard, TemplateError, compile_text

ROOTS: dict[str, Any] = {"a": 1, "b": "two", "c": [3, "x", None], "d": {"e": {"f": 1.5}, "items": [1]}, "t": True}

ATOM_WORDS = "a b c d t d.e d.e.f c[0] c[9] nope nope.x 1 0 2.5 'x' 'two' [] [1,2] {} {'k':1} true none"
OPERATOR_WORDS = "+ - * / // % ** ~ == != < <= > >= and or in"
FILTER_WORDS = """
    length upper first last list sort string int float join sum abs tojson default(1) unique reverse to_bool
    map('string') select batch(2) round trim title dictsort items indent center(9) pprint e groupby('e') min max
    wordcount urlencode truncate(2) fromjson b64encode sha256 slice(2) replace('x','y') selectattr('e')
"""
TEST_WORDS = "defined none string number mapping sequence odd iterable in([1]) eq(1) divisibleby(2)"

ATOMS = st.sampled_from(ATOM_WORDS.split())
BINARY = st.sampled_from([*OPERATOR_WORDS.split(), "not in"])
FILTERS = st.sampled_from(FILTER_WORDS.split())
TESTS = st.sampled_from(TEST_WORDS.split())


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, BINARY, inner),
        st.builds("({} | {})".format, inner, FILTERS),
        st.builds("({} is {})".format, inner, TESTS),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("(-{})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}.{}".format, inner, st.sampled_from(["e", "items", "keys()", "get('e')", "upper()", "__class__"])),
        st.builds("{}[{}:]".format, inner, inner),
    )


EXPRESSIONS = st.recursive(ATOMS, grow, max_leaves=6)
FRAGMENTS = st.one_of(
    EXPRESSIONS.map("{{{{ {} }}}}".format),
    st.builds("{{% for x in {} %}}{{{{ x }}}}{{% endfor %}}".format, EXPRESSIONS),
    st.builds("{{% if {} %}}y{{% endif %}}".format, EXPRESSIONS),
    st.builds("{{% set v = {} %}}{{{{ v }}}}".format, EXPRESSIONS),
    st.sampled_from(["text", "{{", "}}", "{%", "%}", "{#", "\n", "{{ a", "- -%}", "{%- raw %}"]),
)


@given(st.lists(FRAGMENTS, min_size=1, max_size=3).map("".join))
@settings(max_examples=200, deadline=None)
def test_a_template_gives_json_or_an_error(text: str) -> None:
    before = json.dumps(ROOTS)
    try:
        answer = compile_text(text).render(ROOTS)
    except TemplateError as error:
        assert error.position is not None
        assert str(error)
    else:
        json.dumps(answer, allow_nan=False)
        assert compile_text(text).render(ROOTS) == answer
    assert json.dumps(ROOTS) == before


@given(EXPRESSIONS)
@settings(max_examples=100, deadline=None)
def test_a_guard_gives_a_boolean_or_an_error(expression: str) -> None:
    try:
        answer = Guard(f"{{{{ {expression} }}}}").holds(ROOTS)
    except TemplateError:
        return
    assert answer is True or answer is False


DIFFERENT = """
    items keys get( tojson nope fromjson sha256 b64 to_bool [' __class__
    unique reverse map( select batch( slice(
"""
"""Members come first, the own filters, what Jinja does lazily, and what stock Jinja shows without a sandbox."""


@given(EXPRESSIONS)
@settings(max_examples=150, deadline=None)
def test_stock_jinja_agrees(expression: str) -> None:
    if any(word in expression for word in DIFFERENT.split()):
        return
    text = f"<{{{{ {expression} }}}}>"
    stock = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    try:
        expected = stock.from_string(text).render(ROOTS)
        ours = compile_text(text).render(ROOTS)
    except Exception:  # refused by one of the two: no answer to compare
        return

    assert ours == expected


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        answer = compile_text(text).render({})
    except TemplateError:
        return
    if "{" not in text:
        assert answer == text


@pytest.mark.parametrize("text", ["{{ d }}", "{{ d | tojson }}", "{{ c | unique | list }}", "{{ d | dictsort }}"])
def test_the_same_question_has_the_same_answer(text: str) -> None:
    assert repr(compile_text(text).render(ROOTS)) == repr(compile_text(text).render(ROOTS))
