"""JSON with templates in it (STY-193, STY-198, STY-035, STY-080)."""

from typing import Any

import pytest

from perdure.expressions.gotemplate import BadStructure, Environment, EvaluationFault, Failure, Structure

DATA: dict[str, Any] = {"inputs": {"n": 3, "name": "Ada", "list": [1, 2]}, "steps": {"a": {"output": {"x": 1}}}}
BATCH = Environment(roots=frozenset({"inputs", "steps"}), scope="batch-runtime")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"n": "{{ inputs.n }}", "t": "n={{ inputs.n }}"}, {"n": 3, "t": "n=3"}),
        ([["{{ inputs.list }}"], 1, None, True, 2.5], [[[1, 2]], 1, None, True, 2.5]),
        ({"{{ inputs.n }}": "{{ inputs.n }}"}, {"{{ inputs.n }}": 3}),
        ("{{ inputs.name }}", "Ada"),
        ("plain", "plain"),
        (7, 7),
        # The object form (STY-193)
        ({"$bubuTemplate": "{{ inputs.n }}"}, 3),
        ({"$bubuTemplate": "inputs.n"}, 3),
        ({"$bubuTemplate": "Hi {{ inputs.name }}"}, "Hi Ada"),
        ({"$bubuTemplate": "{{ x }}-{{ .x }}", "$bubuTemplateVars": {"x": "{{ inputs.n }}"}}, "3-3"),
        ({"$bubuTemplate": "{{ inputs.n }}", "$bubuTemplateVars": {"inputs": {"n": 9}}}, 9),
        ({"$bubuTemplate": "{{ .len }}", "$bubuTemplateVars": {"len": [1]}}, [1]),
        ({"$bubuTemplate": "{{ inputs.n }}", "$bubuTemplateVars": None}, 3),
        ({"$bubuTemplate": "{{ .n }}", "$bubuTemplateVars": "{{ inputs }}"}, 3),
        (
            {"deep": [{"$bubuTemplate": "upper v", "$bubuTemplateVars": {"v": {"$bubuTemplate": "inputs.name"}}}]},
            {"deep": ["ADA"]},
        ),
    ],
)
def test_a_value_is_rendered(value: Any, result: Any) -> None:
    assert Structure(value, BATCH).render(DATA) == result


def test_parts_without_templates_are_handed_out_as_they_are() -> None:
    constant = {"large": [1, 2, 3]}
    structure = Structure({"constant": constant, "n": "{{ inputs.n }}"})

    assert structure.render(DATA)["constant"] is constant
    assert not structure.is_constant
    assert Structure(constant).is_constant


def test_references_of_all_parts_are_joined() -> None:
    structure = Structure(
        {
            "a": "{{ steps.a.output }}",
            "b": [{"$bubuTemplate": "steps.no.output", "$bubuTemplateVars": {"steps": "{{ steps.b.output }}"}}],
        }
    )

    assert structure.references.steps == {"a", "b"}


def test_every_problem_is_told_with_its_path() -> None:
    with pytest.raises(BadStructure) as raised:
        Structure({"a": ["{{ nope }}", "{{ inputs.x"], "b": {"$bubuTemplate": 3}, "c": "{{ packet.x }}"}, BATCH)

    assert [(problem.place, problem.message.splitlines()[0]) for problem in raised.value.problems] == [
        ("a[0]", "1:4: function 'nope' is not defined"),
        ("a[1]", "1:1: this action is not closed: `}}` is missing"),
        ("b", "$bubuTemplate must be a string"),
        ("c", "1:4: context 'packet' is not allowed for batch-runtime templates"),
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"$bubuTemplate": "{{ 1 }}", "$bubuTemplateVars": [1]}, "$bubuTemplateVars must be an object"),
        ({"$bubuTemplate": "{{ x }}", "$bubuTemplateVars": {"x": "{{ if }}"}}, "1:7: a value is missing"),
        ({"text": "x" * 1_048_576}, "a value with templates has at most 1048576 bytes of JSON"),
    ],
)
def test_a_badly_formed_value_is_refused(value: Any, message: str) -> None:
    with pytest.raises(BadStructure, match=message.replace("$", r"\$")):
        Structure(value)


def test_a_value_that_is_too_deep_or_cyclic_is_refused() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)

    with pytest.raises(BadStructure, match="at most 128 levels deep"):
        Structure(cyclic)


def test_a_failure_says_in_which_part_it_happened() -> None:
    with pytest.raises(Failure) as raised:
        Structure({"with": [{"x": "{{ upper inputs.n }}"}]}).render(DATA)

    assert raised.value.place == "with[0].x"
    assert str(raised.value).startswith("with[0].x: 1:4: upper: its argument 1 must be a string")


def test_variables_that_render_to_no_object_are_an_error() -> None:
    structure = Structure({"$bubuTemplate": "{{ .x }}", "$bubuTemplateVars": "{{ inputs.n }}"})

    with pytest.raises(EvaluationFault, match="must be an object"):
        structure.render(DATA)
