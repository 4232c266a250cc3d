"""`db recount`: the counts that are kept with the runs, made anew."""

import argparse

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.stdout import give_json
from perdure.cli.store_audit import record_command
from perdure.engine.clock import SystemClock
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure db recount
  perdure db recount --db postgresql://db.example/runs --json

`GET /api/v1/stats`, `perdure top` and the metrics tell counts that are kept with the runs, in the transaction of each
change. Only somebody who writes to the tables by hand can make them wrong; `perdure db validate` reports that. Engines
can continue to work; their commits wait until the runs are counted.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES


def perform(args: argparse.Namespace, talk: Console) -> int:
    log_to(talk, args.verbose)
    admin = open_admin(args.db, SystemClock())
    repaired = admin.recount()
    record_command(args.db, "recount_store", f"counts/{repaired}")
    if args.json:
        give_json({"store": admin.address, "repaired": repaired})
    talk.say(f"{admin.address}: {f'{repaired:,} counts were wrong' if repaired else 'every count was right'}")
    return Exit.OK
