"""`result get`: the body behind a reference, which no picture of a run shows (PBK-174)."""

import argparse

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json
from perdure.views.runs.run_screen import REFERENCE, ReferenceQuery

EXAMPLES = """\
examples:
  perdure result get noetl://execution/06g2k…/step/load/task/page/run/r1%2F1/attempt/1
  perdure result get default/load-q7x2m/steps/read/rows.json
  perdure result get 06g2k              the run's own result, whatever its size

A reference is what stands under `ref` in the place of a large result. The answer is JSON.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", choices=["get"], help="the only thing that can be done with one")
    parser.add_argument("ref", metavar="REF", help="the reference, or the run whose result is meant")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_result(args, talk))


async def _result(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        give_json((await access.ask(REFERENCE, ReferenceQuery(ref=args.ref)))["value"])
        return Exit.OK
