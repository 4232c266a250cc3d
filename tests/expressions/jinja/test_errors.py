"""How errors are reported: code, message, place (PBK-029, PBK-034)."""

import pytest

from perdure.expressions.jinja import TemplateError, compile_text

ROOTS = {"ctx": {"name": "ann", "n": 1, "items": [1]}}


@pytest.mark.parametrize(
    ("text", "code", "place", "message"),
    [
        ("{{ x( }}", "TEMPLATE-SYNTAX", (1, 7), "unexpected '}', expected ')'"),
        ("a\n{{ 'x' | nope }}", "TEMPLATE-SYNTAX", (2, 10), "no filter named 'nope'"),
        ("{{ x is nope }}", "TEMPLATE-SYNTAX", (1, 6), "no test named 'nope'"),
        ("{{ x | random }}", "TEMPLATE-SYNTAX", (1, 8), "no filter named 'random'"),
        ("{{ & }}", "TEMPLATE-SYNTAX", (1, 4), "unexpected char '&' at 3"),
        (
            "{% if x %}",
            "TEMPLATE-SYNTAX",
            (1, 9),
            "unexpected end of template. Jinja was looking for the following tags: 'elif' or 'else' or 'endif'. "
            "The innermost block that needs to be closed is 'if'",
        ),
        ("{% nope %}", "TEMPLATE-SYNTAX", (1, 4), "encountered unknown tag 'nope'"),
        ("{% include 'x' %}", "TEMPLATE-SYNTAX", (1, 4), "`include` does not exist in these templates"),
        ("{% import 'x' as y %}", "TEMPLATE-SYNTAX", (1, 4), "`import` does not exist in these templates"),
        ("{% extends 'x' %}", "TEMPLATE-SYNTAX", (1, 4), "`extends` does not exist in these templates"),
        ("{% block x %}{% endblock %}", "TEMPLATE-SYNTAX", (1, 4), "`block` does not exist in these templates"),
        ("{{ self }}", "TEMPLATE-SYNTAX", (1, 4), "`self` does not exist in these templates"),
        ("{{ 1 / 0 }}", "TEMPLATE-VALUE", (1, 4), "division by zero"),
        ("{{ 'a' + 1 }}", "TEMPLATE-VALUE", (1, 4), "`+` does not work on a text and a number; join texts with `~`"),
        ("a {{ 1 < 'a' }}", "TEMPLATE-VALUE", (1, 6), "`<` does not work on a number and a text"),
        ("{{ -ctx.name }}", "TEMPLATE-VALUE", (1, 4), "`-` does not work on a text"),
        ("{{ ctx.n() }}", "TEMPLATE-VALUE", None, "a number cannot be called"),
        ("{{ ctx.n | length }}", "TEMPLATE-VALUE", (1, 12), "a number has no length"),
        ("{{ ctx.name.nope() }}", "TEMPLATE-VALUE", None, "a text has no method `nope`"),
        ("{{ 1 in 'abc' }}", "TEMPLATE-VALUE", None, "`in` looks for a number in a text; write it in quotes"),
        ("{{ 1 in 5 }}", "TEMPLATE-VALUE", None, "`in` does not work on a number"),
        ("{% for x in 5 %}{% endfor %}", "TEMPLATE-VALUE", None, "`for` cannot iterate over a number"),
        ("{{ 1e308 * 10 }}", "TEMPLATE-VALUE", None, "inf is not a number in JSON"),
        ("{{ (-8) ** 0.5 }}", "TEMPLATE-VALUE", None, "the root of a negative number is not a real number"),
        ("{{ {1: 2} }}", "TEMPLATE-VALUE", None, "a key must be a text, not a number"),
        ("{{ namespace(a=1) }}", "TEMPLATE-VALUE", None, "a namespace is not a value that data can hold"),
        ("{{ range }}", "TEMPLATE-VALUE", None, "a type is not a value that data can hold"),
        (
            "{{ '[1' | fromjson }}",
            "TEMPLATE-VALUE",
            None,
            "the text is not JSON: line 1, column 3: Expecting ',' delimiter",
        ),
        ("{{ '*' | b64decode }}", "TEMPLATE-VALUE", None, "the text is not base64"),
        ("{{ '/w==' | b64decode }}", "TEMPLATE-VALUE", None, "the decoded base64 is not text"),
        ("{{ 5 | sha256 }}", "TEMPLATE-VALUE", None, "`sha256` works on text, not on a number; see `tojson`"),
        (
            "{{ '%d' | format('x') }}",
            "TEMPLATE-VALUE",
            None,
            "the text cannot be formatted: %d format: a real number is required, not str",
        ),
        (
            "{% set ctx.x = 1 %}",
            "TEMPLATE-VALUE",
            None,
            "this does not work on these data: cannot assign attribute on non-namespace object",
        ),
        ("{{ ctx.nam }}", "TEMPLATE-UNDEFINED", (1, 8), "`nam` is missing; did you mean 'name'?"),
        ("{{ foo }}", "TEMPLATE-UNDEFINED", (1, 4), "`foo` is not defined here"),
    ],
)
def test_a_mistake_is_told(text: str, code: str, place: tuple[int, int] | None, message: str) -> None:
    with pytest.raises(TemplateError) as raised:
        compile_text(text).render(ROOTS)

    error = raised.value
    assert (error.code, error.message) == (code, message)
    assert error.position is not None
    assert error.__cause__ is None
    if place is not None:
        assert (error.position.line, error.position.column) == place


def test_an_error_shows_its_place() -> None:
    with pytest.raises(TemplateError) as raised:
        compile_text("Dear {{ ctx.name }},\n  you owe {{ ctx.amount }} coins").render(ROOTS)

    assert str(raised.value) == (
        "2:18: `amount` is missing, in `ctx.amount`\n |   you owe {{ ctx.amount }} coins\n | .................^"
    )
