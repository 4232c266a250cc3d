"""`db copy`: everything of one store into another one, open runs too."""

import argparse

from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.stdout import give_json
from perdure.cli.throttle import Throttle
from perdure.engine.clock import SystemClock
from perdure.stores.admin import copy_store
from perdure.stores.records import RecordDigest
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure db copy sqlite:///runs.db postgresql://db.example/runs
  perdure db copy postgresql://db.example/runs sqlite:///runs.db
  perdure serve --db postgresql://db.example/runs       and the open runs go on there

Copies the catalog, runs with their history, open ones too, what they wait for and what is on its way between them. The
target must be empty, and no engine may be at work on either side: the source cannot be written until the copy is done.
What has arrived is compared with what was sent before it can be seen; a copy that is broken off leaves the target empty
and can be repeated. Afterwards both stores have the open runs: let engines work on one of them only.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="the address of the store to copy")
    parser.add_argument(
        "target", metavar="TARGET", help="the address of an empty one, or of a file that is not there yet"
    )


def perform(asked: argparse.Namespace, talk: Console) -> int:
    log_to(talk, asked.verbose)
    clock = SystemClock()
    source, target = open_admin(asked.source, clock), open_admin(asked.target, clock)
    if source.identity == target.identity:
        raise BadUsage(f"{source.address} cannot be copied into itself")
    pace = Throttle(talk)

    def heard(stage: str, tally: RecordDigest) -> None:
        runs, rows = tally.counts["runs"], tally.counts["log rows"]
        pace.say(f"{stage}: {runs:,} runs, {rows:,} log rows, {tally.bytes / 1e6:,.1f} MB")

    copied = copy_store(source, target, heard)
    pace.done()
    counts = copied.tally.counts
    if asked.json:
        told = {"source": source.address, "target": target.address, "open_runs": copied.open_runs}
        named = {name.replace(" ", "_"): count for name, count in counts.items() if name != "catalog version"}
        give_json(told | {"copied": named, "bytes": copied.tally.bytes, "digest": copied.tally.digest})
    talk.say(
        f"copied {counts['runs']:,} runs ({copied.open_runs:,} open), {counts['log rows']:,} log rows and"
        f" {counts['resources']:,} resources, {copied.tally.bytes / 1e6:,.1f} MB; compared and equal"
    )
    if copied.open_runs:
        talk.say(f"the open runs are in both stores now: let no engine work on {source.address} any more")
    return Exit.OK
