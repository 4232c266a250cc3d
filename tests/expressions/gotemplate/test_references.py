"""What a template depends on, found without running it (STY-054, STY-196)."""

import pytest

from perdure.expressions.gotemplate import compile_template


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("{{ steps.a.output.x }}", {"a"}),
        ("{{ steps.a }}", {"a"}),
        ("{{ .steps.a.output }} {{ $.steps.b }}", {"a", "b"}),
        ("{{ steps['a-b'].output }}", {"a-b"}),
        ('{{ steps["a-b"] }}', {"a-b"}),
        ('{{ index steps "a-b" }}', {"a-b"}),
        ('{{ (index .steps "a-b").output }}', {"a-b"}),
        ('{{ index steps "a" "output" inputs.key }}', {"a"}),
        ("{{ if eq steps.a.output.ok true }}{{ steps.b.output }}{{ else }}{{ steps.c }}{{ end }}", {"a", "b", "c"}),
        ("{{ range steps.a.output.items }}{{ .steps.no }}{{ steps.yes }}{{ end }}", {"a", "yes"}),
        ("{{ with steps.a }}{{ .output }}{{ end }}", {"a"}),
        ("{{ default (steps.a.output.x | upper) steps.b.output.y }}", {"a", "b"}),
        ('{{ "steps.a" }}', set()),
        ("{{/* steps.a */}} steps.b", set()),
        ("{{ inputs.steps.a }}", set()),
    ],
)
def test_steps_are_found_on_the_tree(text: str, steps: set[str]) -> None:
    references = compile_template(text).references

    assert references.steps == steps
    assert not references.reads_any_step


@pytest.mark.parametrize(
    "text",
    [
        "{{ index steps inputs.name }}",
        "{{ range steps }}{{ end }}",
        "{{ $s := steps }}{{ $s.a }}",
        "{{ toJson . }}",
        "{{ $ }}",
        "{{ with steps }}{{ .a }}{{ end }}",
    ],
)
def test_a_computed_step_may_be_any(text: str) -> None:
    assert compile_template(text).references.reads_any_step


def test_aliases_map_back_to_steps() -> None:
    references = compile_template("{{ steps.fetch_feed.output }}{{ steps.plain }}{{ steps.nope }}").references

    assert references.steps_among(["fetch-feed", "plain", "other"]) == (
        frozenset({"fetch-feed", "plain"}),
        frozenset({"nope"}),
    )


def test_roots_paths_and_functions_are_listed() -> None:
    references = compile_template('{{ inputs.a.b | upper | printf "%s" }}{{ packet.text }}').references

    assert references.roots == {"inputs", "packet"}
    assert references.paths == {("inputs", "a", "b"), ("packet", "text")}
    assert references.functions == {"upper", "printf"}
