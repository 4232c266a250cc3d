"""`timeline`: the steps of a run as bars over time, with attempts and waits."""

import argparse
import sys
from dataclasses import dataclass

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.graphs.run_trace import VisitStatus
from perdure.kernel.json_values.values import Instant
from perdure.views.runs.history_events import HELP
from perdure.views.runs.progress_events import status_words
from perdure.views.runs.run_graph import short_span
from perdure.views.runs.timeline import TIMELINE, TIMELINE_JSON, Timeline, TimelineJsonQuery, TimelineQuery, TimelineRow
from perdure.views.times import local

EXAMPLES = """\
examples:
  perdure timeline 06g2k               one bar per step; parts are indented
  perdure timeline 06g2k --all         every iteration, however many there are
  perdure timeline 06g2k --at 12       as it was after its twelfth event
  perdure timeline 06g2k --json        the same for programs: times, attempts, waits
"""

PIPE_WIDTH = 120
NARROWEST_BAR = 16
_COLOURS = {"running": "cyan", "waiting": "yellow", "failed": "red", "cancelled": "dim", "skipped": "dim"}


@dataclass(frozen=True, slots=True)
class _Signs:
    work: str
    wait: str
    failed: str
    open: str
    skipped: str


_BLOCKS = _Signs("█", "░", "▒", "▶", "·")
_ASCII = _Signs("#", ".", "x", ">", "-")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--all", action="store_true", dest="everything", help="one row for every iteration")
    parser.add_argument("--at", metavar="MOMENT", help=f"show the run as it was after {HELP}")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_show(args, talk))


async def _show(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        run = await access.resolve(args.run)
        if args.json:
            give_json(await access.ask(TIMELINE_JSON, TimelineJsonQuery(at=args.at), run))
            return Exit.OK
        timeline = await access.ask(TIMELINE, TimelineQuery(at=args.at, everything=args.everything), run)
    give_text("\n".join(_Chart(timeline).lines()))
    return Exit.OK


class _Chart:
    def __init__(self, run: Timeline) -> None:
        self.run = run
        self.rows = rows = run.rows
        self.paint = Paint(sys.stdout)
        self.width = width_of(sys.stdout) or PIPE_WIDTH
        self.signs = _BLOCKS if _can_write(_BLOCKS) else _ASCII
        self.lasts = [short_span((row.ended_at or run.now) - row.started_at) for row in rows]
        self.states = [self._state(row) for row in rows]
        columns = max((len(text) for text in self.states), default=0) + max(
            (len(text) for text in self.lasts), default=0
        )
        longest = max((2 * row.depth + len(row.title) for row in rows), default=4)
        self.names = max(4, min(longest, self.width - columns - 8 - NARROWEST_BAR, self.width // 3))
        self.state = max((len(text) for text in self.states), default=0)
        self.last = max((len(text) for text in self.lasts), default=0)
        self.room = max(8, self.width - self.names - self.state - self.last - 6)
        self.length = max(1, run.now - run.started_at)

    def _state(self, row: TimelineRow) -> str:
        failed = sum(visit.status is VisitStatus.FAILED for visit in row.visits)
        if len(row.visits) > 1 and failed:
            return f"{failed} failed"
        attempts = f" x{row.attempts}" if row.attempts > len(row.visits) else ""
        return f"{row.status}{attempts}"

    def lines(self) -> list[str]:
        run = self.run
        lasted = f"{'lasted' if run.is_over else 'age'} {short_span(run.now - run.started_at)}"
        head = f"{run.name} ({run.language})  {status_words(run.status)}  {lasted}  since {local(run.started_at)}"
        lines = [cut(head, self.width)]
        if not self.rows:
            return [*lines, "nothing has started yet"]
        offset = self.names + self.state + self.last + 6
        lines.append(self.paint(" " * offset + self._scale(), "dim"))
        for item, state, last in zip(self.rows, self.states, self.lasts, strict=True):
            name = cut("  " * item.depth + item.title, self.names).ljust(self.names)
            colour = _COLOURS.get(str(item.status), "green")
            bar = self._bar(item)
            shown = self.paint(state.ljust(self.state), colour)
            lines.append(f"{name}  {shown}  {last.rjust(self.last)}  {self.paint(bar, colour)}".rstrip())
        signs = self.signs
        legend = f"{signs.work} work  {signs.wait} wait  {signs.failed} failed attempt  {signs.open} still open"
        return [*lines, self.paint(cut(legend, self.width), "dim")]

    def _scale(self) -> str:
        """The start, the middle and the end of the run."""
        end = short_span(self.length)
        middle = short_span(self.length // 2)
        half = self.room // 2
        if self.room < len(end) + len(middle) + 8:
            return "0" + end.rjust(self.room - 1)
        scale = "0".ljust(half - len(middle) // 2) + middle
        return scale + end.rjust(self.room - len(scale))

    def _place(self, at: Instant) -> int:
        return min(self.room - 1, max(0, (at - self.run.started_at) * self.room // self.length))

    def _bar(self, row: TimelineRow) -> str:
        """Work all along, unless waits and attempts are known; a sign for each, however short."""
        cells = [" "] * self.room
        if row.status is VisitStatus.SKIPPED:
            cells[self._place(row.started_at)] = self.signs.skipped
            return "".join(cells).rstrip()
        for visit in row.visits:
            is_failed = visit.status is VisitStatus.FAILED and not visit.attempts
            self._fill(cells, visit.started_at, visit.ended_at, self.signs.failed if is_failed else self.signs.work)
        for stretch in row.stretches:
            if stretch.is_wait:
                self._fill(cells, stretch.started_at, stretch.ended_at, self.signs.wait)
        for stretch in row.stretches:
            if not stretch.is_wait:
                sign = self.signs.failed if stretch.has_failed else self.signs.work
                self._fill(cells, stretch.started_at, stretch.ended_at, sign)
        if row.ended_at is None:
            cells[self._place(self.run.now)] = self.signs.open
        return "".join(cells).rstrip()

    def _fill(self, cells: list[str], start: Instant, end: Instant | None, sign: str) -> None:
        first, last = self._place(start), self._place(self.run.now if end is None else end)
        cells[first : last + 1] = sign * (last - first + 1)


def _can_write(signs: _Signs) -> bool:
    try:
        (signs.work + signs.wait + signs.failed + signs.open + signs.skipped).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
