"""`show`: one run, now or at a past event; for people in the kernel's words, with --json in its language's own."""

import argparse
import sys
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, indented, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_observer
from perdure.cli.outline import outline
from perdure.cli.progress import tasks_text
from perdure.cli.server_presence import TAKEN_UP, is_served
from perdure.cli.stdout import give_json, give_text
from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.kernel import jsontext
from perdure.kernel.execution import Execution
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.views.event_positions import HELP, event_at
from perdure.views.progress_events import outcome_text, status_words
from perdure.views.run_details import run_at, show_json
from perdure.views.run_status import RunStatus, status_of_execution
from perdure.views.times import local, span

EXAMPLES = """\
examples:
  perdure show 06g2k                 an unambiguous beginning of the id is enough
  perdure show 06g2k --at 12         as it was after its twelfth event (see `perdure history`)
  perdure show 06g2k --at 2026-05-01T12:30 --checksum
  perdure show 06g2k --json          the same shape as `perdure run --json`, also while the run is live
"""

PIPE_WIDTH = 160
LONGEST = 2_000  # characters of a result; --json has all of it

SAID = frozenset(
    {"id", "language", "name", "status", "outcome", "open", "tasks", "type", "value", "code", "message", "details"}
)
"""Members of a picture that the head has said already."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--at", metavar="MOMENT", help=f"as it was after {HELP}")
    parser.add_argument("--checksum", action="store_true", help="also a digest of its state")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_show(asked, talk))


async def _show(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        at = None if asked.at is None else await event_at(observer, run, asked.at)
        row, execution, pending = await run_at(observer, run, at)
        if asked.json:
            give_json(await show_json(observer, execution, pending, checksum=asked.checksum))
            return Exit.OK
        stand = await status_of_execution(observer, row, execution)
        picture = await run_views.show(observer.store, execution)
        waits_for_owner = not (stand.status.is_final or stand.is_owned)
        is_taken_up = waits_for_owner and await is_served(observer)
        owner = TAKEN_UP if is_taken_up else "interrupted" if waits_for_owner else "owned by a live process"
        head = await _head(observer, stand, execution, owner)
        head += [("pending", one.text) for one in pending]
        if asked.checksum:
            head.append(("checksum", run_views.checksum(execution)))
        give_text("\n".join([*_aligned(head, Paint(sys.stdout)), *_rest(picture)]))
        if waits_for_owner and not is_taken_up and asked.at is None:
            talk.say(f"no live process owns it; resume it with: {resume_command(asked, run)}")
        return Exit.OK


async def _head(client: Client, stand: RunStatus, execution: Execution, owner: str) -> list[tuple[str, str]]:
    row, state, now = stand.row, execution.state, client.clock.now()
    mask = await run_views.mask_of(client.store, execution)
    is_over = state.status.is_final
    lines = [
        ("run", row.id),
        ("document", f"{row.name} ({row.language})"),
        ("status", status_words(stand.status) if is_over else f"{status_words(stand.status)}, {owner}"),
        ("started", local(state.started_at)),
        ("ended", local(state.ended_at) if state.ended_at else ""),
        ("lasted" if is_over else "age", span((state.ended_at or now) - state.started_at)),
        ("parent", row.parent or ""),
        ("labels", ", ".join(f"{name}={value}" for name, value in row.labels.items())),
        ("tasks", tasks_text(stand)),
        ("life", str(state.incarnation) if state.incarnation > 1 else ""),
        ("stuck", row.stuck or ""),
        *(("waits for", wait.text(now)) for wait in stand.waits),
    ]
    match state.outcome:
        case Succeeded(value):
            lines.append(("result", cut(mask.json(await client.text(row.id, value)).decode(), LONGEST)))
        case Failed(_, _, _, details) as failed:
            lines.append(("error", outcome_text(failed)))
            lines.append(("details", "" if details is None else jsontext.encode(jsontext.decode(details)).decode()))
        case None:
            pass
        case cancelled:
            lines.append(("reason", outcome_text(cancelled)))
    return [(name, mask.text(text)) for name, text in lines if text]


def _aligned(lines: list[tuple[str, str]], paint: Paint) -> list[str]:
    widest = max(len(name) for name, _ in lines)
    return [f"{paint(name.ljust(widest), 'dim')}  {indented(text, widest + 2)}" for name, text in lines]


def _is_map(picture: Any) -> bool:
    return isinstance(picture, dict)


def _is_said(name: str, value: Any) -> bool:
    """A resource's status is more than the word in the head."""
    return name in SAID and not (name == "status" and _is_map(value))


def _rest(picture: Any) -> list[str]:
    rest = {name: value for name, value in picture.items() if not _is_said(name, value)} if _is_map(picture) else {}
    return ["", *outline(rest, width_of(sys.stdout) or PIPE_WIDTH)] if any(rest.values()) else []
