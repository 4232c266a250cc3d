"""`status`: how a run stands, without what it has produced; for those who ask often (PBK-213)."""

import argparse
import sys

from perdure.cli import arguments as a
from perdure.cli.console import Console, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.outline import outline
from perdure.cli.stdout import give_json, give_text
from perdure.views.access import NoParameters
from perdure.views.runs.run_screen import STATUS

PIPE_WIDTH = 160

EXAMPLES = """\
examples:
  perdure status 06g2k
  perdure status 06g2k --json      status, current, pending, steps, failures, times, last_seq; never results

`perdure show` has everything, results too.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_status(args, talk))


async def _status(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        status = await access.ask(STATUS, NoParameters(), await access.resolve(args.run))
        if args.json:
            give_json(status)
        else:
            give_text("\n".join(outline(status, width_of(sys.stdout) or PIPE_WIDTH)))
        return Exit.OK
