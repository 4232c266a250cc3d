"""`lsp`: a language server for editors (Language Server Protocol), over standard input and output."""

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.open_engine import store_if_any
from perdure.editor.schema_lookup import LanguageSchema, ProviderFacts
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.views.resources.document_check import validator_for
from perdure.views.resources.provider_list import list_document_providers
from perdure.wiring import languages, load_sources

EXAMPLES = """\
examples:
  perdure lsp                        what an editor starts; docs/guide/editors.md has the lines for yours
  perdure lsp --load ./tasks.py      with your own providers

It shows problems while you type, as `perdure check` does, and beside the local catalog if a document refers to it;
completes steps, fields, providers and roots of expressions; explains fields; finds, lists and renames steps; and draws
a document with the command perdure.graph (arguments: the address of the document, and mermaid, svg, dot or text).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--stdio", action="store_true", help="use standard input and output (it always does)")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    try:
        import pygls.lsp.server  # noqa: F401  (asked for here, so that its absence is explained)
    except ImportError as error:
        raise BadUsage(f"lsp needs a package: {error.name}", hint="pip install 'perdure[lsp]'") from None
    from perdure.cli.language_server.server import language_server
    from perdure.cli.language_server.workspace_texts import WorkspaceTexts

    # What loaded code prints must not get between the messages.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        load_sources(args.load)

        @asynccontextmanager
        async def open_validator() -> AsyncIterator[DocumentValidator]:
            async with store_if_any(args, talk) as store:
                yield validator_for(known, store)

        known = languages()
        providers = [
            ProviderFacts(entry.name, entry.description, dict(entry.provider.parameters) if entry.provider else {})
            for entry in list_document_providers()
        ]
        schemas = {
            name: LanguageSchema(name, schema, providers)
            for name, language in known.items()
            if (schema := language.document_schema()) is not None
        }
        server = language_server(WorkspaceTexts(DocumentValidator(known), schemas), schemas, open_validator)
        talk.say("the language server is ready")
        server.start_io(sys.stdin.buffer, output)
    return Exit.OK
