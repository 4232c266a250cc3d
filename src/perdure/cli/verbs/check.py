"""`check`: every problem of documents, each with its position, code and what to do; nothing is run or stored."""

import argparse
from collections.abc import Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.documents import APPLIED_SUFFIXES, files_of, read, read_applied, validate, validator_for
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import load_sources, store_if_any
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.validation import AppliedDocument
from perdure.wiring import languages

EXAMPLES = """\
examples:
  perdure check flow.json
  perdure check flows/ --json                    every document of a folder
  perdure check flow.json --load ./tasks.py      with providers of your own
  perdure check story.yaml engrams.yaml          documents that are checked together may refer to each other

Exit code 7 when there are errors, 0 when there are only warnings.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", metavar="FILE", nargs="+", help="documents, or folders of them; - for standard input")
    a.add_load(parser)
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources the documents refer to; may be repeated"
    )


def perform(asked: argparse.Namespace, talk: Console) -> int:
    load_sources(asked.load)
    return complete(_check(asked, talk))


async def _check(asked: argparse.Namespace, talk: Console) -> int:
    applied = read_applied(asked.apply)
    texts = [read(name) for name in _files(asked.files)]
    together = [*applied, *(AppliedDocument(origin, text.decode(errors="replace")) for origin, text in texts)]
    async with store_if_any(asked, talk) as store:
        judging = validator_for(languages(), store)
        judged = [await validate(origin, text, judging, together) for origin, text in texts]
    named = set(asked.files)
    for one in [one for one in judged if one.is_foreign and one.origin not in named]:
        talk.say(f"{one.origin}: in no language known here; passed over")
        judged.remove(one)
    if asked.json:
        give_json([problem for one in judged for problem in one.plain()])
    else:
        lines = [line for one in judged for line in one.lines()]
        if lines:
            give_text("\n".join(lines))
    errors = sum(one.errors for one in judged)
    warnings = sum(len(one.problems) for one in judged) - errors
    talk.say(f"{_count(len(judged), 'document')} checked: {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    return Exit.FINDINGS if errors else Exit.OK


def _files(names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        files = files_of(name)
        if not files:
            raise BadUsage(f"{name}: the folder holds no document ({', '.join(APPLIED_SUFFIXES)})")
        found += files
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
