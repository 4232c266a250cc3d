"""`history`: what was recorded of a run, one event per line, in event names of its language if that has any."""

import argparse
import os
import pkgutil
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, harmless_json, width_of
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.json_values import jsontext
from perdure.services import PACKET_RECORDINGS
from perdure.views.runs.history_events import event_json, event_name, is_in_language_terms
from perdure.views.times import local, read_instant

PIPE_WIDTH = 160  # a line for people stays a line for people in a pipe too; --full gives everything

SILENT = frozenset(
    {"program", "seed", "options", "labels", "max_deliveries", "grace", "hold_effects_in_doubt", "rank", "own_at"}
)
"""Fields that matter to the engine rather than to a reader; --full and --json have them."""

SILENT_IN_ENVELOPE = frozenset(
    {
        *("source", "entity_type", "entity_id", "token_id", "iteration_id", "task_run_id", "step_run_id"),
        *("schema_version", "parent_id", "lease_epoch", "worker_id"),
    }
)
"""The same in an envelope: what repeats other fields."""

HEAD = frozenset({"seq", "at", "event", "event_type", "event_id", "execution_id", "timestamp", "payload"})

FIRST = (
    *("step", "task", "iteration", "attempt", "name", "phase", "provider", "path", "status", "error", "outcome"),
    *("message", "failure", "content"),
)
"""Fields that come first, because a narrow terminal cuts the others."""

NOBODY = ("actor", "engine")  # no person did it

STORAGE = "PERDURE_STORAGE_DIR"

NARROW = 120  # columns; in fewer the date has a line of its own

INSTANTS = frozenset({"due", "deadline", "own_at", "arrived"})

