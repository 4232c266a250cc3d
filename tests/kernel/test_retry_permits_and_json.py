"""Retry delays, random draws, permits, JSON text and positions in it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.kernel.ids import child_run, idempotency_key, is_family
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.json_positions import place_of, repeated_member
from perdure.kernel.json_values.values import RunId
from perdure.kernel.randomness import child_seed, draw
from perdure.kernel.tasks.permits import PermitRequest, grant
from perdure.kernel.tasks.retry import LONGEST, Backoff, delay


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [(Backoff.CONSTANT, [10, 10, 10]), (Backoff.LINEAR, [10, 20, 30]), (Backoff.EXPONENTIAL, [10, 20, 40])],
)
def test_waits_grow_as_their_name_says(backoff: Backoff, expected: list[int]) -> None:
    assert [delay(backoff, 10, failures) for failures in (1, 2, 3)] == expected


@given(st.sampled_from(Backoff), st.integers(0, 10**12), st.integers(1, 10**6), st.floats(1, 10))
def test_no_wait_is_longer_than_its_ceiling_or_a_century(
    backoff: Backoff, base: int, failures: int, factor: float
) -> None:
    assert 0 <= delay(backoff, base, failures, 1000, factor) <= 1000
    assert 0 <= delay(backoff, base, failures, None, factor) <= LONGEST


def test_a_wait_follows_a_failure() -> None:
    with pytest.raises(ValueError, match="follows a failure"):
        delay(Backoff.CONSTANT, 1, 0)


def test_draws_are_the_same_for_ever() -> None:
    """Invariant 10: a named hash; these values stand in recorded histories."""
    assert draw(42, "a/b", 0) == 0.7118566988061003
    assert len({draw(42, "a/b", counter) for counter in range(100)}) == 100
    assert child_seed(42, 1) != child_seed(42, 2)


@given(st.integers(0, 2**63), st.text(), st.integers(0, 10**6))
def test_draws_lie_in_the_unit_interval(seed: int, path: str, counter: int) -> None:
    assert 0 <= draw(seed, path, counter) < 1


def test_the_allocator_takes_priority_then_age() -> None:
    """Invariant 17."""
    waiting = [
        PermitRequest(RunId(name), 1, priority, at) for name, priority, at in (("a", 0, 1), ("b", 5, 3), ("c", 0, 0))
    ]

    assert [item.run for item in grant(2, 0, waiting, now=10)] == ["b", "c"]
    assert [item.run for item in grant(2, 1, waiting, now=10)] == ["b"]
    assert grant(2, 5, waiting, now=10) == []


def test_with_ageing_a_long_wait_outweighs_priority() -> None:
    """Invariant 17."""

    def first(ageing: int) -> RunId:
        waiting = [PermitRequest(RunId("old"), 1, 0, 0, ageing), PermitRequest(RunId("important"), 1, 3, 95, ageing)]
        return grant(1, 0, waiting, now=100)[0].run

    assert first(ageing=20) == "old"
    assert first(ageing=0) == "important"


def test_names_derive_from_the_run() -> None:
    assert child_run(RunId("r"), 3) == "r.3"
    assert is_family("r.3.1", "r.3") and is_family("r", "r") and not is_family("r33", "r3")
    assert idempotency_key(RunId("r"), 1, "a/b") == "r/a/b"
    assert idempotency_key(RunId("r"), 2, "a/b") == "r/r2/a/b", "a further life works under new keys"


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [1, [-math.inf]], {"a": {"b": math.nan}}, object(), {1, object()}]
)
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(jsontext.NotJson):
        jsontext.encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(jsontext.NotJson, match="nested too deeply"):
        jsontext.encode(endless)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON)
def test_json_survives_the_way_there_and_back(value: object) -> None:
    assert jsontext.decode(jsontext.encode(value)) == value
    assert jsontext.read_strict(jsontext.encode(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1, "a": 2}', "'a' is repeated"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[1e999]", "out of range"),
        (b'{"a": }', "line 1, column 7"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_text_from_outside_is_read_strictly(text: bytes, message: str) -> None:
    with pytest.raises(jsontext.NotJson, match=message):
        jsontext.read_strict(text)


DOCUMENT = """{
  "steps": [
    {"call": "a"},
    {"sleep": "1s", "odd, [name": {"deep": [1, {"x": null}]}}
  ],
  "name": "n"
}"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("steps",), (2, 3)),
        (("steps", 0), (3, 5)),
        (("steps", 1, "sleep"), (4, 6)),
        (("steps", 1, "odd, [name", "deep", 1, "x"), (4, 49)),
        (("name",), (6, 3)),
        (("missing",), None),
    ],
)
def test_places_in_a_document(path: tuple[str | int, ...], place: tuple[int, int] | None) -> None:
    assert place_of(DOCUMENT, path) == place


def test_the_first_repeated_member_is_found() -> None:
    assert repeated_member('{"a": {"a": 1},\n "b": 1, "a": 2}') == ("a", 2, 10)
    assert repeated_member(DOCUMENT) is None
