"""`schema`: what documents of a language may contain, as JSON Schema, for editors."""

import argparse

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json
from perdure.views.resources.document_check import schema_of_language
from perdure.wiring import languages

EXAMPLES = """\
examples:
  perdure schema flow > flow.schema.json
  perdure schema playbook > playbook.schema.json

JSON Schema 2020-12, made from the rules of `perdure check`. Editors complete and check with it; in YAML, name it on the
first line: # yaml-language-server: $schema=playbook.schema.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("language", metavar="LANGUAGE", help="flow, playbook or story")


def perform(args: argparse.Namespace, talk: Console) -> int:
    give_json(schema_of_language(languages(), args.language))
    return Exit.OK
