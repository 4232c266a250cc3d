"""`restore`: a backup in the place of the store, while nobody works on it."""

import argparse
from pathlib import Path

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json
from perdure.wiring import restore_store

EXAMPLES = """\
examples:
  perdure restore runs-monday.db                             in the place of the store ($PERDURE_DB or --db)
  perdure restore runs-monday.db --db sqlite:///runs.db      also where there is no store yet

Refused while a process has the store open, and of a file that is not a whole Perdure store. The store is the backup
afterwards, or what it was: also after a crash in between. What the store had and the backup has not is gone; work that
was in flight when the backup was taken is delivered again, as after a crash.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="BACKUP", type=Path, help="what `perdure backup` has made, or any other store")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    size = restore_store(asked.file, asked.db)
    if asked.json:
        give_json({"store": asked.db, "restored_from": str(asked.file), "bytes": size})
    talk.say(
        f"restored from {asked.file} ({size:,} bytes); continue open runs with `perdure serve` or `perdure resume`"
    )
    return Exit.OK
