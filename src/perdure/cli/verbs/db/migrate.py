"""`db migrate`: bring the schema up to date, or say what that would do."""

import argparse

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.log_output import log_to
from perdure.cli.stdout import give_json
from perdure.engine.clock import SystemClock
from perdure.wiring import open_admin

EXAMPLES = """\
examples:
  perdure db migrate --dry-run                              what would be applied; nothing is touched
  perdure db migrate --db postgresql://owner@db.example/runs

A SQLite file is brought up to date by whoever opens it first. On PostgreSQL engines do the same if their role may
create tables; where it may not, run this as the owner of the database before the engines are upgraded. Migrations only
add: engines of the version before go on beside it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--dry-run", action="store_true", help="apply nothing, only say what is missing")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    log_to(talk, asked.verbose)
    caretaker = open_admin(asked.db, SystemClock())
    before = caretaker.schema()
    if before.missing and not asked.dry_run:
        caretaker.migrate()
    after = caretaker.schema() if before.missing and not asked.dry_run else before
    missing = list(before.missing)
    if asked.json:
        told = {"store": caretaker.address, "from": before.version, "to": after.version, "newest": after.newest}
        give_json(told | {"migrations": missing, "applied": bool(missing) and not asked.dry_run})
    if not missing:
        talk.say(f"{caretaker.address} has schema {before.version}; there is nothing to do")
    elif asked.dry_run:
        talk.say(f"{caretaker.address} has schema {before.version}; would apply {', '.join(missing)}")
    else:
        talk.say(f"{caretaker.address}: schema {before.version} is now {after.version} ({', '.join(missing)})")
    return Exit.OK