EXAMPLES = """\
examples:
  perdure history 06g2k                 one line per event, cut to the terminal's width
  perdure history 06g2k --full          complete lines
  perdure history 06g2k --follow        also new events, until the run has ended
  perdure history 06g2k --json          a list of events; with --follow each is printed when it occurs
  perdure history 06g2k --type step.done --after 40
  perdure history 06g2k --raw           the events of the kernel, if the language has names of its own
  perdure history 06g2k --packets       recorded packets of a streaming Story

`perdure show RUN --at` and `perdure fork RUN --at` take these numbers. The numbers of --raw are different.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--follow", action="store_true", help="keep printing new events until the run has ended")
    parser.add_argument("--full", action="store_true", help="do not cut long lines")
    parser.add_argument("--after", metavar="SEQ", type=int, default=0, help="only events after this number")
    parser.add_argument(
        "--type", metavar="NAME", action="append", default=[], help="only events with this name; may be repeated"
    )
    parser.add_argument("--raw", action="store_true", help="print the kernel's events instead of the language's")
    parser.add_argument("--packets", action="store_true", help="print recorded packets of a streaming Story instead")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_history(args, talk))


async def _history(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as observer:
        run = await observer.resolve(args.run)
        if args.packets:
            _give_packets(await observer.show(run), args)
            return Exit.OK
        if args.follow:
            events = _named(observer.follow(run, args.after, raw=args.raw), args.type)
            await (_stream_json if args.json else _stream_lines)(events, args)
            return Exit.OK
        events_so_far = await observer.history(run, args.after, raw=args.raw)
        chosen = [event for event in events_so_far if not args.type or event_name(event) in args.type]
        if args.json:
            give_json([event_json(event) for event in chosen])
        elif chosen:
            show = EventLine(args.full)
            give_text("\n".join(show(event) for event in chosen))
        return Exit.OK


def _give_packets(shown: Any, args: argparse.Namespace) -> None:
    """Packets that a transport with `recording` has written to the storage folder."""
    if args.follow or args.raw or args.type or args.after:
        raise BadUsage("--packets cannot be combined with --follow, --raw, --type or --after")
    if not os.environ.get(STORAGE):
        raise BadUsage(f"{STORAGE} is not set", hint="It must name the folder where packets were recorded.")
    packets = pkgutil.resolve_name(PACKET_RECORDINGS)(shown)
    if args.json:
        give_json(packets)
        return
    room = None if args.full else width_of(sys.stdout) or PIPE_WIDTH
    for packet in packets:
        rest = {name: value for name, value in packet.items() if name not in ("step", "kind", "messageId", "timestamp")}
        at = local(packet["timestamp"] * 1_000, fine=True)
        line = f"{at}  {packet['step']:<16}  {packet['kind']:<6}  {packet['messageId']}"
        give_text(cut(f"{line}  {jsontext.encode(rest).decode()}", room))


async def _named(events: AsyncIterator[dict[str, Any]], names: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
    async for event in events:
        if not names or event_name(event) in names:
            yield event


async def _stream_lines(events: AsyncIterator[dict[str, Any]], args: argparse.Namespace) -> None:
    show = EventLine(args.full)
    async for event in events:
        give_text(show(event))


async def _stream_json(events: AsyncIterator[dict[str, Any]], args: argparse.Namespace) -> None:
    """One JSON list, whose items appear as they happen."""
    mark = "["
    async for event in events:
        sys.stdout.write(mark + harmless_json(jsontext.encode(event_json(event)).decode()))
        sys.stdout.flush()
        mark = ",\n"
    give_text("]" if mark != "[" else "[]")


class EventLine:
    """An event as a line: number, time, name, then the fields that tell something."""

    def __init__(self, is_full: bool) -> None:
        self._paint = Paint(sys.stdout)
        self._silent = frozenset[str]() if is_full else SILENT | SILENT_IN_ENVELOPE
        self._width = None if is_full else width_of(sys.stdout) or PIPE_WIDTH
        self._day = ""

    def __call__(self, event: dict[str, Any]) -> str:
        fields = _flat(event)
        day, _, time = local(fields["at"], fine=True).partition(" ")
        if self._width is None or self._width >= NARROW:
            return self._line(f"{event['seq']:>5}  {day} {time}  {fields['event']:<22}", fields)
        line = self._line(f"{event['seq']:>4}  {time}  {fields['event']:<18}", fields)
        if day == self._day:
            return line
        self._day = day
        return f"{self._paint(day, 'dim')}\n{line}"

    def _value(self, name: str, value: Any) -> str:
        if self._width is not None and isinstance(value, dict) and (failure := _failure_in(value)):
            return failure
        return _short(name, value)

    def _line(self, head: str, fields: dict[str, Any]) -> str:
        first = [name for name in FIRST if name in fields]
        first.sort(key=lambda name: name != "step" and not _is_failure(name, fields[name]))
        fields = {name: fields[name] for name in first} | fields
        text = "  ".join(
            f"{name}={self._value(name, value)}"
            for name, value in fields.items()
            if name not in HEAD and name not in self._silent and value not in (None, "", {}, [])
            if self._width is None or (name, value) != NOBODY
        )
        room = None if self._width is None else max(20, self._width - len(head) - 2)
        return f"{head}  {self._paint(cut(text, room), 'dim')}".rstrip()


def _flat(event: dict[str, Any]) -> dict[str, Any]:
    """An event whose payload stands beside its envelope's fields."""
    if not is_in_language_terms(event):
        return event if isinstance(event["at"], int) else {**event, "at": read_instant(event["at"], 0)}
    status = {} if event.get("status") in (None, "in_progress") else {"status": event["status"]}
    fields = {name: value for name, value in event.items() if name not in ("status", "payload")}
    return {
        **fields,
        **status,
        **event.get("payload", {}),
        "at": read_instant(event["timestamp"], 0),
        "event": event["event_type"],
    }


def _is_failure(name: str, value: Any) -> bool:
    return name == "error" or (isinstance(value, dict) and bool(_failure_in(value)))


def _failure_in(value: dict[str, Any]) -> str:
    """The code and message of a failure, which a narrow line would cut behind what is always the same."""
    links = value.get("links")
    nested = links[0] if isinstance(links, list) and links else value.get("error")
    failure = nested if isinstance(nested, dict) else value
    if not isinstance(failure.get("message"), str):
        return ""
    code = failure.get("code") or failure.get("kind")
    return f"{failure['message']} ({code})" if code else failure["message"]


def _short(name: str, value: Any) -> str:
    if name in INSTANTS and isinstance(value, int):  # a language may tell its times as texts
        return local(value, fine=True)
    return value if isinstance(value, str) else jsontext.encode(value).decode()
