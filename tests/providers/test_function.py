"""How a function is called with a task's arguments, and what its signature says about them."""

import math
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import msgspec
import pytest
from tests.providers import samples

from perdure.providers.failure import BadArguments
from perdure.providers.function import Function


def add(a: int, b: int = 2) -> int:
    return a + b


def test_arguments_are_bound_by_name_and_defaults_apply() -> None:
    assert Function(add).invoke({"a": 1, "b": 5}) == 6
    assert Function(add).invoke({"a": 1}) == 3


def test_input_and_context_are_given_only_to_those_who_ask() -> None:
    def ask(input: Any, context: Any) -> Any:
        return [input, context]

    function = Function(ask)

    assert (function.wants_input, function.wants_context) == (True, True)
    assert (Function(add).wants_input, Function(add).wants_context) == (False, False)
    assert function.invoke({}, {"x": 1}, "context") == [{"x": 1}, "context"]


def test_rest_takes_what_no_parameter_names() -> None:
    def collect(a: int, **rest: Any) -> Any:
        return [a, rest]

    assert Function(collect).invoke({"a": 1, "b": 2, "c": 3}) == [1, {"b": 2, "c": 3}]


@pytest.mark.parametrize(
    ("arguments", "parameter", "message"),
    [
        ({}, "a", "missing argument 'a'"),
        ({"a": 1, "c": 2}, "c", "unexpected argument 'c'"),
        ({"a": "x"}, "a", "argument 'a': Expected `int`, got `str`"),
        ({"a": 1, "b": None}, "b", "argument 'b': Expected `int`, got `null`"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], parameter: str, message: str) -> None:
    with pytest.raises(BadArguments, match=message) as refused:
        Function(add).invoke(arguments)

    assert refused.value.parameter == parameter


def test_a_wrong_value_deep_inside_is_named_by_its_path() -> None:
    class Address(msgspec.Struct, forbid_unknown_fields=True):
        street: str

    def post(to: list[Address]) -> None: ...

    with pytest.raises(BadArguments) as refused:
        Function(post).invoke({"to": [{"street": 5}]})

    assert (refused.value.parameter, refused.value.path) == ("to", "to[0].street")


def test_values_are_converted_to_the_annotated_types() -> None:
    @dataclass
    class Point:
        x: float

    def show(at: Point, on: date, way: Literal["up", "down"]) -> Any:
        return [at.x, on.year, way]

    assert Function(show).invoke({"at": {"x": 1}, "on": "2026-01-02", "way": "up"}) == [1.0, 2026, "up"]


def test_an_annotation_that_json_does_not_know_is_passed_as_it_comes() -> None:
    class Opaque:
        pass

    def show(a: Opaque, b: "NoSuchName", c: "int") -> Any:  # type: ignore[name-defined]  # noqa: F821
        return [a, b]

    assert Function(show).invoke({"a": {"x": 1}, "b": 2, "c": 3}) == [{"x": 1}, 2]
    with pytest.raises(BadArguments, match="argument 'c'"):
        Function(show).invoke({"a": 1, "b": 2, "c": "three"})


def test_the_input_is_converted_as_well() -> None:
    def show(input: list[int]) -> Any:
        return input

    with pytest.raises(BadArguments) as refused:
        Function(show).invoke({}, {"not": "a list"})

    assert refused.value.parameter == "input"


def test_positional_arguments_stand_for_parameters_in_order() -> None:
    assert Function(add).invoke({}, positional=[1, 5]) == 6
    assert Function(add).invoke({"b": 5}, positional=[1]) == 6
    assert Function(math.sqrt).invoke({}, positional=[4.0]) == 2.0
    assert Function(max).invoke({}, positional=[1, 7]) == 7
    with pytest.raises(BadArguments, match="takes 2 positional arguments, got 3"):
        Function(add).invoke({}, positional=[1, 2, 3])
    with pytest.raises(BadArguments, match="'a' is given by name and by position"):
        Function(add).invoke({"a": 1}, positional=[1])


def test_a_type_error_inside_the_function_is_its_own() -> None:
    def broken() -> None:
        len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        Function(broken).invoke({})


def test_the_schema_is_read_from_the_signature() -> None:
    def send(to: str, copies: int = 1, priority: Literal["low", "high"] = "low", input: Any = None) -> None: ...

    assert Function(send).schema() == {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "copies": {"type": "integer", "default": 1},
            "priority": {"enum": ["high", "low"], "default": "low"},
        },
        "required": ["to"],
        "additionalProperties": False,
    }


def test_a_coroutine_function_answers_with_its_coroutine() -> None:
    assert Function(samples.add_slowly).is_coroutine
    coroutine = Function(samples.add_slowly).invoke({"a": 1})

    coroutine.close()
