"""Plain text tables: columns as wide as their widest cell, nothing cut but the columns that say so."""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.cli.talk import Paint, cut

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    may_shrink: bool = False


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[tuple[str, str]]], width: int | None, paint: Paint
) -> list[str]:
    """Lines of a table of (text, style) cells. `width` is the terminal's; in a pipe (None) nothing is cut."""
    widths = [max([len(column.title), *(len(row[n][0]) for row in rows)]) for n, column in enumerate(columns)]
    if width is not None:
        _shrink(columns, widths, width)
    titles = [(column.title, "bold") for column in columns]
    return [_line(cells, widths, paint) for cells in (titles, *rows)]


def _shrink(columns: Sequence[Column], widths: list[int], width: int) -> None:
    for n, column in enumerate(columns):
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
        if column.may_shrink and excess > 0:
            widths[n] = max(len(column.title), widths[n] - excess)


def _line(cells: Sequence[tuple[str, str]], widths: Sequence[int], paint: Paint) -> str:
    parts = []
    for (text, style), width in zip(cells, widths, strict=True):
        shown = cut(text, width)
        parts.append(paint(shown, style) + " " * (width - len(shown)))
    return GAP.join(parts).rstrip()
