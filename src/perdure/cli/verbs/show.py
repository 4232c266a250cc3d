"""`show`: one run on one screen, now or at a past event; with -o yaml or --json all that its language shows of it."""

import argparse
import sys

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, from_here, indented, width_of, wrapped
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import with_store
from perdure.cli.open_engine import open_access
from perdure.cli.progress import tasks_text
from perdure.cli.stdout import give_json, give_text
from perdure.cli.step_tree import step_lines
from perdure.views.administration.server_presence import TAKEN_UP
from perdure.views.resources.resource_list import resource_yaml
from perdure.views.runs.history_events import HELP
from perdure.views.runs.progress_events import status_words
from perdure.views.runs.run_screen import LONGEST_RESULT, PICTURE, SCREEN, RunScreen, ScreenQuery
from perdure.views.times import local, span

EXAMPLES = """\
examples:
  perdure show 06g2k                 an unambiguous prefix of the id is enough
  perdure show 06g2k --at 12         as it was after its twelfth event (see `perdure history`)
  perdure show 06g2k --at 2026-05-01T12:30 --checksum
  perdure show 06g2k -o yaml         all that its language shows of it
  perdure show 06g2k --json          the same shape as `perdure run --json`, also while the run is live
"""

LONGEST_ON_SCREEN = 400  # characters of a result; -o json has all of it
FORMS = ("json", "yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--at", metavar="MOMENT", help=f"show the run as it was after {HELP}")
    parser.add_argument("--checksum", action="store_true", help="also print a digest of its state")
    parser.add_argument(
        "-o", "--output", choices=FORMS, help="print all that its language shows of the run; json is the same as --json"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_show(args, talk))


async def _show(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        run = await access.resolve(args.run)
        query = ScreenQuery(at=args.at, checksum=args.checksum)
        if args.json or args.output is not None:
            picture = await access.ask(PICTURE, query, run)
            give_text(resource_yaml(picture).rstrip("\n")) if args.output == "yaml" and not args.json else give_json(
                picture
            )
            return Exit.OK
        page = Page(await access.ask(SCREEN, query, run), args)
        paint, width = Paint(sys.stdout), width_of(sys.stdout)
        lines = _aligned([(name, text) for name, text in page.lines() if text], paint)
        if page.screen.steps:
            is_live = page.screen.run_status.is_owned or args.at is not None
            steps = step_lines(page.screen.steps, page.screen.now, paint, width, is_live=is_live)
            lines += ["", paint("steps", "dim"), *steps]
        give_text("\n".join(lines))
        return Exit.OK


class Page:
    """What one screen says about a run, in the order in which people ask."""

    def __init__(self, screen: RunScreen, args: argparse.Namespace) -> None:
        self.screen = screen
        self._asked = args

    def lines(self) -> list[tuple[str, str]]:
        screen = self.screen
        longest = LONGEST_ON_SCREEN if sys.stdout.isatty() else LONGEST_RESULT
        return [
            *self._head(),
            *self._reason(),
            *(("pending", message.text) for message in screen.pending),
            *self._failure(),
            ("result", cut(screen.result, longest)),
            ("checksum", screen.checksum),
        ]

    def _head(self) -> list[tuple[str, str]]:
        screen, status = self.screen, self.screen.run_status
        row, is_over = status.row, status.status.is_final
        words = status_words(status.status)
        age = span(screen.now - status.started_at)
        started = f"{age} ago"
        if self._asked.at is not None:
            started = f"{age} before that"
        elif not is_over:
            owner = TAKEN_UP if screen.is_taken_up else "interrupted"
            words += ", owned by a live process" if status.is_owned else f", {owner}"
        lasted = "" if screen.ended_at is None else f", ended {local(screen.ended_at)}"
        took = span((screen.ended_at or screen.now) - status.started_at)
        return [
            ("run", row.id),
            ("document", f"{row.name} ({row.language})"),
            ("at", "" if self._asked.at is None else local(screen.now)),
            ("status", f"{words} after {took}" if is_over else words),
            ("started", f"{local(status.started_at)} ({started}){lasted}"),
            ("parent", row.parent or ""),
            ("labels", ", ".join(f"{name}={value}" for name, value in row.labels.items())),
            ("tasks", tasks_text(status)),
            ("life", str(screen.life) if screen.life > 1 else ""),
        ]

    def _reason(self) -> list[tuple[str, str]]:
        why = self.screen.why
        if why is None:
            return []
        commands = [with_store(self._asked, command) for command in why.commands]
        return [("why", why.sentence), ("do", "\n".join(commands))]

    def _failure(self) -> list[tuple[str, str]]:
        screen, place = self.screen, self.screen.failure
        if place is None:
            return [("error", screen.error), ("details", screen.details), ("reason", screen.reason)]
        failure, first = place.failure, place.step.first_failure
        lines = [f"{place.where}: {failure.text}"]
        lines += [f"at {from_here(frame)}" for frame in reversed(failure.frames)]
        if screen.place:
            lines.append(f"in {screen.place}")
        if place.next_try is not None and place.step.state.is_open:
            lines.append(f"next try in {span(place.next_try - screen.now)}")
        rows = [("error", "\n".join(lines))]
        rows.append(("details", cut(failure.details, LONGEST_ON_SCREEN)))
        if first is not None and first.text != failure.text:
            rows.append(("first", f"attempt {first.attempt}: {first.text}"))
        rows.append(("then", place.outcome))
        return rows


def _aligned(lines: list[tuple[str, str]], paint: Paint) -> list[str]:
    widest = max(len(name) for name, _ in lines)
    width = width_of(sys.stdout)
    return [
        f"{paint(name.ljust(widest), 'dim')}  {indented(wrapped(text, width, widest + 2), widest + 2)}"
        for name, text in lines
    ]
