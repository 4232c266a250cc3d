"""JSON Schema as Stories use it."""

from typing import Any

import pytest

from perdure.dialects.story.values.schemas import BadSchema, CompiledSchema

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "required": True},
        "age": {"type": "integer", "default": 18},
        "address": {"type": "object", "properties": {"country": {"type": "string", "default": "NO"}}},
        "tags": {"type": "array", "items": {"type": "object", "properties": {"n": {"default": 0}}}},
    },
}


def test_required_on_a_property_is_lifted_to_its_parent() -> None:
    """STY-211"""
    assert [str(misfit) for misfit in CompiledSchema(PERSON).misfits({})] == ['"name" is a required property']
    assert CompiledSchema(PERSON).misfits({"name": "x"}) == []


@pytest.mark.parametrize(
    ("value", "completed"),
    [
        ({}, {"age": 18, "address": {"country": "NO"}}),
        ({"age": None}, {"age": None, "address": {"country": "NO"}}),
        ({"age": "x", "address": {}}, {"age": "x", "address": {"country": "NO"}}),
        (
            {"address": {"country": "SE"}, "tags": [{}, {"n": 1}]},
            {"address": {"country": "SE"}, "tags": [{"n": 0}, {"n": 1}], "age": 18},
        ),
        ({"address": "{{ steps.a.output }}"}, {"address": "{{ steps.a.output }}", "age": 18}),
    ],
)
def test_defaults_fill_what_is_absent(value: dict[str, Any], completed: dict[str, Any]) -> None:
    """STY-209: explicit null is present, nothing is coerced, absent objects are made for the defaults in them."""
    assert CompiledSchema(PERSON).complete(value) == completed


def test_defaults_of_all_of_apply() -> None:
    """STY-209"""
    assert CompiledSchema(
        {"allOf": [{"properties": {"a": {"default": 1}}}, {"properties": {"b": {"default": 2}}}]}
    ).complete({}) == {"a": 1, "b": 2}


def test_defaults_behind_a_reference_are_found_and_recursion_ends() -> None:
    """STY-080, STY-209"""
    schema = {
        "definitions": {
            "n": {"properties": {"d": {"default": 1}}},
            "loop": {"properties": {"x": {"$ref": "#/definitions/loop"}}},
        },
    }

    assert CompiledSchema({**schema, "properties": {"a": {"$ref": "#/definitions/n"}}}).complete({}) == {"a": {"d": 1}}
    assert CompiledSchema({**schema, "properties": {"l": {"$ref": "#/definitions/loop"}}}).complete({}) == {}


def test_nothing_is_changed_in_place() -> None:
    value: dict[str, Any] = {"address": {}}

    CompiledSchema(PERSON).complete(value)

    assert value == {"address": {}}


OPEN: list[Any] = [
    "{{ inputs.x }}",
    " ${{ inputs.x }} ",
    {"$bubuStorageRef": "a"},
    {"$bubuSecretRef": "a:b"},
    {"$bubuConfigMapRef": "a:b"},
    {"$bubuTemplate": "inputs.x"},
]


@pytest.mark.parametrize("value", OPEN)
def test_before_the_run_any_part_may_still_be_a_template_or_a_reference(value: Any) -> None:
    """STY-041, and STY-212: at run time it may not."""
    schema = CompiledSchema(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "o": {"oneOf": [{"type": "string", "enum": ["x"]}, {"type": "integer"}]},
                "l": {"type": "array", "items": {"type": "boolean"}},
            },
            "additionalProperties": {"type": "null"},
        }
    )

    for inputs in ({"n": value}, {"o": value}, {"l": [True, value]}, {"z": value}):
        assert schema.static_misfits(inputs) == []
        assert schema.misfits(inputs) != []
    assert schema.static_misfits(value) == []


def test_what_cannot_fit_is_told_plainly_before_the_run() -> None:
    """STY-041: text around a template is text."""
    schema = CompiledSchema(
        {"type": "object", "required": ["a"], "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}}
    )

    misfits = schema.static_misfits({"n": "x{{ inputs.x }}", "m": "{{ inputs.y }}"})

    assert {misfit.path: misfit.message for misfit in misfits} == {
        ("n",): '"x{{ inputs.x }}" is not of type "integer"',
        (): '"a" is a required property',
    }


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "type: .*objekt"),
        ({"properties": 3}, "properties"),
        ({"$ref": "#/definitions/none"}, "definitions/none"),
        ({"$ref": "http://example.com/x.json"}, "example.com"),
        ([], "object"),
        ({"pattern": "("}, "regex"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, words: str) -> None:
    """STY-039"""
    with pytest.raises(BadSchema, match=words):
        CompiledSchema(schema)


@pytest.mark.parametrize(
    "draft", ["", "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
)
def test_words_of_draft_4_are_understood(draft: str) -> None:
    """STY-211"""
    schema = CompiledSchema({**({"$schema": draft} if draft else {}), "minimum": 3, "exclusiveMinimum": True})

    assert schema.misfits(4) == []
    assert schema.misfits(3) != []


def test_definitions_keep_their_place_when_parts_are_open() -> None:
    schema = CompiledSchema(
        {
            "definitions": {"n": {"type": "integer"}},
            "properties": {"a": {"$ref": "#/definitions/n"}, "b": {"$ref": "#/definitions/n"}},
        }
    )

    assert schema.static_misfits({"a": "{{ inputs.x }}", "b": 1}) == []
    assert schema.static_misfits({"a": "{{ inputs.x }}", "b": "no"}) != []
