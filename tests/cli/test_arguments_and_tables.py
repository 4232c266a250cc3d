"""How words of a command line become values, and values become words."""

from perdure.cli.arguments import with_members
from perdure.cli.console import cut
from perdure.cli.outline import outline
from perdure.cli.tables import Column, plain_table_lines
from perdure.cli.terminal import table_lines


def test_members_are_set_deep_and_read_as_json_where_they_can_be() -> None:
    assert with_members(None, [("a.b", "3"), ("a.c", "x y"), ("d", '{"e": null}')]) == {
        "a": {"b": 3, "c": "x y"},
        "d": {"e": None},
    }
    assert with_members(3, []) == 3


def test_a_table_leaves_out_and_shrinks_only_what_may() -> None:
    columns = (Column("ID"), Column("NAME", may_shrink=True), Column("SINCE", may_go=True))
    rows = [[("0123456789", ""), ("a long name", ""), ("yesterday", "")]]

    assert plain_table_lines(columns, rows)[1] == "0123456789  a long name  yesterday"
    assert table_lines(columns, rows, 25, has_colours=False)[1] == "0123456789  a long name"
    assert table_lines(columns, rows, 18, has_colours=False)[1] == "0123456789  a lon…"
    assert table_lines(columns, rows, 5, has_colours=False)[1] == "0123456789  a l…"


def test_a_table_in_a_terminal_counts_columns_of_the_screen_and_not_characters() -> None:
    rows = [[("漢字", ""), ("x", "")], [("ab", ""), ("y", "")]]

    assert table_lines((Column("A"), Column("B")), rows, 80, has_colours=False) == ["A     B", "漢字  x", "ab    y"]


def test_an_outline_counts_what_is_too_much() -> None:
    lines = outline({"a": 1, "b": {"c": ["x", "y"]}, "many": list(range(25)), "none": [], "": ""}, 40)

    assert lines[:5] == ["a: 1", "b:", "  c:", "    - x", "    - y"]
    assert "  … and 5 more (see --json)" in lines
    assert lines[-2:] == ["none: []", ': ""']
    assert cut("two\nlines", 6) == "two l…"
