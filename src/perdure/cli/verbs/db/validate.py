"""`db validate`: read everything, and tell what does not hold together."""

import argparse
from typing import Any

from perdure.cli.arguments import add_load
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.stdout import give_json, give_text
from perdure.cli.throttle import Throttle
from perdure.engine.clock import SystemClock
from perdure.engine.store_validation import StoreValidator
from perdure.views.administration.store_json import finding_json
from perdure.wiring import languages, load_sources, open_admin

MAX_LISTED = 200

EXAMPLES = """\
examples:
  perdure db validate
  perdure db validate --db postgresql://db.example/runs --json

Reads every document, every large value and every event from one consistent snapshot; engines can continue to work.
Reports logs that have gaps or do not fold, documents and large values that are missing or changed, rows that disagree
with their history, and permits, tasks, messages and editions that belong to nothing. The exit code is 0 if there are no
findings, otherwise 7. Nothing is written.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    log_to(talk, args.verbose)
    load_sources(args.load)
    admin = open_admin(args.db, SystemClock())
    throttle = Throttle(talk)
    findings: list[dict[str, Any]] = []
    count = 0
    with admin.snapshot() as snapshot:
        validator = StoreValidator(
            snapshot, languages(), lambda read: throttle.say(f"{read.runs:,} runs, {read.events:,} events read")
        )
        read = validator.read
        for finding in map(finding_json, validator.findings()):
            count += 1
            if len(findings) < MAX_LISTED:
                findings.append(finding)
                if not args.json:
                    throttle.done()
                    give_text(_line(finding))
    throttle.done()
    if args.json:
        give_json(
            {
                "store": admin.address,
                "ok": not count,
                "runs": read.runs,
                "events": read.events,
                "records": read.records,
                "findings": findings,
                "findings_total": count,
            }
        )
    talk.say(
        f"{read.runs:,} runs with {read.events:,} events read: "
        + (f"{count:,} finding{'' if count == 1 else 's'}" if count else "everything is in order")
    )
    return Exit.FINDINGS if count else Exit.OK


def _line(finding: dict[str, Any]) -> str:
    run = f"{finding['run']}: " if finding["run"] else ""
    return f"{finding['what']}: {run}{finding['message']}"
