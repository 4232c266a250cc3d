"""`settle`: say what came of an effect of which the run cannot know whether it happened."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer
from perdure.cli.interrupts import complete
from perdure.kernel.json_values import jsontext

EXAMPLES = """\
examples:
  perdure settle 06g2k 'pay#charge' --done '{"receipt": 7}' --by Ada      it happened, and this is its result
  perdure settle 06g2k charge --not-done                                it did not happen and is performed again

KEY is the effect's key as `perdure effects RUN` shows it; its name alone is enough if only one effect has it.
A task that is held for the effect continues. Only an effect in doubt can be settled: one that is completed, that a live
process performs, or that belongs to a run that has ended is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("effect", metavar="KEY", help="the effect's key, or its name")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--done", metavar="RESULT", type=a.json_or_file, help="it happened: its result, JSON or @file")
    how.add_argument("--not-done", action="store_true", help="it did not happen")
    parser.add_argument("--by", metavar="WHO", default="", help="who decided this; recorded in the history")
    a.add_key(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    result = None if args.not_done else jsontext.encode(args.done)
    done = f"effect {args.effect!r} settled: {'not done' if args.not_done else 'done'}"
    return complete(
        steer(
            args,
            talk,
            done,
            lambda access, run: access.settle(run, args.effect, result, key=args.key, by=args.by),
        )
    )
