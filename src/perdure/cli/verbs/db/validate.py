"""`db validate`: read everything, and tell what does not hold together."""

import argparse
from typing import Any

from perdure.cli.arguments import add_load
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.open_engine import load_sources
from perdure.cli.stdout import give_json, give_text
from perdure.cli.throttle import Throttle
from perdure.engine.clock import SystemClock
from perdure.engine.store_validation import StoreValidator
from perdure.stores.admin import OrphanRow
from perdure.wiring import languages, open_admin

MOST_TOLD = 200

EXAMPLES = """\
examples:
  perdure db validate
  perdure db validate --db postgresql://db.example/runs --json

Reads every document, every large value and every event, as they were at one moment; engines may go on meanwhile. Told
are logs with gaps or that do not fold, documents and large values that are named and not there or not what they were,
rows that disagree with their history, and permits, tasks, letters and editions that belong to nothing. Exit 0 when
there is nothing to tell, otherwise 7. Nothing is written.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    log_to(talk, asked.verbose)
    load_sources(asked.load)
    caretaker = open_admin(asked.db, SystemClock())
    pace = Throttle(talk)
    told: list[OrphanRow] = []
    count = 0
    with caretaker.snapshot() as reading:
        validator = StoreValidator(
            reading, languages(), lambda read: pace.say(f"{read.runs:,} runs, {read.events:,} events read")
        )
        read = validator.read
        for finding in validator.findings():
            count += 1
            if len(told) < MOST_TOLD:
                told.append(finding)
                if not asked.json:
                    give_text(_line(finding))
    pace.done()
    if asked.json:
        give_json(
            {
                "store": caretaker.address,
                "ok": not count,
                "runs": read.runs,
                "events": read.events,
                "records": read.records,
                "findings": [_plain(finding) for finding in told],
                "findings_total": count,
            }
        )
    talk.say(
        f"{read.runs:,} runs with {read.events:,} events read: "
        + (f"{count:,} finding{'' if count == 1 else 's'}" if count else "everything is in order")
    )
    return Exit.FINDINGS if count else Exit.OK


def _line(finding: OrphanRow) -> str:
    return f"{finding.what}: {f'{finding.run}: ' if finding.run else ''}{finding.message}"


def _plain(finding: OrphanRow) -> dict[str, Any]:
    return {"what": finding.what, "run": finding.run, "message": finding.message}
