"""Plain text tables: columns as wide as their widest cell.

In a narrow terminal the columns that may go are left out, then those that may shrink are cut; nothing else ever is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.cli.console import Paint, cut, harmless

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    may_shrink: bool = False
    may_go: bool = False


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[tuple[str, str]]], width: int | None, paint: Paint
) -> list[str]:
    """Lines of a table of (text, style) cells. `width` is the terminal's; in a pipe (None) nothing is cut."""
    rows = [[(cut(harmless(text), None), style) for text, style in row] for row in rows]
    widths = [max([len(column.title), *(len(row[n][0]) for row in rows)]) for n, column in enumerate(columns)]
    kept = [n for n, column in enumerate(columns) if not (column.may_go and _excess(widths, width) > 0)]
    columns, widths = [columns[n] for n in kept], [widths[n] for n in kept]
    for n, column in enumerate(columns):
        if column.may_shrink:
            widths[n] = max(len(column.title), widths[n] - max(0, _excess(widths, width)))
    titles = [(column.title, "bold") for column in columns]
    return [_line(cells, widths, paint) for cells in (titles, *([row[n] for n in kept] for row in rows))]


def _excess(widths: Sequence[int], width: int | None) -> int:
    return 0 if width is None else sum(widths) + len(GAP) * (len(widths) - 1) - width


def _line(cells: Sequence[tuple[str, str]], widths: Sequence[int], paint: Paint) -> str:
    parts = []
    for (text, style), width in zip(cells, widths, strict=True):
        shown = cut(text, width)
        parts.append(paint(shown, style) + " " * (width - len(shown)))
    return GAP.join(parts).rstrip()
