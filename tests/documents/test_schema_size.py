"""Schemas that stand for much more than they are: refused before anything is checked against them."""

from typing import Any

import pytest

from perdure.dialects.flow.envelopes import Fault
from perdure.dialects.flow.schemas import BadSchema, Parameters
from perdure.dialects.story.schemas import BadSchema as BadStorySchema
from perdure.dialects.story.schemas import Schema
from perdure.documents.schema_size import SchemaSize


def doubling(keyword: str, levels: int = 60) -> dict[str, Any]:
    """Each part refers twice to the next: 2 to the power of the levels."""
    parts = {f"a{i}": {keyword: [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": {**parts, f"a{levels}": {"type": "integer"}}}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


T = {"$ref": "#/$defs/t"}
R = {"$ref": "#/$defs/r"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_count_as_if_they_were_written_out(keyword: str) -> None:
    with pytest.raises(BadSchema, match="written out"):
        Parameters(doubling(keyword)).compile()
    with pytest.raises(BadStorySchema, match="written out"):
        Schema(doubling(keyword))


@pytest.mark.parametrize("name", ["#t", "http://x.example/t", "http://x.example/t#/allOf/0"])
def test_names_and_anchors_are_references_too(name: str) -> None:
    """What a reference means is up to the library; here it counts as the most that it may mean."""
    part = {"$id": "http://x.example/t", "$anchor": "t", "allOf": [{"properties": {"a": {"$ref": name}}}] * 2}
    assert SchemaSize({"$defs": {"t": part}, "$ref": "#/$defs/t"}).growth >= 2


@pytest.mark.parametrize(
    "parts",
    [
        {"t": {"allOf": [{"properties": {"a": T}}, {"properties": {"a": T}}]}},
        {"t": {"properties": {"a": T}, "patternProperties": {"^a": T}}},
        {"t": {"allOf": [{"properties": {"a": T}}, {"additionalProperties": T}]}},
        {"t": {"allOf": [{"properties": {"a": T}}, {"properties": {"a": R}}]}, "r": {"properties": {"a": T}}},
    ],
)
def test_a_schema_that_refers_to_itself_twice_takes_no_deep_data(parts: Any) -> None:
    schema = {"properties": {"x": T}, "$defs": parts}
    flow, story = Parameters(schema), Schema(schema)

    flow.validate({"x": nested(5)}, "it")
    assert story.misfits({"x": nested(5)}) == []
    with pytest.raises(Fault) as caught:
        flow.validate({"x": nested(60)}, "it")
    assert "nested too deeply" in str(caught.value.envelope)
    assert "nested too deeply" in str(story.misfits({"x": nested(60)})[0])


def test_a_tree_and_a_grammar_stay_what_they_are() -> None:
    tree = {"type": "object", "properties": {"left": T, "right": T, "all": {"items": T}}}
    schema = Parameters({"properties": {"x": T}, "$defs": {"t": tree}})
    deep: Any = {}
    for _ in range(60):
        deep = {"left": deep, "all": [{}]}

    schema.validate({"x": deep}, "it")
    assert SchemaSize(schema.schema).growth == 1
