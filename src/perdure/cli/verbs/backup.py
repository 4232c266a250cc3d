"""`backup`: a consistent copy of the store, taken while it is in use."""

import argparse
import os
from pathlib import Path

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.stdout import give_json

EXAMPLES = """\
examples:
  perdure backup runs-monday.db
  perdure backup /backups/runs.db --force         replaces the older copy, once the new one is complete
  perdure ps --db sqlite:///runs-monday.db        a backup is a store like any other
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_backup(args, talk))


async def _backup(args: argparse.Namespace, talk: Console) -> int:
    target: Path = args.file
    async with open_observer(args, talk) as observer:
        if target.exists() and not args.force:
            raise FileExistsError(None, "the file already exists; use --force to replace it", str(target))
        if not target.absolute().parent.is_dir():
            raise FileNotFoundError(None, "there is no such folder", str(target.absolute().parent))
        partial = target.with_name(f"{target.name}.partial")
        partial.unlink(missing_ok=True)
        try:
            await observer.store.backup(str(partial))
            _sync(partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    size = target.stat().st_size
    if args.json:
        give_json({"file": str(target), "bytes": size})
    talk.say(f"copied to {target} ({size:,} bytes)")
    return Exit.OK


def _sync(path: Path) -> None:
    with path.open("rb+") as copy:
        os.fsync(copy.fileno())
