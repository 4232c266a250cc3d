"""Schemas that expand to much more than their text: refused before anything is checked against them."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.dialects.flow.plan.schemas import InvalidSchema, Parameters
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.story.values.schemas import BadSchema as BadStorySchema
from perdure.dialects.story.values.schemas import CompiledSchema
from perdure.documents import schema_size
from perdure.documents.schema_size import SchemaSize
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive


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
    with pytest.raises(InvalidSchema, match="references expanded"):
        Parameters(doubling(keyword)).compile()
    with pytest.raises(BadStorySchema, match="references expanded"):
        CompiledSchema(doubling(keyword))


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
    flow, story = Parameters(schema), CompiledSchema(schema)

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


LEAVES = st.sampled_from([True, {}, {"type": "integer"}, {"type": "string", "maxLength": 2}, {"enum": [1, "a"]}])
SCHEMAS = st.recursive(
    LEAVES | st.just({"$ref": "#/$defs/shared"}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["array", "object", ["array", "object"]]),
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "additionalProperties": inner,
            "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
            "minItems": st.integers(0, 3),
            "maxItems": st.integers(0, 5),
            "maxProperties": st.integers(0, 5),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=8,
)
DATA = st.recursive(
    st.integers(0, 2) | st.sampled_from(["a", "abc"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=5),
    max_leaves=25,
)


@pytest.mark.sampled(2)
@given(SCHEMAS, SCHEMAS, DATA)
@settings(deadline=None, max_examples=300)
def test_data_fit_in_parts_as_they_do_as_a_whole(schema: Any, shared: Any, value: Any) -> None:
    """Invariant 29: large data are checked in parts, each by a short call."""
    if isinstance(schema, dict):
        schema = {**schema, "$defs": {"shared": {} if "$ref" in repr(shared) else shared}}
    compile = jsonschema_rs.Draft202012Validator
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_size, "_BATCH_SIZE", 3)
        parts = schema_size.PartwiseValidator(schema, compile, SchemaSize(schema).checks_per_part)

        assert parts.is_valid(value) == compile(schema).is_valid(value)


def test_no_call_checks_much_at_once() -> None:
    """Invariant 29: by the size of the schema times that of the data."""
    row = {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"items": {"type": "string"}}}}
    schema = {"properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}}, "$defs": {"row": row}}
    asked: list[int] = []

    class Noting:
        def __init__(self, schema: Any) -> None:
            self._behind = jsonschema_rs.Draft202012Validator(schema)

        def is_valid(self, value: Any) -> bool:
            asked.append(jsontext.weigh(value, 10**9))
            return self._behind.is_valid(value)

    size = SchemaSize(schema)
    parts = schema_size.PartwiseValidator(schema, Noting, size.checks_per_part)
    data = {"rows": [{"name": "n", "tags": ["a", "b"]} for _ in range(50_000)]}
    assert parts.can_split
    assert parts.is_valid(data)
    assert len(asked) > 50_000 * 5 // 5_000
    assert max(asked) <= 5_000
    assert not parts.is_valid({"rows": [*data["rows"], {"name": 1}]})


def test_checking_is_paid_for_before_it_is_done() -> None:
    """Invariant 29: the size of the schema times that of the data."""
    once = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    data = [{"a": at} for at in range(1_000)]
    with TurnBudget(10**9) as effort:
        assert SchemaSize(once).refusal(data) is None
        cheap = 10**9 - effort.left
        assert SchemaSize({"allOf": [once] * 100}).refusal(data) is None
    assert cheap >= 2_000
    assert 10**9 - effort.left >= 90 * cheap
    with TurnBudget(50_000), pytest.raises(TurnTooExpensive):
        SchemaSize({"allOf": [once] * 100}).refusal(data)


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"items": {"type": "integer"}}] * 2_000},
        {"items": {"anyOf": [{"required": [f"k{at}"]} for at in range(2_000)]}},
        {"items": {"enum": [f"k{at}" for at in range(10_000)]}},
        {"items": {"pattern": "^(?=(a+)+$)(a|b)*c"}},
        {"$defs": {"a": {"allOf": [True] * 2_000}}, "items": {"$ref": "#/$defs/a"}},
    ],
    ids=["all of", "any of", "enum", "pattern", "reference"],
)
def test_a_large_schema_for_large_data_is_refused(schema: Any) -> None:
    """Invariant 29: before the library is asked, which nothing stops."""
    size = SchemaSize(schema)
    assert size.refusal(["aab"] * 10) is None
    assert "too large" in (size.refusal(["aab"] * 10_000, in_parts=True) or "")


def test_what_a_contract_names_can_be_checked() -> None:
    """100,000 items of a loop, each an object."""
    row = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {"pattern": "^n"}}}
    rows = [{"id": at, "name": f"n{at}"} for at in range(100_000)]
    for schema in ({"items": row}, {"items": {"$ref": "#/$defs/row"}, "$defs": {"row": row}}):
        assert SchemaSize(schema).refusal(rows, in_parts=True) is None
