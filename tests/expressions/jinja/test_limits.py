"""Templates that need too much end in a clear error, soon (PBK-151)."""

from typing import Any

import pytest

from perdure.expressions.jinja import Guard, LimitExceeded, Limits, SyntaxFault, Template, TemplateError, compile_text

ITEMS = [{"k": at, "t": "text"} for at in range(3000)]
COLLIDING = [[(2**61 - 1) * at, 0] for at in range(1, 3000)]  # their hashes are the same
ROOTS: dict[str, Any] = {"ctx": {"xs": ITEMS, "ys": [dict(element) for element in ITEMS], "pairs": COLLIDING}}

GREEDY = [
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * 'a' }}",
    "{{ [1, 2] * 10**9 }}",
    "{{ 2 ** 100000 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ range(10**9) }}",
    "{{ range(0, 10**30) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ ('a' * 1000).replace('a', 'b' * 10000) }}",
    "{{ 'a'.join(['b' * 1000] * 10000) }}",
    "{{ 'x' | indent(10**9) }}",
    "{{ 'x\ny\nz' | indent('y' * 500000) }}",
    "{{ 'x' | center(10**9) }}",
    "{{ 'xx' | replace('', 'x' * 1000000) }}",
    "{{ range(10000) | join('x' * 1000) }}",
    "{{ [1] | batch(10**9, 0) }}",
    "{{ [1] | slice(10**9) }}",
    "{{ 1.5 | round(10**9, 'ceil') }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' | format(10**9, 1) }}",
    "{{ '%.999999999f' | format(1.0) }}",
    "{{ ('<!---->' * 100000) | striptags }}",
    "{{ ('a-' * 50000) | wordwrap(3) }}",
    "{{ ('x ' * 1000) | wordwrap(1, wrapstring='y' * 10000) }}",
    "{{ ('http://a.b ' * 20000) | urlize }}",
    "{{ ([[1]] * 10000) | sum(start=[]) }}",
    "{{ ctx.xs | pprint }}",
    "{{ range(0, (2**61 - 1) * 50000, 2**61 - 1) | unique }}",
    "{{ range(2**64, 2**64 + 2) }}",
    "{{ dict(ctx.pairs) | length }}",
    "{{ ctx.pairs | unique(attribute=0) | length }}",
    "{% for i in range(300) %}{% set d = {" + ", ".join(f"{at}: 0" for at in range(600)) + "} %}{% endfor %}",
    "{{ ([2**4090 * 2**4000] * 400 ~ '') | length }}",
    "{{ ([2**4090 * 2**4000] * 400) | join | length }}",
    "{{ ([2**4090 * 2**4000] * 400) | tojson | length }}",
    "{{ (ctx.xs * 20) | upper }}",
    "{% for i in range(999) %}{% for j in range(999) %}{% for k in range(999) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in range(100) %}" + "x" * 60_000 + "{% endfor %}",
    "{% for i in range(20000) %}{{ ctx.xs == ctx.ys }}{% endfor %}",
    "{% for i in range(20000) %}{{ {'k': 0} in ctx.ys }}{% endfor %}",
    "{% for i in range(20000) %}{{ loop.changed(ctx.xs) }}{% endfor %}",
    "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "{% set ns = namespace(a={}) %}{% for i in range(60) %}{% set ns.a = {'x': ns.a, 'y': ns.a} %}{% endfor %}"
    "{{ ns.a | tojson }}",
    "{% set ns = namespace(a=9) %}{% for i in range(60) %}{% set ns.a = ns.a * ns.a %}{% endfor %}",
    "{% set a = 'x' * 1000000 %}{% for i in range(50000) %}{{ 'y' in a }}{% endfor %}",
    "{% set a = 'x' * 1000000 %}{% for i in range(50000) %}{{ a[1:] | length }}{% endfor %}",
    "{% set b %}{% for i in range(40) %}" + "x" * 50_000 + "{% endfor %}{% endset %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for x in [1] recursive %}{{ loop(range(1000)) }}{% endfor %}",
    "{% macro f() %}" + "{% set x = a.b %}" * 300 + "{% endmacro %}{% for i in range(50000) %}{{ f() }}{% endfor %}",
    "{% macro f() %}{% for i in range(9000) %}{{ caller() }}{% endfor %}{% endmacro %}"
    "{% call f() %}" + "{% set x = a.b %}" * 300 + "{% endcall %}",
    "{% for i in range(9000) if " + "a.b or " * 300 + "0 %}{% endfor %}",
    "{% for x in [9] recursive %}" + "{% set y = a.b %}" * 300 + "{{ loop(range(9)) }}{% endfor %}",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ " + "[" * 100 + "]" * 100 + " }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{{ " + "not " * 5000 + "1 }}",
    "{{ 1" + " + 1" * 3000 + " }}",
    "{{ a" + ".b" * 3000 + " }}",
    "{{ a" + " | upper" * 3000 + " }}",
    "{{ [" + "1, " * 10_000 + "] }}",
    "{% if 1 %}" * 70 + "{% endif %}" * 70,
    "{% for i in [1] %}" * 25 + "{% endfor %}" * 25,
    "{{ 1 }}" + "x" * 70_000,
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", GREEDY, ids=lambda text: text[:60])
def test_greed_is_refused(text: str) -> None:
    with pytest.raises(LimitExceeded) as raised:
        compile_text(text).render(ROOTS)

    assert raised.value.position is not None


