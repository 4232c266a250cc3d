"""`graph`: a document as a picture, or as text that other tools draw."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.documents import ProblemsFound, read, validate
from perdure.cli.exit_codes import Exit
from perdure.cli.graph_formats import FORMS
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import load_sources
from perdure.cli.stdout import give_json, give_text
from perdure.engine.document_validation import DocumentValidator
from perdure.kernel.errors import PerdureError
from perdure.wiring import languages

EXAMPLES = """\
examples:
  perdure graph flow.json                      Mermaid text, as GitHub and many editors draw it
  perdure graph flow.json --svg > flow.svg
  perdure graph flow.json --dot | dot -Tpng > flow.png
"""


class NoPicture(PerdureError):
    """The document's language cannot be drawn."""

    code = "NO-PICTURE"
    hint = "Flows can be drawn."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="FILE", help="the document; - for standard input")
    form = parser.add_mutually_exclusive_group()
    for name in FORMS:
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"write {name}")
    parser.set_defaults(form="mermaid")
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    load_sources(asked.load)
    return complete(_draw(asked, talk))


async def _draw(asked: argparse.Namespace, talk: Console) -> int:
    judged = await validate(*read(asked.file), DocumentValidator(languages()))
    if judged.errors:
        for line in judged.lines():
            talk.always(line)
        raise ProblemsFound(judged)
    assert judged.language is not None
    if not judged.language.draws_graphs or judged.program is None:
        raise NoPicture(f"a document in {judged.language.name!r} cannot be drawn")
    drawn = FORMS[asked.form](judged.language.graph(judged.program))
    if asked.json:
        give_json({"form": asked.form, "text": drawn})
    else:
        give_text(drawn)
    return Exit.OK
