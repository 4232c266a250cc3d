"""`show`: one run on one screen, now or at a past event; with -o yaml or --json all that its language shows of it."""

import argparse
import sys

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, cut, from_here, indented, width_of, wrapped
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import with_store
from perdure.cli.open_engine import open_observer
from perdure.cli.progress import tasks_text
from perdure.cli.stdout import give_json, give_text
from perdure.cli.step_tree import step_lines
from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.engine.dry_run import Pending
from perdure.kernel import jsontext
from perdure.kernel.execution import Execution
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.step_overview import StepOverview
from perdure.views.history_events import HELP, event_at
from perdure.views.progress_events import outcome_text, status_words
from perdure.views.resource_list import resource_yaml
from perdure.views.run_details import run_at, show_json
from perdure.views.run_overview import explain, first_failure_of, spell_place, steps_of
from perdure.views.run_status import RunStatus, status_of_execution
from perdure.views.server_presence import TAKEN_UP, is_served
from perdure.views.times import local, span

EXAMPLES = """\
examples:
  perdure show 06g2k                 an unambiguous prefix of the id is enough
  perdure show 06g2k --at 12         as it was after its twelfth event (see `perdure history`)
  perdure show 06g2k --at 2026-05-01T12:30 --checksum
  perdure show 06g2k -o yaml         all that its language shows of it
  perdure show 06g2k --json          the same shape as `perdure run --json`, also while the run is live
"""

LONGEST = 2_000  # characters of a result; -o json has all of it
LONGEST_ON_SCREEN = 400
FORMS = ("json", "yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--at", metavar="MOMENT", help=f"show the run as it was after {HELP}")
    parser.add_argument("--checksum", action="store_true", help="also print a digest of its state")
    parser.add_argument(
        "-o", "--output", choices=FORMS, help="print all that its language shows of the run; json is the same as --json"
    )


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_show(asked, talk))


async def _show(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        at = None if asked.at is None else await event_at(observer, run, asked.at)
        row, execution, pending = await run_at(observer, run, at)
        if asked.json or asked.output is not None:
            picture = await show_json(observer, execution, pending, checksum=asked.checksum)
            give_text(resource_yaml(picture).rstrip("\n")) if asked.output == "yaml" and not asked.json else give_json(
                picture
            )
            return Exit.OK
        stand = await status_of_execution(observer, row, execution)
        is_taken_up = not (stand.status.is_final or stand.is_owned) and await is_served(observer)
        steps = await steps_of(observer, execution, at)
        page = Page(observer, stand, execution, steps, asked)
        head = await page.head(is_taken_up)
        if at is None:
            head += page.reason(pending, is_taken_up)
        head += [("pending", message.text) for message in pending]
        head += await page.failure()
        head += await page.result()
        if asked.checksum:
            head.append(("checksum", run_views.checksum(execution)))
        mask = await run_views.mask_of(observer.store, execution)
        paint, width = Paint(sys.stdout), width_of(sys.stdout)
        lines = _aligned([(name, mask.text(text)) for name, text in head if text], paint)
        if steps:
            lines += ["", paint("steps", "dim"), *map(mask.text, step_lines(steps, page.now, paint, width))]
        give_text("\n".join(lines))
        return Exit.OK


class Page:
    """What one screen says about a run, in the order in which people ask."""

    def __init__(
        self,
        client: Client,
        stand: RunStatus,
        execution: Execution,
        steps: list[StepOverview],
        asked: argparse.Namespace,
    ) -> None:
        self.now = client.clock.now()
        self._client = client
        self._stand = stand
        self._execution = execution
        self._steps = steps
        self._asked = asked

    async def head(self, is_taken_up: bool) -> list[tuple[str, str]]:
        row, state = self._stand.row, self._execution.state
        status = status_words(self._stand.status)
        if not state.status.is_final:
            owner = TAKEN_UP if is_taken_up else "interrupted"
            status += ", owned by a live process" if self._stand.is_owned else f", {owner}"
        age = self.now - state.started_at
        lasted = "" if state.ended_at is None else f", ended {local(state.ended_at)}"
        took = span((state.ended_at or self.now) - state.started_at)
        return [
            ("run", row.id),
            ("document", f"{row.name} ({row.language})"),
            ("status", f"{status} after {took}" if state.status.is_final else status),
            ("started", f"{local(state.started_at)} ({span(age)} ago){lasted}"),
            ("parent", row.parent or ""),
            ("labels", ", ".join(f"{name}={value}" for name, value in row.labels.items())),
            ("tasks", tasks_text(self._stand)),
            ("life", str(state.incarnation) if state.incarnation > 1 else ""),
        ]

    def reason(self, pending: list[Pending], is_taken_up: bool) -> list[tuple[str, str]]:
        found = explain(self._stand, self._execution, self._steps, pending, self.now, is_served=is_taken_up)
        if found is None:
            return []
        commands = [with_store(self._asked, command) for command in found.commands]
        return [("why", found.sentence), ("do", "\n".join(commands))]

    async def failure(self) -> list[tuple[str, str]]:
        place = await first_failure_of(self._client, self._execution, self._steps)
        if place is None:
            return self._outcome()
        failure, first = place.failure, place.step.first_failure
        lines = [f"{place.where}: {failure.text}"]
        lines += [f"at {from_here(frame)}" for frame in reversed(failure.frames)]
        if document := spell_place(place):
            lines.append(f"in {document}")
        if place.next_try is not None and place.step.state.is_open:
            lines.append(f"next try in {span(place.next_try - self.now)}")
        said = [("error", "\n".join(lines))]
        said.append(("details", cut(failure.details, LONGEST_ON_SCREEN)))
        if first is not None and first.text != failure.text:
            said.append(("first", f"attempt {first.attempt}: {first.text}"))
        said.append(("then", place.outcome))
        return said

    def _outcome(self) -> list[tuple[str, str]]:
        match self._execution.state.outcome:
            case Failed(_, _, _, details) as failed:
                shown = "" if details is None else jsontext.encode(jsontext.decode(details)).decode()
                return [("error", outcome_text(failed)), ("details", shown)]
            case Cancelled() as cancelled:
                return [("reason", outcome_text(cancelled))]
            case _:
                return []

    async def result(self) -> list[tuple[str, str]]:
        match self._execution.state.outcome:
            case Succeeded(value):
                text = (await self._client.text(self._stand.row.id, value)).decode()
                return [("result", cut(text, LONGEST_ON_SCREEN if sys.stdout.isatty() else LONGEST))]
            case _:
                return []


def _aligned(lines: list[tuple[str, str]], paint: Paint) -> list[str]:
    widest = max(len(name) for name, _ in lines)
    width = width_of(sys.stdout)
    return [
        f"{paint(name.ljust(widest), 'dim')}  {indented(wrapped(text, width, widest + 2), widest + 2)}"
        for name, text in lines
    ]
