"""Invariant 25, growth: every holder keeps its own length, whoever adds behind whatever length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.kernel.json_values import growth, jsontext
from perdure.kernel.json_values.growth import Buffer, joined
from perdure.kernel.json_values.values import Payload, Ref, digest


def texts(pieces: list[Payload]) -> list[bytes]:
    assert all(isinstance(piece, bytes) for piece in pieces)
    return [piece for piece in pieces if isinstance(piece, bytes)]


ADDED = st.tuples(st.integers(0, 60), st.lists(st.integers(0, 9), max_size=3), st.booleans())


@given(st.lists(ADDED, max_size=40))
def test_adding_behind_any_length_leaves_every_holder_what_he_has(steps: list[tuple[int, list[int], bool]]) -> None:
    """The model: copies of plain lists."""
    holders: list[tuple[Buffer, int, list[int]]] = [(Buffer([b"[0]"]), 1, [0])]
    for which, added, reads in steps:
        buffer, count, model = holders[which % len(holders)]
        heir = buffer.add(count, jsontext.encode(added))
        holders.append((heir, count + 1, [*model, *added]))
        if reads:
            for item, length, expected in holders:
                owner = item.owner(length)
                owner.decode(texts)
                assert owner.value(length) == expected
    for buffer, count, model in holders:
        owner = buffer.owner(count)
        assert jsontext.decode(owner.text(count, texts)) == model
        assert jsontext.decode(joined(texts(owner.frozen(count)))) == model
        owner.decode(texts)
        assert (owner.value(count), owner.elements(count)) == (model, len(model))


@given(st.lists(st.text(max_size=3), min_size=1, max_size=9))
def test_a_text_is_the_sum_of_its_pieces(parts: list[str]) -> None:
    buffer = Buffer([jsontext.encode(parts[0])])
    for count, part in enumerate(parts[1:], 1):
        buffer = buffer.add(count, jsontext.encode(part))
    buffer.decode(texts)

    assert buffer.value(len(parts)) == "".join(parts)
    assert jsontext.decode(buffer.text(len(parts), texts)) == "".join(parts)
    assert buffer.weight(len(parts)) == sum(map(len, parts))


def test_adding_at_the_end_and_starting_over_copies_nothing() -> None:
    """A Retry that puts back and adds again moves what it threw away, not what it keeps."""
    buffer = Buffer([b"[0]"])
    for count in range(1, 1_000):
        buffer = buffer.add(count, b"[1]")
    buffer.decode(texts)
    kept = buffer.value(1_000)
    for _ in range(10):
        thrown = buffer.add(1_000, b"[2]")
        thrown.decode(texts)
        buffer = thrown.add(1_000, b"[3]")
        buffer.decode(texts)
        assert buffer.value(1_001) is kept, "the very list"
        assert buffer.value(1_001)[-1] == 3
        again = thrown.owner(1_001)
        again.decode(texts)
        assert again.value(1_001)[-1] == 2


def test_what_has_become_much_is_put_beside_the_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "PIECE_BYTES", 20)
    beside: dict[bytes, bytes] = {}
    buffer, count = Buffer([b"[0]"]), 1
    for number in range(30):
        sealed = None
        if pieces := buffer.unsealed(count):
            text = joined(texts(pieces))
            sealed = Ref(digest(text), len(text))
            assert sealed.digest not in beside
            beside[sealed.digest] = text
        buffer = buffer.add(count, jsontext.encode([number]), sealed)
        count += 1
    frozen = buffer.frozen(count)

    assert len(beside) > 3
    assert [item.digest for item in frozen if isinstance(item, Ref)] == list(beside)
    assert sum(len(item) for item in frozen if isinstance(item, bytes)) < 30
    whole = joined([item if isinstance(item, bytes) else beside[item.digest] for item in frozen])
    assert jsontext.decode(whole) == [0, *range(30)]


def test_a_text_that_is_put_beside_the_log_twice_stands_for_its_pieces_once() -> None:
    """Two variables that grow out of one value, in one event."""
    text = b"[0,1]"
    sealed = Ref(digest(text), len(text))
    buffer = Buffer([b"[0]"]).add(1, b"[1]")
    item = buffer.add(2, b"[2]", sealed)
    other = buffer.add(2, b"[3]", sealed)

    assert other.frozen(3) == [sealed, b"[3]"]
    assert joined([text if isinstance(piece, Ref) else piece for piece in item.owner(3).frozen(3)]) == b"[0,1,2]"


def test_a_text_that_is_something_else_stands_for_nothing() -> None:
    buffer = Buffer([b"[0]"]).add(1, b"[1]", Ref(digest(b"[7]"), 3))

    assert buffer.frozen(2) == [b"[0,1]"]
