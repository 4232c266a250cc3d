"""`db copy`: everything of one store into another one, open runs too."""

import argparse

from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.stdout import give_json
from perdure.cli.store_audit import record_command
from perdure.cli.throttle import Throttle
from perdure.engine.clock import SystemClock
from perdure.views.administration.store_json import copy_json
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure db copy sqlite:///runs.db postgresql://db.example/runs
  perdure db copy postgresql://db.example/runs sqlite:///runs.db
  perdure serve --db postgresql://db.example/runs       continues the open runs there

Copies the catalog and all runs with their history, including open runs, what they wait for, and messages between them.
The target must be empty, and no engine may use either store: the source cannot be written until the copy is done. What
arrived is compared with what was sent before it becomes visible; an interrupted copy leaves the target empty and can be
repeated. Afterwards both stores contain the open runs: use engines on one of them only.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="the address of the store to copy")
    parser.add_argument(
        "target", metavar="TARGET", help="the address of an empty store, or of a file that does not exist yet"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    log_to(talk, args.verbose)
    clock = SystemClock()
    source, target = open_admin(args.source, clock), open_admin(args.target, clock)
    if source.identity == target.identity:
        raise BadUsage(f"{source.address} cannot be copied into itself")
    throttle = Throttle(talk)
    result = copy_json(source, target, throttle.say)
    throttle.done()
    record_command(args.target, "copy_store", "store")
    if args.json:
        give_json(result)
    copied = result["copied"]
    talk.say(
        f"copied {copied['runs']:,} runs ({result['open_runs']:,} open), {copied['log_rows']:,} log rows and"
        f" {copied['resources']:,} resources, {result['bytes'] / 1e6:,.1f} MB; compared and equal"
    )
    if result["open_runs"]:
        talk.say(f"the open runs are in both stores now: do not run an engine on {source.address} any more")
    return Exit.OK
