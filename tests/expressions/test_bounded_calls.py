"""Work in pieces gives the results of the plain methods (invariant 29: one call into C is bounded)."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.expressions import bounded_calls


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (
        ("CHARACTERS", 5),
        ("PARTS", 3),
        ("SHORT", 2),
        ("_RUN", 4),
        ("_RUN_OF_LONG_KEYS", 2),
    ):
        monkeypatch.setattr(bounded_calls, name, size)


def free(_: int) -> None:
    pass


TEXT = st.text("abé", max_size=40)
PART = st.text("abé", min_size=1, max_size=7)
LIMIT = st.integers(-1, 5)


@given(TEXT, st.text("abé", max_size=7), st.integers(0, 40), st.integers(0, 40))
def test_finding_in_pieces_finds_the_same_place(text: str, part: str, start: int, end: int) -> None:
    end = min(end, len(text))
    assert bounded_calls.find(text, part, start, end) == text.find(part, start, end)
    assert bounded_calls.rfind(text, part, start, end) == text.rfind(part, start, end)


class Unsearchable(str):
    """A text that Python must not search from its end."""

    def rfind(self, *_: Any) -> int:
        raise AssertionError("this takes the product of both lengths")


def test_a_long_part_is_searched_for_forwards() -> None:
    text = Unsearchable("b" + "a" * 60)

    assert bounded_calls.rfind(text, "ab" + "a" * 30, 0, len(text)) == -1
    assert bounded_calls.rfind(text, "a" * 30, 0, len(text)) == 31


@given(TEXT, PART, LIMIT)
def test_splitting_from_the_end_gives_the_same_parts(text: str, part: str, limit: int) -> None:
    assert bounded_calls.rsplit(text, part, limit) == text.rsplit(part, limit)


@given(TEXT, PART, LIMIT)
def test_splitting_in_pieces_gives_the_same_parts_and_each_is_paid_for(text: str, part: str, limit: int) -> None:
    paid: list[int] = []

    assert bounded_calls.split(text, part, limit, paid.append) == text.split(part, limit)
    assert sum(paid) >= len(text.split(part, limit))


@given(TEXT, st.text("abé", max_size=7), st.text("xy", max_size=3), LIMIT)
def test_replacing_in_pieces_gives_the_same_text(text: str, old: str, new: str, limit: int) -> None:
    assert bounded_calls.replace(text, old, new, limit, free) == text.replace(old, new, limit)


@given(st.lists(PART, max_size=20), TEXT)
def test_joining_and_translating_in_pieces_give_the_same_text(parts: list[str], text: str) -> None:
    assert bounded_calls.join(", ", parts) == ", ".join(parts)
    assert bounded_calls.characters(text) == list(text)
    assert bounded_calls.translate(text, {ord("a"): "xyz"}) == text.translate({ord("a"): "xyz"})


@given(st.lists(st.tuples(st.integers(0, 5)), max_size=40), st.sampled_from([0, 1000]))
def test_sorting_in_pieces_gives_the_same_order_and_keeps_equal_keys_in_place(keys: list[Any], longest: int) -> None:
    assert bounded_calls.order(keys, longest) == sorted(range(len(keys)), key=keys.__getitem__)


def test_sorting_many_compares_no_more_often_than_sorting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    compared = 0

    class Key:
        def __init__(self, value: float) -> None:
            self.value = value

        def __lt__(self, other: "Key") -> bool:
            nonlocal compared
            compared += 1
            return self.value < other.value

    draw = random.Random(1)
    keys = [Key(draw.random()) for _ in range(20_000)]
    bounded_calls.order(keys)
    in_pieces, compared = compared, 0
    sorted(keys)

    assert in_pieces < 1.2 * compared
