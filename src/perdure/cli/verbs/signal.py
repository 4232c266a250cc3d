"""`signal`: tell a run something it may be waiting for."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer
from perdure.cli.interrupts import complete

EXAMPLES = """\
examples:
  perdure signal 06g2k approved
  perdure signal 06g2k approved '{"by": "Ada"}'        with a value; also @file.json
  perdure signal 06g2k paid 17 --key payment-17        counts once, however often it is sent

The signal is on disk when the command returns. A run that has ended is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("name", metavar="NAME", help="the signal's name")
    parser.add_argument("value", metavar="VALUE", nargs="?", type=a.json_or_file, help="JSON, or @file (default: null)")
    a.add_key(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    done = f"signal {asked.name!r} sent"
    return complete(
        steer(asked, talk, done, lambda client, run: client.signal(run, asked.name, asked.value, key=asked.key))
    )
