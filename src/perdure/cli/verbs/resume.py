"""`resume`: take up what has no live owner, and follow it until it has ended or only a person can make it go on."""

import argparse
import asyncio

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import End, Ended, follow, follow_below, listening, messages_taken
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_engine
from perdure.cli.progress import progress_for
from perdure.cli.run_end import give_result, tell_end
from perdure.cli.stdout import give_json, give_text
from perdure.engine.client import Client
from perdure.kernel.json_values.values import RunId
from perdure.views.access import StoreAccess
from perdure.views.administration.server_presence import is_served_after_us
from perdure.views.runs.run_list import Ownership, interrupted_runs, topmost
from perdure.views.runs.run_list_json import run_json

EXAMPLES = """\
examples:
  perdure resume                        all interrupted runs
  perdure resume 06g2k                  one run; its result goes to stdout, as with `perdure run`
  perdure resume --load ./tasks.py      with the providers that its tasks need

A run that is owned by a live process is only followed. A run that waits for a signal, or for a provider that is not
loaded, is reported and stays stored. With one RUN the exit code is the same as for `run`; otherwise it is that of the
first run that did not succeed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("runs", metavar="RUN", nargs="*", help="ids or prefixes of ids (default: all interrupted runs)")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_resume(args, talk))


async def _resume(args: argparse.Namespace, talk: Console) -> int:
    progress = progress_for(talk)
    is_taken_up = False
    try:
        async with open_engine(args, talk, must_exist=True) as engine:
            named = [await engine.resolve(beginning) for beginning in args.runs]
            interrupted = [] if named else await interrupted_runs(engine)
            runs = named or [row.id for row in interrupted]
            if runs:
                talk.say(f"resuming {runs[0] if len(runs) == 1 else f'{len(runs)} runs'}")
            else:
                talk.say("nothing to resume: every open run has a live owner")
            try:
                with listening(engine, progress):
                    await engine.resume(named or None)
                    await messages_taken(engine, runs)
                    ends = await follow(engine, runs, progress, until_idle=True)
                    for run, end in ends.items():
                        if isinstance(end, Ended):
                            await follow_below(engine, run, progress)
            except asyncio.CancelledError:
                is_taken_up = await is_served_after_us(engine)
                raise
            reported = runs if named else topmost(interrupted)
            ends_of_existing = {run: ends[run] for run in reported if await engine.store.find(run) is not None}
            for run in reported:
                if run not in ends_of_existing:
                    talk.say(f"run {run} was removed")
            return await _tell(engine, ends_of_existing, args, talk)
    except asyncio.CancelledError:
        command = resume_command(args, *args.runs)
        goes_on = "A server will resume them." if is_taken_up else f"Resume them with: {command}"
        talk.always(f"stopped; the runs are durable. {goes_on}")
        raise


async def _tell(engine: Client, ends: dict[RunId, End], args: argparse.Namespace, talk: Console) -> Exit:
    access = StoreAccess(engine)
    codes = [await tell_end(access, run, end, args, talk) for run, end in ends.items()]
    if len(args.runs) == 1 and ends:
        ((run, end),) = ends.items()
        await give_result(access, run, end, args)
    else:
        rows = [await engine.find(run) for run in ends]
        owners = await Ownership.of(engine, rows)
        if args.json:
            give_json([run_json(row, owners, {}) for row in rows])
        elif rows:
            give_text("\n".join(f"{row.id}  {row.status}" for row in rows))
    return next((code for code in codes if code is not Exit.OK), Exit.OK)
