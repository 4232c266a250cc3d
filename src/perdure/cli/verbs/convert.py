"""`convert`: a legacy document in the present form of its language, and what was done to it."""

import argparse
import os
from pathlib import Path

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import read, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.documents.problems import Severity
from perdure.kernel.documents.validation import ConvertedDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.views.resources.document_check import CheckedDocument, validate, validator_for
from perdure.wiring import languages, load_sources

EXAMPLES = """\
examples:
  perdure convert legacy.yaml > playbook.yaml     the document on stdout, the report on stderr
  perdure convert legacy.yaml -o playbook.yaml    into a new file
  perdure convert legacy.yaml --json              {document, constructs, problems}

Playbooks: the legacy constructs of NoETL become those of canonical v10. What has no counterpart stays as it is, and is
reported. Comments are not kept. The result is checked: the exit code is 7 if it still has errors.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="FILE", help="the document; - for standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the document here; an existing file is refused")
    a.add_load(parser)
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources it refers to; may be repeated"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(args.load)
    return complete(_convert(args, talk))


async def _convert(args: argparse.Namespace, talk: Console) -> int:
    if args.output and os.path.lexists(args.output):
        raise BadUsage(f"{args.output} already exists; name a new file, or remove it first")
    known = languages()
    origin, text = read(args.file)
    language = next((language for language in known.values() if language.recognizes(text)), None)
    converted = ConvertedDocument() if language is None else language.convert(text)
    result = text.decode(errors="replace") if converted.text is None else converted.text
    applied = read_applied(args.apply)
    checked = await validate(
        args.output or origin,
        result.encode(),
        validator_for(known, lambda: None),
        applied,
        namespace=DEFAULT_NAMESPACE,
    )
    errors = [problem for problem in checked.problems if problem.severity is Severity.ERROR]
    if args.output:
        _write_new(Path(args.output), result)
    if args.json:
        give_json(_report_json(result, converted, checked))
    else:
        if not args.output:
            give_text(result.rstrip("\n"))
        _tell(talk, origin, converted, checked, len(errors))
    return Exit.FINDINGS if errors else Exit.OK


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:  # a link that leads nowhere yet is refused
        file.write(text)


def _report_json(result: str, converted: ConvertedDocument, checked: CheckedDocument) -> dict[str, object]:
    constructs = [
        {"path": construct.path, "message": construct.message, "converted": construct.is_done}
        for construct in converted.constructs
    ]
    return {"document": result, "constructs": constructs, "problems": list(checked.plain())}


def _tell(talk: Console, origin: str, converted: ConvertedDocument, checked: CheckedDocument, errors: int) -> None:
    for construct in converted.constructs:
        talk.say(f"{origin}: {construct.path}: {'' if construct.is_done else 'NOT CONVERTED: '}{construct.message}")
    for line in checked.lines() if errors else ():
        talk.say(line)
    done = sum(construct.is_done for construct in converted.constructs)
    left = len(converted.constructs) - done
    talk.say(f"{done} converted, {left} not converted; the result has {errors} error{'' if errors == 1 else 's'}")
