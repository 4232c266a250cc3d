"""`approve` and `reject`: decide a gate of a run, whether it has been reached yet or not."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer
from perdure.cli.interrupts import complete

EXAMPLES = """\
examples:
  perdure approve deploy-x7k approve-prod --by Ada
  perdure reject deploy-x7k approve-prod --message "not on a Friday" --by Ada

The decision is stored when the command returns, even if the run has not reached the gate yet.
A run that has ended is a conflict (exit code 9).
"""

STATES = {"approve": "Approved", "reject": "Rejected"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("step", metavar="STEP", help="the gate's step")
    parser.add_argument("--message", metavar="TEXT", default="", help="the reason; recorded with the decision")
    parser.add_argument("--by", metavar="WHO", default="", help="who decided this; recorded in the history")
    a.add_key(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    state = STATES[args.verb]
    body = {"step": args.step, "state": state, "message": args.message, "by": args.by}
    done = f"{args.step!r} {state.lower()}"
    return complete(
        steer(args, talk, done, lambda access, run: access.steer(run, "gate", body, key=args.key, by=args.by))
    )
