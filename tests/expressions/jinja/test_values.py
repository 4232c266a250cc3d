"""Values of templates: native values, text, structures (PBK-092, PBK-147, PBK-148, PBK-150)."""

import copy
from typing import Any

import pytest

from perdure.expressions.jinja import EvaluationFault, Template, TemplateError, compile_text

ROOTS: dict[str, Any] = {
    "ctx": {
        "n": 4,
        "zero": 0,
        "text": "123",
        "name": "ann",
        "items": [3, 1, 2],
        "keys": "data",
        "values": {"x": 1},
        "nested": {"items": "inner", "list": [{"k": 1}, {"k": 2}]},
        "yes": True,
        "nothing": None,
        "half": 0.5,
    },
    "workload": {"orders": [{"id": 7, "tags": ["a"]}, {"id": 8, "tags": []}]},
}


def render(text: str) -> Any:
    return compile_text(text).render(ROOTS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.n }}", 4),
        ("  {{ ctx.n }}\n", 4),
        ("{{ ctx.text }}", "123"),
        ("{{ '1_000' }}", "1_000"),
        ("{{ 'true' }}", "true"),
        ("{{ ctx.yes }}", True),
        ("{{ ctx.nothing }}", None),
        ("{{ ctx.half }}", 0.5),
        ("{{ ctx.n / 2 }}", 2.0),
        ("{{ ctx.n // 2 }}", 2),
        ("{{ ctx.items[1:] }}", [1, 2]),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ ctx.items | map('string') }}", ["3", "1", "2"]),
        ("{{ ctx.items | select('gt', 1) }}", [3, 2]),
        ("{{ {'a': ctx.n, 'b': [ctx.yes]} }}", {"a": 4, "b": [True]}),
        ("{{ '<b>' | e }}", "&lt;b&gt;"),
        ("{{ '{{' }}", "{{"),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
    ],
)
def test_one_expression_gives_its_own_value(text: str, value: Any) -> None:
    """PBK-148."""
    result = render(text)

    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n={{ ctx.n }}", "n=4"),
        ("{{ ctx.n }}{{ ctx.n }}", "44"),
        ("{{ ctx.text }} ", "123"),
        ("{{ ctx.n }}\n.", "4\n."),
        ("{{ ctx.yes }}.", "True."),
        ("{% if ctx.yes %}42{% endif %}", "42"),
        ("{# nothing #}", ""),
        ("plain { text } %}", "plain { text } %}"),
        ("line\n", "line\n"),
        ("{{ ctx.n }} line\n", "4 line\n"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{# note #}{{ ctx.n }}", "4"),
        ("{% for i in ctx.items if i > 1 %}{{ loop.index }}:{{ i }} {% else %}none{% endfor %}", "1:3 2:2 "),
        ("{% set a = 1 %}{{ a }}", "1"),
        ("{% macro m(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{{ m(1) }} {{ m(1, y=3) }}", "1-2 1-3"),
        ("{% set ns = namespace(t=0) %}{% for i in ctx.items %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}", "6"),
        ("{% filter upper %}a{{ ctx.name }}{% endfilter %}", "AANN"),
        ("{% with a = ctx.n %}{{ a }}{% endwith %}", "4"),
        ("{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}", "[x]"),
        (
            "{% for a in [[1, [2, []]]] recursive %}{{ a[0] }}{% if a[1] %}{{ loop([a[1]]) }}{% endif %}{% endfor %}",
            "12",
        ),
        ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "aba"),
        ("{% set j = joiner(',') %}{% for i in ctx.items %}{{ j() }}{{ i }}{% endfor %}", "3,1,2"),
        ("{% for k, v in ctx['values'].items() %}{{ k }}={{ v }}{% endfor %}", "x=1"),
    ],
)
def test_anything_else_gives_text(text: str, value: str) -> None:
    """PBK-148: nothing is parsed again."""
    assert render(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ ctx.items }}", [3, 1, 2]),
        ("{{ ctx.keys }}", "data"),
        ("{{ ctx['values'] }}", {"x": 1}),
        ("{{ ctx.nested.items }}", "inner"),
        ("{{ ctx.nested.keys() }}", ["items", "list"]),
        ("{{ ctx.nested.get('items') }}", "inner"),
        ("{{ ctx.nested.get('no', 5) }}", 5),
        ("{{ ctx.items.0 }}", 3),
        ("{{ ctx.items[-1] }}", 2),
        ("{{ ctx.nested.list[1].k }}", 2),
        ("{{ ctx.nested.list | map(attribute='k') | sum }}", 3),
        ("{{ ctx.name.upper() }}", "ANN"),
        ("{{ 'a,b'.split(',') }}", ["a", "b"]),
        ("{{ ctx.pop is defined }}", False),
        ("{{ ctx.name.upper is defined }}", False),
    ],
)
def test_members_win_over_methods(text: str, value: Any) -> None:
    """PBK-147: a dot reads data; a method exists only where it is called."""
    assert render(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ {'b': 1, 'a': '<ä>'} | tojson }}", '{"a": "<ä>", "b": 1}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ '[1, 1.0, null]' | fromjson }}", [1, 1.0, None]),
        ("{{ 'hä' | b64encode }}", "aMOk"),
        ("{{ 'aMOk' | b64decode }}", "hä"),
        ("{{ '' | sha256 }}", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("{{ 'off' | to_bool }}", False),
        ("{{ 'x' | to_bool }}", True),
        ("{{ ctx.items | sort | join('-') }}", "1-2-3"),
        ("{{ ctx.nested.list | selectattr('k', 'gt', 1) | list }}", [{"k": 2}]),
        ("{{ ctx.nested | dictsort }}", [["items", "inner"], ["list", [{"k": 1}, {"k": 2}]]]),
        ("{{ ctx.items | batch(2) }}", [[3, 1], [2]]),
        (
            "{{ workload.orders | groupby('id') }}",
            [[7, [ROOTS["workload"]["orders"][0]]], [8, [ROOTS["workload"]["orders"][1]]]],
        ),
        ("{{ [[1], [2]] | sum(start=[]) }}", [1, 2]),
        ("{{ '%s-%03d' | format('a', 7) }}", "a-007"),
        ("{{ 'a b' | replace(' ', '_') | upper }}", "A_B"),
        ("{{ 2.567 | round(1) }}", 2.6),
        ("{{ 'x' | attr('y') is defined }}", False),
        ("{{ [1, 2] | first }}", 1),
        ("{{ [2, 1, 2] | unique }}", [2, 1]),
        ("{{ '3' | int + 1 }}", 4),
    ],
)
def test_filters(text: str, value: Any) -> None:
    """PBK-150."""
    assert render(text) == value


