"""`pause` and `unpause`: hold a run where it is, and let it go on."""

import argparse
from collections.abc import Awaitable

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer_runs
from perdure.cli.interrupts import complete
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values.values import RunId
from perdure.kernel.pause import PAUSE, RESUME
from perdure.views.access import Access
from perdure.views.runs.batch_steering import Verb

EXAMPLES = """\
examples:
  perdure pause nightly-x7k --reason "the warehouse is down" --by Ada
  perdure unpause nightly-x7k --by Ada
  perdure pause --name nightly --dry-run        list the runs that would be paused
  perdure pause --label region=eu --yes         all open runs with this label

A paused run makes no move and starts no task, even after a restart. Running tasks end, and their results are recorded.
Timeouts continue and may expire; gates and waits do not expire before the run is unpaused. A Playbook completes the
steps that are running. Children are not paused with it. `perdure cancel` ends a pause.
"""

VERBS = {"pause": (PAUSE, "paused"), "unpause": (RESUME, "unpaused")}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_runs(parser)
    parser.add_argument("--reason", metavar="TEXT", default="", help="why; kept in the history")
    parser.add_argument("--by", metavar="WHO", default="", help="who decided this; kept in the history")
    a.add_key(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_steer(args, talk))


async def _steer(args: argparse.Namespace, talk: Console) -> int:
    verb, done = VERBS[args.verb]
    body = {"reason": args.reason}

    def send(access: Access, run: RunId) -> Awaitable[SendResult]:
        return access.steer(run, verb, body, key=args.key, by=args.by)

    code, _ = await steer_runs(args, talk, Verb(args.verb), done, send, members={**body, "key": args.key})
    return code
