"""Tables on stdout: columns as wide as their widest cell. In a pipe nothing is cut; rich fits them into a terminal."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.cli.console import cut, harmless, is_coloured, width_of

GAP = "  "

Cell = tuple[str, str]
"""Text and style; the style is seen only in a terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    may_shrink: bool = False
    may_go: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, indent: int = 0) -> list[str]:
    """The lines of a table for stdout; the caller indents them by so many columns."""
    rows = [[(cut(harmless(text), None), style) for text, style in row] for row in rows]
    width = width_of(sys.stdout)
    if width is None:
        return plain_table_lines(columns, rows)
    from perdure.cli.terminal import table_lines

    return table_lines(columns, rows, width - indent, has_colours=is_coloured(sys.stdout))


def plain_table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[str]:
    texts = [[column.title for column in columns], *([text for text, _ in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts]
