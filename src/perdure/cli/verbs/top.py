"""`top`: a live screen of all runs: statuses, rates, owners, what is at work and what is waited for.

With a run, a screen of its topology: what flows through each step of a streaming Story.
"""

import argparse
import asyncio
import os
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, harmless, is_terminal, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.engine.clock import SystemClock
from perdure.kernel.json_values.values import SECOND
from perdure.views.access import Access, StoreAccess
from perdure.views.runs.live_overview import MOST_LISTED, LiveOverview, RemoteOverview, TopologyOverview
from perdure.views.runs.progress_events import status_words
from perdure.views.times import span
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure top                        a live screen, updated every second; q leaves it
  perdure top --every 5s
  perdure top --once                 once, as text; this is the default in a pipe
  perdure top --json                 once, for programs
  perdure top 06g2k                  the steps of a streaming Story: rates, lag, what waits, what was dropped

Open runs are listed, the latest first, and some that failed last. Rates are per second since the last look. A single
look at a topology takes the time of --every, because it has rates, too.
"""

COLUMNS = (
    Column("ID"),
    Column("LANGUAGE", may_go=True),
    Column("NAME", may_shrink=True),
    Column("STATUS"),
    Column("AGE"),
    Column("OWNER"),
    Column("WHY", may_shrink=True),
)

_STYLES = {"failed": "red", "timed_out": "red", "running": "cyan", "waiting": "cyan", "paused": "yellow"}

ENTER = "\x1b[?1049h\x1b[?25l"  # a screen of its own, without a cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
LEAVING_KEYS = frozenset(b"qQ\x1b")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN", nargs="?", help="show the topology of this run: a streaming Story")
    parser.add_argument("--once", action="store_true", help="print the screen once as text, and exit")
    parser.add_argument(
        "--every", metavar="DURATION", type=a.duration, default=SECOND, help="time between two updates (default: 1s)"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_top(args, talk))


async def _top(args: argparse.Namespace, talk: Console) -> int:
    every = max(args.every, SECOND // 10) / SECOND
    is_screen = not args.json and not args.once and is_terminal(sys.stdout) and sys.stdin.isatty()
    async with open_access(args, talk) as access:
        lines: Callable[[dict[str, Any], int | None], list[str]]
        if args.run is not None:
            topology = TopologyOverview(access, await access.resolve(args.run), SystemClock())
            lines = topology_lines
            if not is_screen:
                await topology.read()
                await asyncio.sleep(every)

            async def read(limit: int) -> dict[str, Any]:
                return await topology.read()
        else:
            read, lines = _overview(access, args).read, _lines
        if args.json:
            give_json(await read(MOST_LISTED))
        elif not is_screen:
            give_text("\n".join(lines(await read(MOST_LISTED), width_of(sys.stdout))))
        else:
            await _live(read, lines, every)
        return Exit.OK


def _overview(access: Access, args: argparse.Namespace) -> LiveOverview | RemoteOverview:
    if isinstance(access, StoreAccess):
        return LiveOverview(access.client, open_admin(args.db, SystemClock()))
    return RemoteOverview(lambda limit: access.overview(limit))


async def _live(
    read: Callable[[int], Awaitable[dict[str, Any]]],
    lines_of: Callable[[dict[str, Any], int | None], list[str]],
    every: float,
) -> None:
    leaving = asyncio.Event()
    with _own_screen(leaving):
        while not leaving.is_set():
            size = os.get_terminal_size(sys.stdout.fileno())
            frame = await read(max(1, size.lines - 8))
            lines = lines_of(frame, size.columns)[: size.lines - 1]
            sys.stdout.write("\x1b[H" + "".join(f"{harmless(line)}\x1b[K\r\n" for line in lines) + "\x1b[J")
            sys.stdout.flush()
            try:
                async with asyncio.timeout(every):
                    await leaving.wait()
            except TimeoutError:
                pass


@contextmanager
def _own_screen(leaving: asyncio.Event) -> Iterator[None]:
    """The terminal is as it was afterwards, however this ends."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(keyboard, 64)
        if not keys or LEAVING_KEYS.intersection(keys):
            leaving.set()

    tty.setcbreak(keyboard)  # Ctrl-C stays a signal
    loop.add_reader(keyboard, pressed)
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _lines(frame: dict[str, Any], width: int | None) -> list[str]:
    paint = Paint(sys.stdout)
    runs = frame["runs"]
    counts = ", ".join(f"{count} {status_words(status)}" for status, count in runs.items() if count) or "none"
    rates = frame["rates"]
    head = [
        ("store", frame["store"]),
        ("runs", counts),
        ("rates", "" if rates is None else f"{rates['started']:.1f} started, {rates['ended']:.1f} ended per second"),
        ("tasks", _counted(frame["tasks"])),
        ("waits", _counted(frame["waiting"])),
        ("owners", _owners(frame["owners"])),
    ]
    lines = [f"{paint(name.ljust(6), 'dim')}  {cut(text, width and width - 8)}" for name, text in head if text]
    if frame["list"]:
        lines += ["", *table(COLUMNS, [_cells(run, width) for run in frame["list"]])]
    if frame["unlisted"]:
        lines.append(f"and {frame['unlisted']} more open runs")
    return lines


STREAM_COLUMNS = (
    Column("STEP"),
    Column("STATE"),
    Column("IN/S"),
    Column("OUT/S"),
    Column("WAITING"),
    Column("FILL"),
    Column("UNACKED", may_go=True),
    Column("LAG"),
    Column("ERRORS", may_go=True),
    Column("DROPPED", may_shrink=True),
)


def topology_lines(frame: dict[str, Any], width: int | None) -> list[str]:
    paint = Paint(sys.stdout)
    head = f"{paint('topology', 'dim')}  {frame['name']}  {frame['phase']}"
    return [cut(head, width), "", *table(STREAM_COLUMNS, [_stream_cells(step) for step in frame["steps"]])]


def _stream_cells(step: dict[str, Any]) -> list[tuple[str, str]]:
    rates = step["rates"] or {"in": 0.0, "out": 0.0}
    state = "paused" if step["paused"] else step["state"]
    dropped = ", ".join(f"{count} {reason}" for reason, count in step["dropped"].items())
    lag = step["lag_seconds"]
    return [
        (step["step"], ""),
        (state, "yellow" if step["paused"] else "cyan" if state == "ready" else ""),
        (f"{rates['in']:.1f}", ""),
        (f"{rates['out']:.1f}", ""),
        (str(step["waiting"]), ""),
        (f"{step['fill']} %", ""),
        (str(step["unacked"]), ""),
        ("-" if lag is None else f"{lag:.1f} s", ""),
        (str(step["errors"]), "red" if step["errors"] else ""),
        (dropped or "-", "red" if dropped else ""),
    ]


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _owners(owners: list[dict[str, Any]]) -> str:
    live = [owner["name"] for owner in owners if owner["live"]]
    dead = len(owners) - len(live)
    return ", ".join([*live, *([f"{dead} dead"] if dead else [])]) or "none: no engine is running"


def _cells(run: dict[str, Any], width: int | None) -> list[tuple[str, str]]:
    status = str(run["status"])
    is_over = status in ("failed", "timed_out")
    owner = "-" if is_over else "live" if run["live"] else "interrupted"
    return [
        (run["id"] if width is None or width >= 120 else run["short_id"], ""),
        (run["language"], ""),
        (run["name"], ""),
        (status_words(status), _STYLES.get(status, "")),
        (span(int(run["age_seconds"] * SECOND)), ""),
        (owner, "green" if run["live"] else "dim" if is_over else "yellow"),
        (run["why"], ""),
    ]
