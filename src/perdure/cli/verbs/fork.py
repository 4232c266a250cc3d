"""`fork`: a new run with another one's past; finished work is a fact, open work is issued anew."""

import argparse
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import read
from perdure.cli.errors import BadUsage
from perdure.cli.interrupts import complete
from perdure.cli.server_choice import refuse_load
from perdure.cli.start_and_follow import add_waiting, begin_and_follow, start_on_server
from perdure.engine.client import Client
from perdure.engine.handle import Handle
from perdure.engine.runs.fork_points import ForkChanges
from perdure.kernel.json_values.values import RunId
from perdure.views.administration.audit_log import audited
from perdure.views.runs.history_events import HELP, event_at

if TYPE_CHECKING:
    from perdure.server.api_client.server_access import ServerAccess

EXAMPLES = """\
examples:
  perdure fork 06g2k                    from its current state
  perdure fork 06g2k --at 12            from its twelfth event (see `perdure history 06g2k`)
  perdure fork 06g2k --at 12 --detach   only record it, and print the new id
  perdure fork 06g2k --at-failure --document fixed.json        where it failed, with a newer document
  perdure fork 06g2k --at-failure --input '{"amount": 3}'      where it failed, with another input

A fork starts at the end of a turn: it keeps the event, the input that led to it, and everything decided from that
input. If the run ended there, the error names the nearest event that can be forked from.

With --at-failure it continues at the step of a Flow or a Playbook that failed, as `perdure redrive` does in the run
itself. A newer document has to have that step, and what is around it. `perdure status RUN` names the run that a fork
comes from, and the forks of a run.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--at", metavar="MOMENT", help=f"the last event to keep: {HELP} (default: all)")
    place.add_argument("--at-failure", action="store_true", help="continue at the step that failed")
    parser.add_argument("--input", metavar="JSON|@FILE", type=a.json_or_file, help="another input; with --at-failure")
    parser.add_argument("--document", metavar="FILE", help="a newer document; with --at-failure")
    a.add_load(parser)
    add_waiting(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    if not args.at_failure and (args.input is not None or args.document is not None):
        raise BadUsage("--input and --document are for a fork --at-failure")
    if args.choice is not None:
        refuse_load(args)
        return complete(start_on_server(args, talk, lambda access: _fork_on_server(access, args)))
    changes = ForkChanges()
    if args.document is not None:
        origin, text = read(args.document)
        changes = ForkChanges(text, origin)
    if args.input is not None:
        changes = msgspec.structs.replace(changes, input=args.input)

    async def fork(engine: Client) -> Handle:
        run = await engine.resolve(args.run)
        engine = await audited(engine, "fork_run", f"run/{run}", run=run)
        if args.at_failure:
            return await engine.fork(run, at_failure=changes)
        return await engine.fork(run, None if args.at is None else await event_at(engine, run, args.at))

    return complete(begin_and_follow(args, talk, fork, must_exist=True))


async def _fork_on_server(access: "ServerAccess", args: argparse.Namespace) -> RunId:
    run = await access.resolve(args.run)
    more: dict[str, Any] = {"at_failure": True} if args.at_failure else {}
    more |= {} if args.input is None else {"input": args.input}
    more |= {} if args.document is None else {"document": read(args.document)[1].decode()}
    return (await access.fork(run, args.at, **more)).id
