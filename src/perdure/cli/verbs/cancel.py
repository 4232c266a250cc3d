"""`cancel`: ask a run to stop; how it stops is its language's business."""

import argparse
from collections.abc import Awaitable

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import Ended, follow
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_observer
from perdure.cli.progress import progress_for
from perdure.cli.run_end import tell_end
from perdure.cli.server_presence import is_served
from perdure.engine.client import Client
from perdure.engine.message_sending import SendResult
from perdure.engine.run_removal import descendants
from perdure.kernel.values import RunId
from perdure.views.run_list import Ownership

EXAMPLES = """\
examples:
  perdure cancel 06g2k
  perdure cancel 06g2k --reason "wrong customer"
  perdure cancel 06g2k --wait           until it has ended; exit code 6 when no live process owns it

The request is on disk when the command returns. A run that has ended is a conflict (exit code 9); one
that was cancelled before stays so, and a Story that has ended stays as it is.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--reason", metavar="R", default="", help="why; the run's history keeps it")
    parser.add_argument(
        "--cascade", action="store_true", help="every run below it too, also children that it does not wait for"
    )
    parser.add_argument("--wait", action="store_true", help="until the run has ended")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_cancel(asked, talk))


async def _cancel(asked: argparse.Namespace, talk: Console) -> int:
    def send(client: Client, run: RunId) -> Awaitable[SendResult]:
        return client.cancel(run, asked.reason, cascade=asked.cascade)

    code = await steer(asked, talk, "asked to stop", send, late="has ended; there is nothing to stop")
    if asked.cascade:
        await _tell_ownerless(asked, talk)
    return await _wait(asked, talk) if asked.wait else code


async def _tell_ownerless(asked: argparse.Namespace, talk: Console) -> None:
    """Runs below one that is driven, or has ended, may have nobody who stops them."""
    async with open_observer(asked, talk) as observer:
        row = await observer.find(await observer.resolve(asked.run))
        below = [one for one in await descendants(observer.store, row.id) if not one.status.is_final]
        owners = await Ownership.of(observer, [row, *below])
        left = [one.id for one in below if not owners.is_live(one)]
        if left and (row.status.is_final or owners.is_live(row)) and not await is_served(observer):
            talk.say(f"{len(left)} of them have no live owner; stop them with: {resume_command(asked, *left)}")


async def _wait(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        end = (await follow(observer, [run], progress_for(talk)))[run]
        code = await tell_end(observer, run, end, talk)
        return Exit.OK if isinstance(end, Ended) else code
