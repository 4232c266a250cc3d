"""`check`: every problem of documents and what goes wrong in their runs, each with its position and what to do."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import APPLIED_SUFFIXES, files_of, read, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import store_if_any
from perdure.cli.server_choice import refuse_load, server_access
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.views.resources.document_check import CheckedDocument, validate, validator_for
from perdure.views.resources.soundness_findings import found_elsewhere, with_findings
from perdure.wiring import languages, load_sources

EXAMPLES = """\
examples:
  perdure check flow.json
  perdure check flows/ --json                    every document of a folder
  perdure check flow.json --load ./tasks.py      with your own providers
  perdure check story.yaml engrams.yaml          documents that are checked together may refer to each other

  perdure check story.yaml --server URL          beside the catalog of a server; needs the role author
  perdure check flow.json --strict               warnings count as errors, for a CI job
  perdure check flow.json --no-sound             only its text, not what goes wrong in its runs

Besides problems it looks for what goes wrong in runs of a valid document: deadlocks, endless loops, steps that never
run, waits without an end. What happens in every run is an error, what may happen is a warning with an example.

The exit code is 7 if there are errors, 0 if there are only warnings; with --strict it is 7 for both.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", metavar="FILE", nargs="+", help="documents, or folders of them; - for standard input")
    a.add_namespace(parser, "namespace of documents that do not name one (default: default)")
    a.add_load(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 7 for warnings too")
    parser.add_argument(
        "--sound",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="look for what goes wrong in runs, too (the default); --no-sound looks only at the texts",
    )
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources the documents refer to; may be repeated"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(() if args.choice is not None else args.load)
    return complete(_check(args, talk))


async def _check(args: argparse.Namespace, talk: Console) -> int:
    applied = read_applied(args.apply)
    texts = [read(name) for name in _files(args.files)]
    together = [*applied, *(AppliedDocument(origin, text.decode(errors="replace")) for origin, text in texts)]
    if args.choice is not None:
        documents = await _checked_by_server(args, talk, texts, together)
        documents = documents if args.sound else [replace(document, findings=()) for document in documents]
    else:
        async with store_if_any(args, talk) as store:
            validator = validator_for(languages(), store)
            namespace = args.namespace or DEFAULT_NAMESPACE
            checked = [await validate(origin, text, validator, together, namespace=namespace) for origin, text in texts]
            documents = [await with_findings(document) if args.sound else document for document in checked]
    named = set(args.files)
    for document in [document for document in documents if document.is_foreign and document.origin not in named]:
        talk.say(f"{document.origin}: not in a known language; skipped")
        documents.remove(document)
    if args.json:
        give_json(
            {
                "problems": [problem for document in documents for problem in document.plain()],
                "findings": [finding for document in documents for finding in document.plain_findings()],
            }
        )
    else:
        lines = [line for document in documents for line in document.lines()]
        if lines:
            give_text("\n".join(lines))
    errors = sum(document.errors + document.certain for document in documents)
    warnings = sum(len(document.problems) + len(document.findings) for document in documents) - errors
    talk.say(f"{_count(len(documents), 'document')} checked: {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    return Exit.FINDINGS if errors or (warnings and args.strict) else Exit.OK


async def _checked_by_server(
    args: argparse.Namespace, talk: Console, texts: Sequence[tuple[str, bytes]], together: Sequence[AppliedDocument]
) -> list[CheckedDocument]:
    """Beside the catalog, the providers and the policy of the server; code that is loaded here does not count."""
    refuse_load(args)
    async with server_access(args, talk.say) as server:
        return [
            found_elsewhere(origin, text, await server.check_whole(text, applied=together, namespace=args.namespace))
            for origin, text in texts
        ]


def _files(names: Sequence[str]) -> list[str]:
    paths = []
    for name in names:
        files = files_of(name)
        if not files:
            raise BadUsage(f"{name}: the folder contains no documents ({', '.join(APPLIED_SUFFIXES)})")
        paths += files
    return paths


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
