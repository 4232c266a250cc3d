"""Values of scalars: YAML 1.2 core schema, no more (PBK-005)."""

from typing import Any

import pytest

from perdure.documents import UnreadableText, read_document


def value_of(text: str) -> Any:
    return read_document(f"a: {text}\n".encode()).data["a"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("10.0", 10.0),
        ("-3", -3),
        ("+3", 3),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_core_values(text: str, value: Any) -> None:
    result = value_of(text)

    assert (result, type(result)) == (value, type(value))


ELSEWHERE_SPECIAL = """
    yes no on off y n Yes NO 12:30:45 2024-01-01 2024-01-01T10:00:00Z 1_000 0b11 0o8 0xG 1e 1.2.3 NaN inf = tRUE -x
"""


@pytest.mark.parametrize("text", ELSEWHERE_SPECIAL.split())
def test_what_is_special_elsewhere_is_text(text: str) -> None:
    assert value_of(text) == text


@pytest.mark.parametrize("text", ['"10"', "'true'", '"null"', "!!str 10", "! 10"])
def test_quotes_and_tags_make_text(text: str) -> None:
    assert isinstance(value_of(text), str)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!int 3", 3),
        ("!!float 3", 3.0),
        ("!!float 0x10", 16.0),
        ("!!int 0o10", 8),
        ("!!bool true", True),
        ("!!null ~", None),
    ],
)
def test_core_tags_are_understood(text: str, value: Any) -> None:
    result = value_of(text)

    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".nan", ".nan cannot be represented in JSON"),
        ("-.Inf", "-.Inf cannot be represented in JSON"),
        ("1e999", "the number 1e999 is out of range"),
        ("9" * 5000, "has too many digits"),
        ("0x" + "f" * 5000, "has too many digits"),
        ("!!float " + "9" * 400, "is out of range"),
        ("!!int x", "'x' is not of type int"),
        ("!!int true", "'true' is not of type int"),
        ("!!binary aGk=", "the tag !!binary is not supported"),
        ("!!python/object/apply:os.system [x]", "the tag !!python/object/apply:os.system is not supported"),
        ("!custom {}", "the tag !custom is not supported"),
    ],
)
def test_a_value_without_a_json_form_is_refused_where_it_stands(text: str, message: str) -> None:
    with pytest.raises(UnreadableText) as refused:
        value_of(text)

    (problem,) = refused.value.problems
    assert (problem.code, problem.path, problem.line, problem.column) == ("DOC-VALUE", "a", 1, 4)
    assert message in problem.message
    assert problem.hint
