"""Neither a schema nor the data it is for can stop the engine: the validation library cannot be interrupted."""

import json
from typing import Any

import pytest

from perdure.dialects.flow.plan.schemas import InvalidSchema, Parameters
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.story.values.schemas import TOO_LARGE_TO_TELL, BadSchema, CompiledSchema
from perdure.documents import schema_costs
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive

HUGE = [10**20 + number for number in range(2_000)]
LARGE = {"a": "x" * 200_000}


def flow_problem(schema: dict[str, Any], value: Any) -> str:
    parameters = Parameters({"properties": {"value": schema}})
    with pytest.raises(Fault) as fault:
        parameters.validate({"value": value}, "arguments")
    return str(fault.value.envelope["message"])


def story_problems(schema: dict[str, Any], value: Any) -> list[str]:
    compiled = CompiledSchema(schema)
    assert compiled.static_misfits(value)
    return [misfit.message for misfit in compiled.misfits(value)]


ALMOST_EQUAL = "it has too many numbers of more than 53 bits that are almost equal"


def test_large_numbers_are_not_compared_with_each_other() -> None:
    """2,000 of 20 digits, 46 KB, took 0.6 seconds in one call; 500 of 4,000 digits a minute."""
    for schema, value in (
        ({"uniqueItems": True}, HUGE),
        ({"uniqueItems": True}, [[number] for number in HUGE]),
        ({"items": {"maximum": 5}}, [-(10**4_000)] * 200),
        ({"allOf": [{"maximum": 5}] * 200}, -(10**4_000)),
    ):
        assert story_problems(schema, value) == ["it has too many numbers of more than 64 bits"]
        assert "more than 64 bits" in flow_problem(schema, value)
    assert CompiledSchema({"uniqueItems": True}).misfits(HUGE[:100]) == []
    for least in (2**60, 2**63, -(2**62)):  # those with one hash took 6 seconds in one call
        near, apart = [[least + number * step for number in range(5_000)] for step in (1, 10**14)]
        assert story_problems({"uniqueItems": True}, near) == [ALMOST_EQUAL]
        assert CompiledSchema({"uniqueItems": True}).misfits(apart) == []
    assert CompiledSchema({"items": {"type": "integer"}}).misfits(HUGE) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "integer"}] * 2_000},
        {"required": [f"name{number}" for number in range(2_000)]},
        {"dependencies": {"a": [f"name{number}" for number in range(2_000)]}},
    ],
)
def test_of_very_many_problems_with_a_large_value_the_first_is_told(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a copy of the value: 500 KB and 2,000 problems took 3.8 GB and four seconds, in one call."""
    schema_for_flow = {name.replace("dependencies", "dependentRequired"): part for name, part in schema.items()}
    (message,) = story_problems(schema, LARGE)
    assert len(message) <= 1_001
    assert len(flow_problem(schema_for_flow, LARGE)) < 1_100
    few = schema if "allOf" not in schema else {"allOf": [{"type": "integer"}, {"type": "array"}]}
    assert len(story_problems(few, {"a": "small"})) > 1


def test_alternatives_that_would_quote_a_value_too_often_are_not_told() -> None:
    """An error of `oneOf` has the errors of each of its schemas: 1.4 GB for a text of 100 KB."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(3):
        schema = {"oneOf": [schema] * 10}
    assert story_problems(schema, "x" * 50_000) == [TOO_LARGE_TO_TELL.message]
    assert "too large to say where" in flow_problem(schema, "x" * 50_000)


def test_patterns_are_compiled_to_a_limited_size() -> None:
    """50 of 25 characters took 1.5 seconds and 600 MB in one call."""
    schema = {"allOf": [{"pattern": f"((a{{1,90}}){{1,90}}){{1,15}}{number}"} for number in range(50)]}
    with pytest.raises(BadSchema, match="regex"):
        CompiledSchema(schema)
    with pytest.raises(InvalidSchema, match="regex"):
        Parameters({"properties": {"value": schema}}).compile()
    many: dict[str, Any] = {
        "patternProperties": {f"^x{number}$": {} for number in range(schema_costs.MOST_PATTERNS + 1)}
    }
    with pytest.raises(BadSchema, match="patterns"):
        CompiledSchema(many)
    usual = {"properties": {f"p{number}": {"pattern": r"^[0-9a-f]{8}-(\w{1,63})$"} for number in range(200)}}
    assert CompiledSchema(usual).misfits({"p1": "01234567-ok"}) == []
    assert CompiledSchema({"pattern": r"^\p{L}{1,50}$"}).misfits("été") == []


def test_numbers_of_a_schema_are_limited() -> None:
    with pytest.raises(BadSchema, match="1024 bits"):
        CompiledSchema({"items": {"maximum": 10**4_000}})
    assert CompiledSchema(json.loads('{"maximum": 1e308}')).misfits(17) == []


def test_a_value_of_very_many_problems_is_not_told_all_of_them() -> None:
    """100,000 missing members held the event loop for 1.8 seconds: the library makes all errors in one call."""
    names = [f"k{number}" for number in range(10_000)]
    for schema, value in (
        ({"type": "object", "required": names}, {}),
        ({"items": {"type": "string"}}, list(range(10_000))),
    ):
        assert not CompiledSchema(schema)._size.tells_all(value)
        assert len(story_problems(schema, value)) == 1
        assert flow_problem(schema, value)


def test_a_turn_on_the_event_loop_pays_for_compiling_a_schema() -> None:
    schema = {"properties": {f"k{number}": {"type": "string"} for number in range(500)}}
    for compile_it in (lambda: Parameters(schema).compile(), lambda: CompiledSchema(schema)):
        with pytest.raises(TurnTooExpensive), TurnBudget(100_000, counts_compiling=True):
            compile_it()
        compile_it()


def test_extreme_numbers_are_not_compared_in_great_number() -> None:
    """As fractions of hundreds of digits: 5,000 of them, divided in one call, took 0.2 seconds."""
    tiny, huge = [5e-324] * 3_000, [1e308] * 3_000
    for schema, value in (
        ({"items": {"multipleOf": 0.01}}, huge),
        ({"items": {"multipleOf": 1e-300}}, [19.99] * 3_000),
        ({"items": {"maximum": 1e-300}}, tiny),
        ({"uniqueItems": True}, [number * 1e-300 for number in range(3_000)]),
    ):
        assert "extremely large or small" in flow_problem(schema, value)
        assert "extremely large or small" in story_problems(schema, value)[0]
    assert not CompiledSchema({"items": {"multipleOf": 0.01}}).misfits([19.99] * 10_000 + huge[:100])
