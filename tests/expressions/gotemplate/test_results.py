"""The result of a template: the value itself, JSON, or text (STY-193, STY-198 to STY-200, STY-206)."""

from typing import Any

import pytest

from perdure.expressions.gotemplate import Environment, EvaluationFault, MissingKey, compile_template, is_template

DATA: dict[str, Any] = {
    "inputs": {
        "a": {"b": [10, {"c": None}]},
        "items": [1, 2, 3],
        "n": 3,
        "big": 9007199254740993,
        "f": 2.5,
        "json": '{"k": [1]}',
        "no": None,
    },
    "steps": {"fetch-feed": {"output": {"list": ["x", "y"]}}, "b.c": {"output": 1}, "b_c": {"output": 2}},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no braces", "no braces"),
        # STY-198 a: a plain path keeps its type
        ("{{ inputs.a }}", {"b": [10, {"c": None}]}),
        ("{{ .inputs.a.b }}", [10, {"c": None}]),
        ("{{ $.inputs.n }}", 3),
        ("  {{ inputs.n }}\n", 3),
        ("{{- inputs.n -}}", 3),
        ("{{/* why */}}{{ inputs.n }}", 3),
        ("{{ inputs.a.b[0] }}", 10),
        ("{{ inputs.a.b[1].c }}", None),
        ("{{ inputs['a']['b'][0] }}", 10),
        ('{{ .inputs["a"].b }}', [10, {"c": None}]),
        ("{{ steps['fetch-feed'].output.list }}", ["x", "y"]),
        ('{{ index steps "fetch-feed" }}', {"output": {"list": ["x", "y"]}}),
        ('{{ (index .steps "fetch-feed").output.list[1] }}', "y"),
        ('{{ index steps "fetch-feed" "output" "list" 0 }}', "x"),
        ("{{ inputs.json }}", '{"k": [1]}'),
        # STY-198 b: one action over Go's builtins is read as JSON
        ("{{ len inputs.items }}", 3),
        ("{{ eq 1 1 }}", True),
        ('{{ printf "%d" 7 }}', 7),
        ('{{ printf "v%d" 7 }}', "v7"),
        ("{{ print inputs.json }}", {"k": [1]}),
        ("{{ and inputs.n inputs.f }}", 2.5),
        ("{{ or inputs.no false }}", False),
        ("{{ not inputs.no }}", True),
        ("{{ inputs.n | print }}", 3),
        ('{{ "text" }}', "text"),
        ("{{ print inputs.big }}", 9007199254740993),
        ("{{ slice inputs.items 1 }}", "[2 3]"),
        # STY-198 c: everything else is text
        ("{{ add 1 2 }}", "3"),
        ("{{ default 5 inputs.x }}", "5"),
        ("n={{ inputs.n }}", "n=3"),
        ("{{ inputs.n }}{{ inputs.n }}", "33"),
        ("{{ inputs.n }} {{ inputs.f }}", "3 2.5"),
        ("{{ if true }}1{{ end }}", "1"),
        ("{{ sample inputs.n }}", "3"),
        ("{{ toJson inputs.items }}", "[1,2,3]"),
        ("{{ inputs.big }}!", "9007199254740993!"),
        # STY-206: numbers compare by value
        ("{{ eq inputs.n 3.0 }}", True),
        ("{{ lt inputs.f inputs.n }}", True),
        ('{{ printf "%.1f" inputs.n }}', 3.0),
        ('{{ printf "%d" 3.0 }}', 3),
        # STY-195: a bare root means the same in every block
        ("{{ range inputs.items }}{{ inputs.n }}{{ . }} {{ end }}", "31 32 33 "),
        ('{{ with inputs.a }}{{ inputs.f }}{{ end }}{{ "inputs.n" }}', "2.5inputs.n"),
        # STY-196: steps have a second name, unless that name is taken
        ("{{ steps.fetch_feed.output.list }}", ["x", "y"]),
        ("{{ steps.b_c.output }}", 2),
        ('{{ $s := "fetch_feed" }}{{ (index steps $s).output.list }}', "[x y]"),
        ("{{ $all := steps }}{{ $all.fetch_feed.output.list }}", "[x y]"),
        # STY-200: a missing key is nil to functions
        ("{{ inputs.x }}!", "<no value>!"),
        ('{{ default "d" inputs.x }}', "d"),
        ("{{ exists inputs.x }}", "false"),
        ("{{ empty inputs.x }}", "true"),
        ('{{ coalesce inputs.x "c" }}', "c"),
        ('{{ dig "p" "q" "d" inputs }}', "d"),
        ('{{ dig "p" "d" inputs.x }}', "d"),
    ],
)
def test_a_template_gives(text: str, value: Any) -> None:
    result = compile_template(text).render(DATA)

    assert (result, type(result)) == (value, type(value))


def test_a_plain_path_gives_the_data_themselves() -> None:
    assert compile_template("{{ inputs.a }}").render(DATA) is DATA["inputs"]["a"]


@pytest.mark.parametrize(
    ("text", "root", "path"),
    [
        ("{{ inputs.x }}", "inputs", "inputs.x"),
        ("{{ inputs.a.zz.y }}", "inputs", "inputs.a.zz"),
        ("{{ inputs.a.b[7] }}", "inputs", "inputs.a.b[7]"),
        ("{{ steps.later.output }}", "steps", "steps.later"),
        ("{{ steps['fetch-feed'].output.more }}", "steps", "steps.fetch-feed.output.more"),
        ("{{ packet.text }}", "packet", "packet"),
    ],
)
def test_a_plain_path_to_nothing_says_where_it_ends(text: str, root: str, path: str) -> None:
    with pytest.raises(MissingKey) as raised:
        compile_template(text).render(DATA)

    assert (raised.value.root, raised.value.path) == (root, path)
    assert raised.value.message == f"missing key at {path}"


@pytest.mark.parametrize(
    "text",
    ["{{ inputs.n.x }}", "{{ inputs.no.x }}", "{{ inputs.items.x }}", "{{ inputs.a[0] }}", "{{ inputs.x.y }}!"],
)
def test_a_field_of_what_has_none_is_an_error(text: str) -> None:
    with pytest.raises(EvaluationFault) as raised:
        compile_template(text).render(DATA)

    assert not isinstance(raised.value, MissingKey)


def test_typed_functions_extend_types_to_every_function() -> None:
    """STY-199."""
    typed = Environment(typed_functions=True)

    assert compile_template("{{ add 1 2 }}", typed).render(DATA) == 3
    assert compile_template("{{ toJson inputs.items }}", typed).render(DATA) == [1, 2, 3]


def test_only_braces_make_a_template() -> None:
    assert [is_template(text) for text in ("a {{ b", "a { { b", "")] == [True, False, False]


def test_the_same_text_is_compiled_once() -> None:
    assert compile_template("{{ inputs.n }}") is compile_template("{{ inputs.n }}")
