"""`redrive`: reopen a run that has ended; it lives once more under the same id."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.interruption import complete
from perdure.cli.steering import steer
from perdure.cli.talk import Talk

EXAMPLES = """\
examples:
  perdure redrive 06g2k && perdure resume 06g2k
  perdure redrive 06g2k --key ticket-17          counts once, however often it is sent

What is kept of the first life is the language's business. A run that is still open is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    a.add_key(parser)


def perform(asked: argparse.Namespace, talk: Talk) -> int:
    return complete(steer(asked, talk, "reopened", lambda client, run: client.redrive(run, key=asked.key)))
