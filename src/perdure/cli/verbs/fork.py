"""`fork`: a new run with another one's past; finished work is a fact, open work is issued anew."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.interrupts import complete
from perdure.cli.start_and_follow import add_waiting, begin_and_follow
from perdure.engine.client import Client
from perdure.engine.handle import Handle
from perdure.views.event_positions import HELP, event_at

EXAMPLES = """\
examples:
  perdure fork 06g2k                    from where it is now
  perdure fork 06g2k --at 12            from its twelfth event (see `perdure history 06g2k`)
  perdure fork 06g2k --at 12 --detach   only record it, and print the new id

A fork begins at the end of a turn: it has the event, the input that the event belongs to, and all that was decided
from that. Where this had ended the run, the nearest event that can be forked from is named.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--at", metavar="MOMENT", help=f"what counts last: {HELP} (default: all of it)")
    a.add_load(parser)
    add_waiting(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    async def fork(engine: Client) -> Handle:
        run = await engine.resolve(asked.run)
        return await engine.fork(run, None if asked.at is None else await event_at(engine, run, asked.at))

    return complete(begin_and_follow(asked, talk, fork, must_exist=True))
