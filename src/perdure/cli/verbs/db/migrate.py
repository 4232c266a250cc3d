"""`db migrate`: bring the schema up to date, or say what that would do."""

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
  perdure db migrate --dry-run                              list what would be applied; nothing is changed
  perdure db migrate --db postgresql://owner@db.example/runs

A SQLite file is migrated by the first process that opens it. On PostgreSQL engines do the same if their role may create
tables; otherwise run this command as the owner of the database before you upgrade the engines. Migrations only add:
engines of the previous version can continue to work.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--dry-run", action="store_true", help="only list what would be applied")


def perform(args: argparse.Namespace, talk: Console) -> int:
    log_to(talk, args.verbose)
    admin = open_admin(args.db, SystemClock())
    before = admin.schema()
    if before.missing and not args.dry_run:
        admin.migrate()
        record_command(args.db, "migrate_store", f"schema/{before.newest}")
    after = admin.schema() if before.missing and not args.dry_run else before
    missing = list(before.missing)
    if args.json:
        result = {"store": admin.address, "from": before.version, "to": after.version, "newest": after.newest}
        give_json(result | {"migrations": missing, "applied": bool(missing) and not args.dry_run})
    if not missing:
        talk.say(f"{admin.address} has schema {before.version}; there is nothing to do")
    elif args.dry_run:
        talk.say(f"{admin.address} has schema {before.version}; would apply {', '.join(missing)}")
    else:
        talk.say(f"{admin.address}: schema {before.version} is now {after.version} ({', '.join(missing)})")
    return Exit.OK
