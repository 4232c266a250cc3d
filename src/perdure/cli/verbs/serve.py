"""`serve`: an engine that stays, until Ctrl-C."""

import argparse
import asyncio

from perdure.cli import arguments as a
from perdure.cli.exits import Exit
from perdure.cli.following import listening
from perdure.cli.interruption import complete
from perdure.cli.opening import open_engine
from perdure.cli.progress import progress_for
from perdure.cli.talk import Talk

EXAMPLES = """\
examples:
  perdure serve
  perdure serve --load ./tasks.py --db sqlite:///runs.db

Takes up runs that no live process owns, decides requests that wait (StoryTriggers), keeps the schedules of Impulses of
the template `cron`, and removes Stories' runs whose retention is over. Nothing listens on the network. Several may
serve one store: a strike of a schedule counts once. Ctrl-C stops the process, not the runs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Talk) -> int:
    return complete(_serve(asked, talk))


async def _serve(asked: argparse.Namespace, talk: Talk) -> int:
    from perdure.triggers.service import Service

    try:
        async with open_engine(asked, talk) as engine:
            with listening(engine, progress_for(talk)):
                talk.insist(f"serving {asked.db}; stop with Ctrl-C")
                await Service(engine, say=talk.say).run()
    except asyncio.CancelledError:
        talk.insist("stopped; the runs are durable. Go on with: perdure serve")
        raise
    return Exit.OK
