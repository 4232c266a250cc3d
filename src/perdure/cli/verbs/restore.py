"""`restore`: a backup in the place of the store, while nobody works on it."""

import argparse
from pathlib import Path

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.server_choice import refuse_server
from perdure.cli.stdout import give_json
from perdure.cli.store_audit import record_command
from perdure.wiring import restore_store

EXAMPLES = """\
examples:
  perdure restore runs-monday.db                             replaces the store ($PERDURE_DB or --db)
  perdure restore runs-monday.db --db sqlite:///runs.db      also if there is no store yet

The command fails if a process has the store open, or if the file is not a complete Perdure store. Even after a crash
the store is either the backup or unchanged. Everything that is not in the backup is lost; tasks that were in flight
when the backup was made are delivered again, as after a crash.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="BACKUP", type=Path, help="a file written by `perdure backup`, or a store")


def perform(args: argparse.Namespace, talk: Console) -> int:
    refuse_server(args)
    size = restore_store(args.file, args.db)
    record_command(args.db, "restore_store", "store")
    if args.json:
        give_json({"store": args.db, "restored_from": str(args.file), "bytes": size})
    talk.say(f"restored from {args.file} ({size:,} bytes); continue open runs with `perdure serve` or `perdure resume`")
    return Exit.OK
