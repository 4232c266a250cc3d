"""`signal`: tell a run something it may be waiting for."""

import argparse
from collections.abc import Awaitable

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import is_filtered, steer_runs
from perdure.cli.errors import BadUsage
from perdure.cli.interrupts import complete
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values.values import RunId
from perdure.views.access import Access
from perdure.views.runs.batch_steering import Verb

EXAMPLES = """\
examples:
  perdure signal 06g2k approved
  perdure signal 06g2k approved '{"by": "Ada"}'        with a value; also @file.json
  perdure signal 06g2k paid 17 --key payment-17        counts only once, however often you send it
  perdure signal 06g2k,06g3m approved                  several runs
  perdure signal --name order paid 17 --dry-run        without RUN: all open runs that match

The signal is stored when the command returns. A run that has ended is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "words",
        metavar="RUN NAME [VALUE]",
        nargs="+",
        help="id or name of the run (several: RUN,RUN); the signal's name; its value as JSON, or @file (default: null)",
    )
    a.add_namespace(parser, "only runs of this namespace (default: of all)")
    a.add_run_filter(parser)
    a.add_key(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_signal(args, talk))


async def _signal(args: argparse.Namespace, talk: Console) -> int:
    words = list(args.words)
    args.runs = [] if is_filtered(args) else [run for run in words.pop(0).split(",") if run]
    if not 1 <= len(words) <= 2:
        raise BadUsage("expected RUN NAME [VALUE], or a filter such as --label K=V and then NAME [VALUE]")
    name = words[0]
    try:
        value = a.json_or_file(words[1]) if len(words) == 2 else None
    except argparse.ArgumentTypeError as error:
        raise BadUsage(f"VALUE: {error}") from None

    def send(access: Access, run: RunId) -> Awaitable[SendResult]:
        return access.signal(run, name, value, key=args.key)

    members = {"signal": name, "value": value, "key": args.key}
    code, _ = await steer_runs(args, talk, Verb.SIGNAL, f"signal {name!r} sent", send, members=members)
    return code
