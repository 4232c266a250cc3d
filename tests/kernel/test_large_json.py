"""Invariant 29: large JSON is read and written in pieces, paid for in advance, with the same result as in one piece."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.kernel.json_values import jsontext, large_json
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner, max_size=8),
    max_leaves=60,
)


def no_rest() -> None:
    pass


@pytest.mark.sampled(2)
@given(values)
@settings(deadline=None, max_examples=200)
def test_pieces_of_any_size_give_the_same_text_and_the_same_value(value: Any) -> None:
    whole = msgspec.json.encode(value)
    with pytest.MonkeyPatch.context() as patch, TurnBudget(10**9, no_rest):
        patch.setattr(jsontext, "PIECE", 20)
        patch.setattr(jsontext, "NODES", 3)
        assert jsontext.encode(value) == whole
        assert jsontext.decode(whole) == value
        assert list(map(type, jsontext.decode(whole))) == list(map(type, value)) if isinstance(value, list) else True


@pytest.mark.parametrize(
    "value",
    [
        [{"id": at, "tags": ["a", "b"]} for at in range(50_000)],
        {"rows": [[at] for at in range(100_000)], "count": 3},
        {f"k{at}": at for at in range(50_000)},
        [["x" * 300_000], {"y": ["z" * 200] * 5_000}],
    ],
    ids=["objects", "rows", "members", "texts"],
)
def test_no_call_into_c_reads_or_writes_much(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text alone is one copy of memory, whatever its length."""
    sizes: list[int] = []
    read, write = jsontext._decode, large_json._encode

    def noting_read(text: Any) -> Any:
        sizes.append(len(text) if bytes(text)[:1] != b'"' else 0)
        return read(text)

    def noting_write(value: Any) -> bytes:
        text = write(value)
        sizes.append(len(text) - 300_000 if b"x" * 300_000 in text else len(text))
        return text

    with TurnBudget(10**9, no_rest):
        monkeypatch.setattr(large_json, "_encode", noting_write)
        monkeypatch.setattr(jsontext, "_decode", noting_read)
        text = jsontext.encode(value)
        assert jsontext.decode(text) == value

    assert len(sizes) > 4
    assert max(sizes) <= 3 * jsontext.PIECE


def test_large_text_is_paid_for_before_it_is_read() -> None:
    text = b"[%b]" % b",".join([b"1"] * 200_000)
    with TurnBudget(50_000) as effort, pytest.raises(TurnTooExpensive):
        jsontext.decode(text)
    assert effort.left < 0
    with TurnBudget(10**9) as effort:
        jsontext.encode(jsontext.decode(text))
    assert 10**9 - effort.left > len(text) // 2


def test_what_has_no_json_form_is_refused_in_pieces_too() -> None:
    large: list[Any] = [[at] for at in range(10_000)]
    with TurnBudget(10**9, no_rest):
        for wrong in (math.nan, object(), "\ud800"):
            with pytest.raises(jsontext.NotJson):
                jsontext.encode([*large, wrong, None])
        around: list[Any] = []
        around.append([around, large])
        with pytest.raises(jsontext.NotJson):
            jsontext.encode(around)
