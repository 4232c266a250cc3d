"""What is undefined: harmless in guards, an error in values once it is needed (PBK-147, PBK-076, PBK-103)."""

from typing import Any

import pytest

from perdure.expressions.jinja import Guard, MissingValue, Template, TemplateError, compile_text

ROOTS: dict[str, Any] = {"ctx": {"name": "ann", "nothing": None, "n": 1}, "outcome": {"status": "ok"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.no | default(3) }}", 3),
        ("{{ ctx.no.deeper.still | default(3) }}", 3),
        ("{{ ctx.no is defined }}", False),
        ("{{ ctx.no is undefined }}", True),
        ("{{ ctx.no == 1 }}", False),
        ("{{ ctx.no != 1 }}", True),
        ("{{ 1 if ctx.no else 2 }}", 2),
        ("{{ ctx.no or 'other' }}", "other"),
        ("{{ not ctx.no }}", True),
        ("{{ 1 in ctx.no }}", False),
        ("{{ [ctx.no, 1] | select('defined') }}", [1]),
        ("{% if ctx.no %}a{% else %}b{% endif %}", "b"),
        ("{{ nowhere is defined }}", False),
    ],
)
def test_a_value_may_test_and_default_it(text: str, value: Any) -> None:
    assert compile_text(text).render(ROOTS) == value


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        ("{{ ctx.no }}", "no", (1, 8)),
        ("{{ nowhere }}", "nowhere", (1, 4)),
        ("a {{ ctx.no }} b", "no", (1, 10)),
        ("line\n  {{ ctx.no.deeper }}", "no", (2, 10)),
        ("{{ [1, ctx.no] }}", "no", (1, 12)),
        ("{{ {'a': {'b': ctx.no}} }}", "no", (1, 20)),
        ("{{ ctx.no + 1 }}", "no", (1, 8)),
        ("{{ ctx.no < 1 }}", "no", (1, 8)),
        ("{{ ctx.no ~ 'x' }}", "no", (1, 8)),
        ("{{ ctx.no | upper }}", "no", (1, 8)),
        ("{{ ctx.no | length }}", "no", (1, 8)),
        ("{{ ctx.no | tojson }}", "no", (1, 8)),
        ("{{ [ctx.no] | string }}", "no", (1, 9)),
        ("{{ nowhere() }}", "nowhere", (1, 4)),
        ("{{ ctx.no.method() }}", "no", (1, 8)),
        ("{% for x in ctx.no %}{% endfor %}", "no", (1, 17)),
        ("{{ ctx['no'] }}", "no", (1, 9)),
        ("{{ -ctx.no }}", "no", (1, 9)),
        ("{{ ctx.no[1:] }}", "no", (1, 8)),
        ("{{ ctx.nothing.x }}", "x", (1, 16)),
    ],
)
def test_a_value_that_needs_it_fails_with_its_name_and_place(text: str, name: str, place: tuple[int, int]) -> None:
    with pytest.raises(MissingValue) as raised:
        compile_text(text).render(ROOTS)

    error = raised.value
    assert (error.code, error.name) == ("TEMPLATE-UNDEFINED", name)
    assert error.position is not None
    assert (error.position.line, error.position.column) == place


@pytest.mark.parametrize("text", ["{{ 'a' if ctx.no }}", "{{ [] | first }}", "{{ 'a' if ctx.no }}!"])
def test_other_ways_to_have_no_value_fail_too(text: str) -> None:
    with pytest.raises(MissingValue):
        compile_text(text).render(ROOTS)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("{{ ctx.no }}", False),
        ("{{ ctx.no.deeper[3].still }}", False),
        ("{{ nowhere.at.all }}", False),
        ("{{ not ctx.no }}", True),
        ("{{ ctx.no == 1 }}", False),
        ("{{ ctx.no != 1 }}", True),
        ("{{ 1 in ctx.no }}", False),
        ("{{ ctx.no in [1] }}", False),
        ("{{ ctx.no and true }}", False),
        ("{{ ctx.no or true }}", True),
        ("{{ ctx.no | default(true) }}", True),
        ("{{ ctx.no | length > 0 }}", False),
        ("{{ outcome.http.status == 200 }}", False),
        ("{{ outcome.status == 'ok' and not outcome.pg.code }}", True),
        ("{{ ctx.no }}{{ ctx.neither }}", False),
        ("{% for x in ctx.no %}yes{% endfor %}", False),
        ("{{ ctx.values }}", False),
    ],
)
def test_it_is_harmless_in_guards(text: str, holds: bool) -> None:
    assert Guard(text).holds(ROOTS) is holds


@pytest.mark.parametrize(
    "text", ["{{ ctx.no > 1 }}", "{{ 1 <= ctx.no }}", "{{ ctx.no + 1 }}", "{{ -ctx.no }}", "{{ ctx.no.x() }}"]
)
def test_order_and_arithmetic_on_it_fail_even_in_guards(text: str) -> None:
    with pytest.raises(TemplateError, match="`no` is missing"):
        Guard(text).holds(ROOTS)


@pytest.mark.parametrize("kind", ["result_ref", "manifest"])
def test_a_member_that_only_the_body_of_a_reference_has_is_explained(kind: str) -> None:
    """PBK-173 PBK-174."""
    reference = {"kind": kind, "ref": "noetl://execution/1", "extracted": {}}
    with pytest.raises(TemplateError, match=r"`rows` is missing: .* kept by reference; .* `spec\.result\.select`"):
        Template("{{ x.rows }}").render({"x": reference})
