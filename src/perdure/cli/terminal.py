"""What a terminal shows by means of rich: tables that fit its width, and a block of lines that is redrawn in place.

Imported when there is something to draw in a terminal: loading rich takes longer than many commands.
"""

import io
from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.segment import Segment, Segments
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from perdure.cli.console import ESCAPE, BlockLine, harmless
from perdure.cli.tables import GAP, Column

READABLE = 30  # columns of a cell that is cut


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[tuple[str, str]]], width: int, *, has_colours: bool
) -> list[str]:
    """Lines of a table of (text, style) cells, each row on one line.

    If the table is too wide, columns that may go are left out, then columns that may shrink are cut; nothing else is.
    None is left out for the sake of a column that has room enough to be read.
    """
    widths = [max([cell_len(column.title), *(cell_len(row[n][0]) for row in rows)]) for n, column in enumerate(columns)]
    least = [min(size, READABLE) if column.may_shrink else size for size, column in zip(widths, columns, strict=True)]
    if _total(least) > width:
        shown = [n for n, column in enumerate(columns) if not column.may_go]
    else:
        shown = list(range(len(columns)))
    grid = Table(box=None, padding=(0, len(GAP), 0, 0), pad_edge=False)
    for n in shown:
        # A column that does not wrap keeps its width; the cells of the others are cut by their own setting.
        grid.add_column(_one_line(columns[n].title, "bold"), no_wrap=not columns[n].may_shrink)
    for row in rows:
        grid.add_row(*(_one_line(*row[n]) for n in shown))
    needed = _total([max(1, cell_len(columns[n].title)) if columns[n].may_shrink else widths[n] for n in shown])
    page = io.StringIO()
    _rich_console(page, has_colours=has_colours, width=max(width, needed)).print(grid)
    return [line.rstrip() for line in page.getvalue().replace("\x1b", ESCAPE).removesuffix("\n").split("\n")]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


class LiveBlock:
    """Lines at the foot of the terminal that are redrawn in place; what is printed meanwhile appears above them."""

    def __init__(self, stream: TextIO, *, has_colours: bool) -> None:
        self._console = _rich_console(stream, has_colours=has_colours)
        self._spinner = Spinner("dots")
        self._live: Live | None = None

    def draw(self, lines: Sequence[BlockLine]) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            self._console.show_cursor(True)  # a process that is killed cannot bring a hidden one back
        self._live.update(Group(*map(self._line, lines)), refresh=True)

    def print_above(self, text: str) -> None:
        """The text is harmless already, and may have escape sequences of ours."""
        self._console.print(Segments([Segment(text)]), crop=False)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self, line: BlockLine) -> Text:
        frame = self._spinner.render(self._console.get_time()) if line.has_spinner else ""
        return _one_line(f"{frame} {harmless(line.text)}" if frame else harmless(line.text), line.style)


def _rich_console(stream: TextIO, *, has_colours: bool, width: int | None = None) -> RichConsole:
    return RichConsole(
        file=stream,
        width=width,
        color_system="standard" if has_colours else None,
        force_terminal=True,
        legacy_windows=False,
        highlight=False,
    )
