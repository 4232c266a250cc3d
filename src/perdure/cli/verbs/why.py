"""`why`: why a run, or one of its steps, stands as it does, as a chain of recorded events back to the first cause."""

import argparse
import sys

from perdure.cli import arguments as a
from perdure.cli.console import Console, indented, width_of, wrapped
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import with_store
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.views.runs.run_causes import CAUSES, CauseQuery
from perdure.views.times import local, read_instant

EXAMPLES = """\
examples:
  perdure why 06g2k                  why it waits, or why it failed: the first cause comes last
  perdure why 06g2k charge           why this step is in its status
  perdure why 06g2k charge --field input.amount
                                     where this value came from: expressions, inputs, results
  perdure why 06g2k --field total    the same for the result of the run
  perdure why 06g2k --json           {"chain": [{"seq", "at", "text"}], "commands": []}

Each line but the first names an event of `perdure history`, by its number.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument(
        "step", metavar="STEP", nargs="?", help="a step of the run; `block/step` if the name is not unique"
    )
    parser.add_argument(
        "--field", metavar="PATH", help="why this value: a part of `input` or `output` of the step, or of the run"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_explain(args, talk))


async def _explain(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        causes = await access.ask(CAUSES, CauseQuery(args.step, args.field), await access.resolve(args.run))
        if args.json:
            give_json(causes)
            return Exit.OK
        chain = causes["chain"]
        numbers = max(len(str(link["seq"])) for link in chain)
        lines, width = [], width_of(sys.stdout)
        for link in chain:
            head = f"{link['seq']:>{numbers}}  {local(read_instant(link['at'], 0))}  {'  ' * link.get('depth', 0)}"
            lines.append(head + indented(wrapped(link["text"], width, len(head)), len(head)))
        give_text("\n".join(lines))
        for command in causes["commands"]:
            talk.say(f"do: {with_store(args, command)}")
        return Exit.OK
