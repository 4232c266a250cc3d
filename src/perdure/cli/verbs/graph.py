"""`graph`: a document or a run as a picture, or as text that other tools draw."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import read
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.errors import RunNotFound
from perdure.views.drawing import markup
from perdure.views.errors import StoreMissing
from perdure.views.resources.document_check import ProblemsFound, validate
from perdure.views.resources.example_drawing import ExampleDrawing
from perdure.views.resources.soundness_findings import SoundnessFinding, with_findings
from perdure.views.runs.history_events import HELP
from perdure.views.runs.run_graph import DRAWING, MomentQuery, NoPicture
from perdure.wiring import languages, load_sources

EXAMPLES = """\
examples:
  perdure graph flow.json                      Mermaid text, as GitHub and many editors draw it
  perdure graph flow.json --svg > flow.svg     a picture, for light and dark backgrounds
  perdure graph 06g2k --svg > run.svg          a run: statuses, times, and the edges that were taken
  perdure graph 06g2k --text                   the same as an outline to read in the terminal
  perdure graph 06g2k --at 12 --svg            the run as it was after its twelfth event
  perdure graph flow.json --finding 1 --text   the run that shows the first finding of `perdure check`
  perdure graph flow.json --dot | dot -Tpng > flow.png
  perdure graph flow.json --json               nodes and edges, for programs
"""

TITLES = {
    "mermaid": "Mermaid (the default)",
    "dot": "DOT, for Graphviz",
    "svg": "SVG, a picture",
    "text": "an outline for people",
}
DOCUMENT_SUFFIXES = (".json", ".yaml", ".yml")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "file",
        metavar="FILE|RUN",
        help="the document (- for standard input), or the id or name of a run",
    )
    form = parser.add_mutually_exclusive_group()
    for name, title in TITLES.items():
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"write {title}")
    parser.set_defaults(form="mermaid")
    parser.add_argument("--at", metavar="MOMENT", help=f"draw the run as it was after {HELP}")
    parser.add_argument(
        "--finding", metavar="N", type=int, help="draw the counter-example of the Nth finding of `perdure check`"
    )
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(args.load)
    if args.file == "-" or Path(args.file).exists() or args.file.endswith(DOCUMENT_SUFFIXES):
        if args.at is not None:
            raise BadUsage("--at is for runs; a document has no history")
        return complete(_draw_document(args, talk))
    if args.finding is not None:
        raise BadUsage("--finding is for documents; a run is drawn as it went")
    try:
        return complete(_draw_run(args, talk))
    except RunNotFound as error:
        raise RunNotFound(f"there is neither a file nor a run {args.file!r}", hint=error.advice) from None
    except StoreMissing as error:
        raise StoreMissing(f"there is no file {args.file!r}, and no store with runs: {error}") from None


async def _draw_document(args: argparse.Namespace, talk: Console) -> int:
    document = await validate(*read(args.file), DocumentValidator(languages()))
    if document.errors:
        for line in document.lines():
            talk.always(line)
        raise ProblemsFound(document)
    assert document.language is not None
    if not document.language.draws_graphs or document.program is None:
        raise NoPicture(f"a document in {document.language.name!r} cannot be drawn")
    graph = document.language.graph(document.program)
    if args.finding is not None:
        finding = _finding(args.finding, (await with_findings(document)).findings)
        example = ExampleDrawing(graph, finding.defect)
        talk.say(finding.describe(document.origin))
        _give(args, markup.draw(args.form, graph, example.statuses, example.taken), example.plain(finding))
        return Exit.OK
    _give(args, markup.draw(args.form, graph), markup.graph_json(graph))
    return Exit.OK


def _finding(number: int, findings: Sequence[SoundnessFinding]) -> SoundnessFinding:
    if 1 <= number <= len(findings):
        return findings[number - 1]
    known = f"findings 1 to {len(findings)}" if findings else "no findings"
    raise BadUsage(f"there is no finding {number}: the document has {known}", hint="See `perdure check FILE`.")


async def _draw_run(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        drawing = await access.ask(DRAWING, MomentQuery(at=args.at), await access.resolve(args.file))
    _give(args, markup.draw(args.form, drawing.graph, drawing.statuses, set(drawing.taken)), drawing.facts)
    return Exit.OK


def _give(args: argparse.Namespace, drawn: str, facts: dict[str, Any]) -> None:
    if args.json:
        give_json({"form": args.form, "text": drawn, **facts})
    else:
        give_text(drawn)