@pytest.mark.parametrize("text", ["{{ 'a' * 10**9 }}", "{{ range(10**9) | list }}", "{{ ctx.xs | pprint }}"])
def test_guards_have_the_same_limits(text: str) -> None:
    with pytest.raises(LimitExceeded):
        Guard(text).holds(ROOTS)


@pytest.mark.parametrize(
    "text",
    [
        "{{ " * 20_000,
        "{% " * 20_000,
        "{#" * 30_000,
        "{{ '" + "\\" * 60_000,
        "{{ " + "9" * 5000 + " }}",
        "{{ 0x" + "f" * 60_000 + " }}",
        "{{ " + "a(" * 2000,
    ],
    ids=lambda text: text[:10],
)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        compile_text(text).render({})


def test_one_rendering_of_a_structure_has_one_budget() -> None:
    template = Template(["{{ 'x' * 1000000 }}-"] * 3)

    with pytest.raises(LimitExceeded, match="the output is longer than 1048576 characters"):
        template.render({})


def test_limits_may_be_tighter() -> None:
    with pytest.raises(LimitExceeded, match="a text of 20 characters is longer than 10"):
        compile_text("{{ 'ab' * 10 }}", Limits(size=10)).render({})


def test_a_document_nested_beyond_reason_is_a_fault() -> None:
    document: Any = "{{ x }}"
    for _ in range(5000):
        document = [document]

    assert [fault.code for fault in Template(document).faults] == ["TEMPLATE-LIMIT"]


def test_ordinary_work_on_much_data_is_not_greed() -> None:
    roots = {"rows": [{"id": at, "name": f"n{at % 7}", "tags": ["a", "b"]} for at in range(5000)]}

    assert compile_text("{{ rows | map(attribute='id') | sum }}").render(roots) == 12497500
    assert compile_text("{{ rows | selectattr('name', 'eq', 'n3') | list | length }}").render(roots) == 714
    assert compile_text("{{ rows | sort(attribute='name') | first }}").render(roots) == roots["rows"][0]
    assert compile_text("{{ rows | groupby('name') | length }}").render(roots) == 7
    assert len(str(compile_text("{{ rows | tojson }}").render(roots))) > 200_000
    assert compile_text("{% for r in rows %}{{ r.id }},{% endfor %}").render(roots)


def test_a_literal_text_of_any_length_is_itself() -> None:
    text = "x" * 3_000_000

    assert compile_text(text).render({}) is text


def test_comparisons_in_comparisons_compile_once() -> None:
    text = "x"
    for _ in range(25):
        text = f"(1 < {text} < 2)"

    assert compile_text(f"{{{{ {text} }}}}").render({"x": 5}) is False


def test_a_bad_number_is_a_syntax_fault() -> None:
    with pytest.raises(SyntaxFault, match="too many digits"):
        compile_text("{{ " + "9" * 5000 + " }}")
