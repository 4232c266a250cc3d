"""`history`: everything that was recorded of a run, one event per line."""

import argparse
import sys
from collections.abc import AsyncIterator
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.answer import give_json, give_text
from perdure.cli.exits import Exit
from perdure.cli.interruption import complete
from perdure.cli.opening import open_observer
from perdure.cli.talk import Paint, Talk, cut, width_of
from perdure.cli.times import iso, local
from perdure.kernel import jsontext

PIPE_WIDTH = 160  # a line for people stays a line for people in a pipe too; --full gives everything

SILENT = frozenset({"program", "seed", "options", "labels", "max_deliveries", "grace", "hold_effects_in_doubt", "rank"})
"""Fields that matter to the engine rather than to a reader; --full and --json have them."""

INSTANTS = frozenset({"due", "deadline"})

EXAMPLES = """\
examples:
  perdure history 06g2k                 one line per event, cut to the terminal's width
  perdure history 06g2k --full          nothing cut
  perdure history 06g2k --follow        and what still comes, until the run has ended
  perdure history 06g2k --json          a list of events; with --follow its items are written as they come
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--full", action="store_true", help="cut nothing")


def perform(asked: argparse.Namespace, talk: Talk) -> int:
    return complete(_history(asked, talk))


async def _history(asked: argparse.Namespace, talk: Talk) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        if asked.follow:
            await (_stream_json if asked.json else _stream_lines)(observer.follow(run), asked)
        elif asked.json:
            give_json([_plain(event) for event in await observer.history(run)])
        else:
            show = _Line(asked.full)
            give_text("\n".join(show(event) for event in await observer.history(run)))
        return Exit.OK


async def _stream_lines(events: AsyncIterator[dict[str, Any]], asked: argparse.Namespace) -> None:
    show = _Line(asked.full)
    async for event in events:
        give_text(show(event))


async def _stream_json(events: AsyncIterator[dict[str, Any]], asked: argparse.Namespace) -> None:
    """One JSON list, whose items appear as they happen."""
    mark = "["
    async for event in events:
        sys.stdout.write(mark + jsontext.encode(_plain(event)).decode())
        sys.stdout.flush()
        mark = ",\n"
    give_text("]")


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "at": iso(event["at"])}


class _Line:
    """An event as a line: number, time, name, then the fields that tell something."""

    def __init__(self, is_full: bool) -> None:
        self._paint = Paint(sys.stdout)
        self._silent = frozenset[str]() if is_full else SILENT
        self._width = None if is_full else width_of(sys.stdout) or PIPE_WIDTH

    def __call__(self, event: dict[str, Any]) -> str:
        head = f"{event['seq']:>5}  {local(event['at'], fine=True)}  {event['event']:<20}"
        hidden = {"seq", "at", "event", *self._silent}
        text = "  ".join(
            f"{name}={_short(name, value)}"
            for name, value in event.items()
            if name not in hidden and value not in (None, "", {}, [])
        )
        room = None if self._width is None else max(20, self._width - len(head) - 2)
        return f"{head}  {self._paint(cut(text, room), 'dim')}".rstrip()


def _short(name: str, value: Any) -> str:
    if name in INSTANTS:
        return local(value, fine=True)
    return value if isinstance(value, str) else jsontext.encode(value).decode()
