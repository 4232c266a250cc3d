"""Positions in expression text, and pictures that point at them."""

from perdure.expressions.source import Position, Source


def test_lines_and_columns_count_from_one() -> None:
    source = Source("a +\n  b")

    assert Position(1, 1, 0) == source.position(0)
    assert Position(2, 3, 6) == source.position(6)


def test_the_end_of_the_text_has_a_position() -> None:
    assert Position(1, 2, 1) == Source("a").position(1)


def test_a_caret_stands_under_the_offset() -> None:
    assert Source("a + b").point_at(2) == " | a + b\n | ..^"


def test_only_the_line_of_the_offset_is_shown() -> None:
    assert Source("a +\nbb + c\n").point_at(7) == " | bb + c\n | ...^"


def test_columns_count_code_points() -> None:
    assert Source("'😀' + x").point_at(6) == " | '😀' + x\n | ......^"


def test_a_long_line_is_shown_around_the_caret() -> None:
    picture = Source("a" * 500 + "!" + "b" * 500).point_at(500)

    view, caret = picture.splitlines()
    assert view[caret.index("^")] == "!"
    assert len(view) < 120


def test_control_characters_do_not_break_the_picture() -> None:
    assert Source("a\tb").point_at(2) == " | a b\n | ..^"


def test_a_long_fragment_is_shortened_in_the_middle() -> None:
    fragment = Source("x" * 1000).fragment(0, 1000)

    assert "…" in fragment
    assert len(fragment) < 100
