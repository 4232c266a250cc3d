"""JSON text decoded in pieces gives the same result as decoded at once (invariant 29)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.expressions import json_decoding

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab"\\,[]{}: ', max_size=6),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text('ab",', max_size=3), inner, max_size=6),
    max_leaves=30,
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_decoding, "LARGEST", 8)


def read(text: str) -> Any:
    return json_decoding.decode(text, msgspec.json.decode, lambda _: None)


@given(VALUE, st.sampled_from([None, 1]))
def test_a_value_is_read_the_same_in_pieces(value: Any, indent: int | None) -> None:
    assert read(json.dumps(value, indent=indent)) == value


@given(VALUE, st.integers(0, 200), st.sampled_from(list(',[]{}":1 ')), st.booleans())
def test_broken_text_is_refused_in_pieces_as_it_is_at_once(value: Any, at: int, char: str, cut: bool) -> None:
    whole = json.dumps(value)
    text = whole[:at] + ("" if cut else char) + whole[at + 1 :]
    try:
        meant = msgspec.json.decode(text)
    except msgspec.DecodeError:
        with pytest.raises(ValueError):
            read(text)
    else:
        assert read(text) == meant


def test_a_repeated_member_is_refused_where_that_is_asked_for() -> None:
    text = '{"a": 1, "bbbbbbbb": 2, "a": 3}'

    assert read(text) == {"a": 3, "bbbbbbbb": 2}
    with pytest.raises(ValueError, match="repeated"):
        json_decoding.decode(text, msgspec.json.decode, lambda _: None, unique=True)


@pytest.mark.parametrize(
    "text",
    [
        "[1,2,3,4,,5,6,7]",
        "[       ,       ]",
        "[1,2,3,4,5,]",
        "[,1,2,3,4,5]",
        "[1,2,3,4,5]]",
        '{"a":1,"b":2,,}',
        '[1,2,3,4,"5]',
    ],
)
def test_a_comma_too_many_and_a_bracket_too_few_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)


def test_every_level_that_is_cut_is_paid_for() -> None:
    paid: list[int] = []
    json_decoding.decode("[[[[[[[[[[[[1]]]]]]]]]]]]", msgspec.json.decode, paid.append)

    assert sum(paid) > 200


def test_blanks_are_nothing() -> None:
    assert read("[" + " " * 20 + "]") == []
