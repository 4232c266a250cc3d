"""How words of a command line become values, and values become words."""

import io

import pytest

from perdure.cli.arguments import with_members
from perdure.cli.console import Paint, cut
from perdure.cli.outline import outline
from perdure.cli.tables import Column, table
from perdure.cli.times import iso, read_instant, read_span, span
from perdure.kernel.values import SECOND

MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("text", "length"),
    [("5", 5 * SECOND), ("250ms", SECOND // 4), ("1.5s", 3 * SECOND // 2), ("1h30m", 90 * MINUTE), ("2w", 14 * DAY)],
)
def test_durations_are_read(text: str, length: int) -> None:
    assert read_span(text) == length


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-1s", "1h30"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        read_span(text)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0.0 s"),
        (-5, "0.0 s"),
        (SECOND * 12, "12 s"),
        (185 * SECOND, "3 m 05 s"),
        (130 * MINUTE, "2 h 10 m"),
        (5 * DAY + 3 * HOUR, "5 d 3 h"),
    ],
)
def test_spans_are_told_in_two_units(length: int, text: str) -> None:
    assert span(length) == text


def test_instants_are_times_or_ages() -> None:
    now = 1_800_000_000 * SECOND

    assert read_instant("2h", now) == now - 2 * HOUR
    assert read_instant("2027-01-15T08:00:00Z", now) == now
    assert read_instant("2027-01-15T09:00+01:00", now) == now
    assert iso(now) == "2027-01-15T08:00:00.000000Z"
    assert iso(None) is None


def test_members_are_set_deep_and_read_as_json_where_they_can_be() -> None:
    assert with_members(None, [("a.b", "3"), ("a.c", "x y"), ("d", '{"e": null}')]) == {
        "a": {"b": 3, "c": "x y"},
        "d": {"e": None},
    }
    assert with_members(3, []) == 3


def test_a_table_leaves_out_and_shrinks_only_what_may() -> None:
    columns = (Column("ID"), Column("NAME", may_shrink=True), Column("SINCE", may_go=True))
    rows = [[("0123456789", ""), ("a long name", ""), ("yesterday", "")]]
    plain = Paint(io.StringIO())

    assert table(columns, rows, None, plain)[1] == "0123456789  a long name  yesterday"
    assert table(columns, rows, 25, plain)[1] == "0123456789  a long name"
    assert table(columns, rows, 18, plain)[1] == "0123456789  a lon…"
    assert table(columns, rows, 5, plain)[1] == "0123456789  a l…"


def test_an_outline_counts_what_is_too_much() -> None:
    lines = outline({"a": 1, "b": {"c": ["x", "y"]}, "many": list(range(25)), "none": [], "": ""}, 40)

    assert lines[:5] == ["a: 1", "b:", "  c:", "    - x", "    - y"]
    assert "  … and 5 more (see --json)" in lines
    assert lines[-2:] == ["none: []", ': ""']
    assert cut("two\nlines", 6) == "two l…"
