"""`cancel`: ask a run to stop; how it stops is its language's business."""

import argparse
from collections.abc import Awaitable, Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer_runs
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import End, Ended, follow, follow_on_server
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_access, open_observer
from perdure.cli.progress import progress_for
from perdure.cli.run_end import tell_end
from perdure.engine.runs.message_sending import SendResult
from perdure.engine.runs.run_removal import descendants
from perdure.kernel.json_values.values import RunId
from perdure.views.access import Access, StoreAccess
from perdure.views.administration.server_presence import is_served
from perdure.views.runs.batch_steering import Verb
from perdure.views.runs.run_list import Ownership

EXAMPLES = """\
examples:
  perdure cancel 06g2k
  perdure cancel 06g2k --reason "wrong customer"
  perdure cancel 06g2k --wait           wait until it has ended; exit code 6 if no live process owns it
  perdure cancel 06g2k 06g3m            several; the exit code is the worst one
  perdure cancel --label team=red --dry-run      list the open runs that would be cancelled
  perdure cancel --name nightly --yes            cancel them without being asked

The request is stored when the command returns. Cancelling a run that has ended is a conflict (exit code 9), except
for a run that is cancelled already and for a Story: these stay as they are.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_runs(parser)
    parser.add_argument("--reason", metavar="R", default="", help="the reason; recorded in the history")
    parser.add_argument(
        "--cascade",
        action="store_true",
        help="also cancel all runs below it, even those that it does not wait for",
    )
    parser.add_argument("--wait", action="store_true", help="wait until the run has ended")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_cancel(args, talk))


async def _cancel(args: argparse.Namespace, talk: Console) -> int:
    def send(access: Access, run: RunId) -> Awaitable[SendResult]:
        return access.cancel(run, args.reason, cascade=args.cascade)

    late = "has ended; there is nothing to stop"
    members = {"reason": args.reason, "cascade": args.cascade}
    code, steered = await steer_runs(args, talk, Verb.CANCEL, "asked to stop", send, members=members, late=late)
    if args.dry_run:
        return code
    if len(args.runs) != 1:
        return await _wait(args, talk, steered, code) if args.wait and steered else code
    if args.cascade and args.choice is None:
        await _tell_ownerless(args, talk)
    return await _wait(args, talk, args.runs) if args.wait else code


async def _tell_ownerless(args: argparse.Namespace, talk: Console) -> None:
    """Children of a run that has a live owner, or has ended, may have no owner that stops them."""
    async with open_observer(args, talk) as observer:
        row = await observer.find(await observer.resolve(args.run))
        below = [child for child in await descendants(observer.store, row.id) if not child.status.is_final]
        owners = await Ownership.of(observer, [row, *below])
        ownerless = [child.id for child in below if not owners.is_live(child)]
        if ownerless and (row.status.is_final or owners.is_live(row)) and not await is_served(observer):
            talk.say(f"{len(ownerless)} of them have no live owner; stop them with: {resume_command(args, *ownerless)}")


async def _wait(args: argparse.Namespace, talk: Console, names: Sequence[str], code: Exit = Exit.OK) -> int:
    async with open_access(args, talk) as access:
        runs = [await access.resolve(name) for name in names]
        for run, end in (await _ends(access, runs, talk)).items():
            end_code = await tell_end(access, run, end, args, talk)
            if not isinstance(end, Ended) and code is Exit.OK:
                code = end_code
        return code


async def _ends(access: Access, runs: Sequence[RunId], talk: Console) -> dict[RunId, End]:
    progress = progress_for(talk)
    if isinstance(access, StoreAccess):
        return await follow(access.client, runs, progress)
    return {run: await follow_on_server(access, run, progress) for run in runs}
