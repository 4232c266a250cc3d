"""`logs`: what the tasks of a run printed and logged."""

import argparse
import sys
from collections.abc import AsyncIterator, Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, harmless_json
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.json_values import jsontext
from perdure.views.runs.log_reader import TaskLine
from perdure.views.runs.progress_events import spell_step
from perdure.views.times import local

EXAMPLES = """\
examples:
  perdure logs 06g2k                 every line, in the order in which they were written
  perdure logs 06g2k charge          only of step 'charge'
  perdure logs 06g2k -f              also new lines, until the run has ended
  perdure logs 06g2k --json          a list of lines; with -f each is printed when it is written

Lines are what functions print, log (context.log, Python's logging) and commands write to stdout and stderr. 1 MiB of
an attempt and 16 MiB of a run are kept; secrets are masked. Lines appear within a second or two.
"""

_STYLES = {"warning": "yellow", "error": "red", "critical": "red", "debug": "dim"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("step", metavar="STEP", nargs="?", help="only lines of this step, or of the task at this path")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines until the run has ended")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_logs(args, talk))


async def _logs(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        log_lines = access.log_lines(await access.resolve(args.run), args.step, follow=args.follow)
        if args.follow:
            await (_stream_json if args.json else _stream_lines)(log_lines)
            return Exit.OK
        lines = [line async for line in log_lines]
        if args.json:
            give_json([line.plain() for line in lines])
        elif lines:
            give_text("\n".join(map(LineFormat(lines), lines)))
        else:
            talk.say(f"the tasks of this run{f' in step {args.step!r}' if args.step else ''} have written nothing")
        return Exit.OK


async def _stream_lines(lines: AsyncIterator[TaskLine]) -> None:
    show = LineFormat()
    async for line in lines:
        give_text(show(line))


async def _stream_json(lines: AsyncIterator[TaskLine]) -> None:
    """One JSON list, whose items appear as they are written; as `history --follow --json`."""
    mark = "["
    async for line in lines:
        sys.stdout.write(mark + harmless_json(jsontext.encode(line.plain()).decode()))
        sys.stdout.flush()
        mark = ",\n"
    give_text("]" if mark != "[" else "[]")


class LineFormat:
    """Time, step with its attempt, and the text, which is never cut."""

    def __init__(self, lines: Sequence[TaskLine] = ()) -> None:
        self._paint = Paint(sys.stdout)
        self._width = max((len(_source(line)) for line in lines), default=0)

    def __call__(self, line: TaskLine) -> str:
        source = _source(line)
        self._width = min(40, max(self._width, len(source)))
        time = local(line.line.at, fine=True).partition(" ")[2]
        level = line.line.level
        text = line.line.text if level == "info" else f"{level}: {line.line.text}"
        fields = {name: value for name, value in line.line.fields.items() if name != "logger"}
        extra = f"  {jsontext.encode(fields).decode()}" if fields else ""
        head = self._paint(f"{time}  {source.ljust(self._width)}", "dim")
        return f"{head}  {self._paint(text, _STYLES.get(level, ''))}{self._paint(extra, 'dim')}"


def _source(line: TaskLine) -> str:
    counts = "" if line.attempt <= 1 else f" #{line.attempt}"
    return f"{spell_step(line.path)}{counts}"
