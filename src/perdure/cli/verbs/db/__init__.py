"""`db`: looking after the store itself. Each verb within it is a module here, as verbs are in the folder above."""

import argparse
from importlib import import_module

from perdure.cli.arguments import add_shared_again
from perdure.cli.console import Console
from perdure.cli.main import EXIT_CODES, Formatter
from perdure.cli.server_choice import refuse_server

ACTIONS: dict[str, str] = {
    "status": "print figures: schema, owners, runs, backlog, sizes",
    "migrate": "bring the schema up to date",
    "validate": "read everything and report inconsistencies",
    "recount": "count the runs again, for figures that were wrong",
    "copy": "copy everything into another store, open runs included",
}
"""Name of the module → what it does in one line."""

EXAMPLES = """\
examples:
  perdure db status                                       figures of the store
  perdure db validate --db postgresql://db.example/runs   reads everything; exit code 7 if something is wrong
  perdure db copy sqlite:///runs.db postgresql://db.example/runs
  perdure db migrate --dry-run                            what an upgrade would change

`perdure db ACTION --help` explains an action.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, line in ACTIONS.items():
        action = actions.add_parser(
            name,
            help=line,
            description=line[0].upper() + line[1:] + ".",
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        action_module = import_module(f"{__name__}.{name}")
        action_module.configure(action)
        add_shared_again(action)
        action.epilog = f"{action.epilog}\n{EXIT_CODES}"


def perform(args: argparse.Namespace, talk: Console) -> int:
    refuse_server(args)
    return int(import_module(f"{__name__}.{args.action}").perform(args, talk))