def test_data_go_through_by_reference() -> None:
    assert render("{{ ctx.items }}") is ROOTS["ctx"]["items"]
    assert render("{{ ctx.nested.list | first }}") is ROOTS["ctx"]["nested"]["list"][0]


def test_structures_are_rendered_and_their_keys_are_not() -> None:
    document = {"{{ ctx.n }}": ["{{ ctx.n }}", "n={{ ctx.n }}", 7, None], "plain": {"a": ["x"]}}
    template = Template(document)

    rendered = template.render(ROOTS)

    assert rendered == {"{{ ctx.n }}": [4, "n=4", 7, None], "plain": {"a": ["x"]}}
    assert isinstance(rendered, dict)
    assert rendered["plain"] is document["plain"]


def test_a_structure_without_templates_is_itself() -> None:
    document = {"a": [1, "text {", {"b": None}]}
    template = Template(document)

    assert template.is_literal
    assert template.render({}) is document


def test_templates_in_data_are_never_rendered() -> None:
    assert compile_text("{{ t }}").render({"t": "{{ 1 / 0 }}"}) == "{{ 1 / 0 }}"
    assert compile_text("-{{ t }}").render({"t": "{{ 1 / 0 }}"}) == "-{{ 1 / 0 }}"


def test_all_faults_of_a_structure_are_collected() -> None:
    """PBK-029, PBK-034."""
    template = Template({"a": ["{{ x", "fine"], "b": {"c": "{{ y | nope }}"}})

    assert [(fault.path, fault.code) for fault in template.faults] == [
        (("a", 0), "TEMPLATE-SYNTAX"),
        (("b", "c"), "TEMPLATE-SYNTAX"),
    ]
    with pytest.raises(TemplateError):
        template.render({})


def test_a_failure_says_which_string_failed() -> None:
    template = Template({"a": ["fine", "{{ 1 / ctx.zero }}"]})

    with pytest.raises(EvaluationFault) as raised:
        template.render(ROOTS)

    assert raised.value.path == ("a", 1)


def test_rendering_changes_no_data() -> None:
    roots = copy.deepcopy(ROOTS)
    for text in (
        "{% set ctx = 1 %}{{ ctx }}",
        "{{ ctx.items | sort | reverse | list }}",
        "{% for item in ctx.items %}{% set item = 9 %}{% endfor %}",
        "{{ dict(ctx, n=5) }}",
        "{% set ns = namespace(ctx) %}{% set ns.n = 5 %}",
    ):
        compile_text(text).render(roots)

    assert roots == ROOTS


def test_equal_texts_are_compiled_once() -> None:
    assert compile_text("{{ ctx.n + 100 }}") is compile_text("{{ ctx.n + 100 }}")


def test_windows_line_ends_do_not_disturb_places() -> None:
    with pytest.raises(TemplateError) as raised:
        compile_text("a\r\nb {{ 1 }}\r\n{{ nope }}\r\n").render({})

    position = raised.value.position
    assert position is not None
    assert (position.line, position.column) == (3, 4)


def test_a_text_without_templates_keeps_its_line_ends() -> None:
    assert render("a\r\nb") == "a\r\nb"
