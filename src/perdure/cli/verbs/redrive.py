"""`redrive`: reopen a run that has ended, whole or from one step on; it lives once more under the same id."""

import argparse
from collections.abc import Awaitable

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer_runs
from perdure.cli.interrupts import complete
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values.values import RunId
from perdure.views.access import Access
from perdure.views.runs.batch_steering import Verb

EXAMPLES = """\
examples:
  perdure redrive 06g2k && perdure resume 06g2k
  perdure redrive 06g2k --key ticket-17          counts only once, however often you send it
  perdure redrive deploy-x7k --from ship         a Story: this step, what waits for it, and all cleanup
  perdure redrive --name nightly --since 12h     all that failed or timed out; asks first

A Flow or a Playbook continues at the step that failed, or where it was stopped; what had finished stays. A Story
repeats all its steps, or those from --from on; one that is still open is stopped first. Any other open run is a
conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_runs(parser)
    parser.add_argument("--from", metavar="STEP", dest="step", default="", help="only this step and the steps after it")
    parser.add_argument("--by", metavar="WHO", default="", help="who decided this; recorded in the history")
    a.add_key(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_redrive(args, talk))


async def _redrive(args: argparse.Namespace, talk: Console) -> int:
    def send(access: Access, run: RunId) -> Awaitable[SendResult]:
        return access.redrive_from(run, args.step, key=args.key, by=args.by)

    members = {"from": args.step, "key": args.key}
    code, _ = await steer_runs(args, talk, Verb.REDRIVE, "reopened", send, members=members)
    return code
