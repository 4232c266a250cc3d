"""`history`: what was recorded of a run, one event per line, in event names of its language if that has any."""

import argparse
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, harmless_json, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.stdout import give_json, give_text
from perdure.kernel import jsontext
from perdure.views.times import iso, local, read_instant

PIPE_WIDTH = 160  # a line for people stays a line for people in a pipe too; --full gives everything

SILENT = frozenset(
    {"program", "seed", "options", "labels", "max_deliveries", "grace", "hold_effects_in_doubt", "rank", "own_at"}
)
"""Fields that matter to the engine rather than to a reader; --full and --json have them."""

SILENT_TOLD = frozenset(
    {"source", "entity_type", "entity_id", "token_id", "iteration_id", "task_run_id", "step_run_id"}
)
"""The same in an envelope: what repeats other fields."""

HEAD = frozenset({"seq", "at", "event", "event_type", "event_id", "execution_id", "timestamp", "payload"})

INSTANTS = frozenset({"due", "deadline", "own_at", "arrived"})

EXAMPLES = """\
examples:
  perdure history 06g2k                 one line per event, cut to the terminal's width
  perdure history 06g2k --full          nothing cut
  perdure history 06g2k --follow        and what still comes, until the run has ended
  perdure history 06g2k --json          a list of events; with --follow its items are written as they come
  perdure history 06g2k --type step.done --after 40
  perdure history 06g2k --raw           the kernel's own events, where the language has names of its own

The numbers are those that `perdure show RUN --at` and `perdure fork RUN --at` take; --raw has others.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--full", action="store_true", help="cut nothing")
    parser.add_argument("--after", metavar="SEQ", type=int, default=0, help="only what came after this event")
    parser.add_argument(
        "--type", metavar="NAME", action="append", default=[], help="only events of this name; may be repeated"
    )
    parser.add_argument("--raw", action="store_true", help="the kernel's events instead of the language's")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_history(asked, talk))


async def _history(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        if asked.follow:
            events = _wanted(observer.follow(run, asked.after, raw=asked.raw), asked.type)
            await (_stream_json if asked.json else _stream_lines)(events, asked)
            return Exit.OK
        found = await observer.history(run, asked.after, raw=asked.raw)
        chosen = [event for event in found if not asked.type or name_of(event) in asked.type]
        if asked.json:
            give_json([_plain(event) for event in chosen])
        elif chosen:
            show = EventLine(asked.full)
            give_text("\n".join(show(event) for event in chosen))
        return Exit.OK


async def _wanted(events: AsyncIterator[dict[str, Any]], names: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
    async for event in events:
        if not names or name_of(event) in names:
            yield event


async def _stream_lines(events: AsyncIterator[dict[str, Any]], asked: argparse.Namespace) -> None:
    show = EventLine(asked.full)
    async for event in events:
        give_text(show(event))


async def _stream_json(events: AsyncIterator[dict[str, Any]], asked: argparse.Namespace) -> None:
    """One JSON list, whose items appear as they happen."""
    mark = "["
    async for event in events:
        sys.stdout.write(mark + harmless_json(jsontext.encode(_plain(event)).decode()))
        sys.stdout.flush()
        mark = ",\n"
    give_text("]" if mark != "[" else "[]")


def is_told(event: dict[str, Any]) -> bool:
    """Whether it is in the language's own words, which are JSON data already."""
    return "event_type" in event


def name_of(event: dict[str, Any]) -> str:
    return str(event["event_type"] if is_told(event) else event["event"])


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    return event if is_told(event) else {**event, "at": iso(event["at"])}


class EventLine:
    """An event as a line: number, time, name, then the fields that tell something."""

    def __init__(self, is_full: bool) -> None:
        self._paint = Paint(sys.stdout)
        self._silent = frozenset[str]() if is_full else SILENT | SILENT_TOLD
        self._width = None if is_full else width_of(sys.stdout) or PIPE_WIDTH

    def __call__(self, event: dict[str, Any]) -> str:
        told = _flat(event)
        head = f"{event['seq']:>5}  {local(told['at'], fine=True)}  {told['event']:<22}"
        text = "  ".join(
            f"{name}={_short(name, value)}"
            for name, value in told.items()
            if name not in HEAD and name not in self._silent and value not in (None, "", {}, [])
        )
        room = None if self._width is None else max(20, self._width - len(head) - 2)
        return f"{head}  {self._paint(cut(text, room), 'dim')}".rstrip()


def _flat(event: dict[str, Any]) -> dict[str, Any]:
    """An event whose payload stands beside its envelope's fields."""
    if not is_told(event):
        return event
    status = {} if event.get("status") in (None, "in_progress") else {"status": event["status"]}
    fields = {name: value for name, value in event.items() if name not in ("status", "payload")}
    return {
        **fields,
        **status,
        **event.get("payload", {}),
        "at": read_instant(event["timestamp"], 0),
        "event": event["event_type"],
    }


def _short(name: str, value: Any) -> str:
    if name in INSTANTS and isinstance(value, int):  # a language may tell its times as texts
        return local(value, fine=True)
    return value if isinstance(value, str) else jsontext.encode(value).decode()
