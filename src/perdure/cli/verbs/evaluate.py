"""`evaluate`: the value of an expression, as a step of a run would read it."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json
from perdure.views.runs.history_events import HELP

EXAMPLES = """\
examples:
  perdure evaluate 06g2k charge 'vars.total * 2'          a Flow: CEL, with or without {{ }}
  perdure evaluate 06g2k charge '{{ inputs.name | upper }}'   a Story: a Go template
  perdure evaluate 06g2k charge 'ctx.rows | length'       a Playbook: Jinja
  perdure evaluate 06g2k charge 'vars' --at 12            as it was after the twelfth event

Nothing is decided or stored. Without --at, a step that has ended is read as it was at its last event.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("step", metavar="STEP", help="a step of the run; `block/step` if the name is not unique")
    parser.add_argument("expression", metavar="EXPRESSION", help="in the language of the run")
    parser.add_argument("--at", metavar="MOMENT", help=f"as it was after {HELP}")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_evaluate(args, talk))


async def _evaluate(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        run = await access.resolve(args.run)
        answer = await access.evaluate(run, args.step, args.expression, args.at)
    give_json(answer if args.json else answer["value"])
    return Exit.OK
