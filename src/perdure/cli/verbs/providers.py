"""`providers`: what tasks may call here, and with which parameters."""

import argparse
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Cell, Column, table
from perdure.views.provider_list import Provider, find_provider, list_parameters, list_providers
from perdure.wiring import load_sources

EXAMPLES = """\
examples:
  perdure providers                        included and installed providers
  perdure providers --load ./tasks.py      also those that this file registers
  perdure providers shell                  one provider, with its parameters
"""

COLUMNS = (Column("NAME"), Column("RUNS"), Column("DESCRIPTION", may_shrink=True))
PARAMETERS = (Column("PARAMETER"), Column("TYPE"), Column("DEFAULT"), Column("", may_shrink=True))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("name", metavar="NAME", nargs="?", help="show only this provider, with its parameters")
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    load_sources(asked.load)
    if asked.name is None:
        _list(asked)
    else:
        _show(asked)
    return Exit.OK


def _list(asked: argparse.Namespace) -> None:
    providers = list_providers()
    if asked.json:
        give_json([entry.json() for entry in providers])
        return
    cells = [
        [(entry.name, ""), _mode(entry.provider), (entry.problem or _first_line(entry.description), "")]
        for entry in providers
    ]
    give_text("\n".join(table(COLUMNS, cells)))


def _show(asked: argparse.Namespace) -> None:
    entry = find_provider(asked.name)
    provider = entry.provider
    if asked.json:
        give_json(entry.json())
    elif provider is None:
        give_text(f"{entry.name}: {entry.problem}")
    else:
        effects = "may have side effects" if provider.side_effects else "has no side effects"
        head = f"{provider.name} ({provider.mode.value}; {effects})"
        give_text("\n".join([head, "", cleandoc(provider.description), "", *_parameters(provider.parameters)]))


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    cells = [
        [
            (parameter.name, ""),
            (parameter.type, ""),
            ("required" if parameter.is_required else parameter.default, "dim"),
            (_first_line(parameter.description), ""),
        ]
        for parameter in list_parameters(schema)
    ]
    return table(PARAMETERS, cells) if cells else ["It takes no parameters."]


def _mode(provider: Provider | None) -> Cell:
    return ("-", "red") if provider is None else (provider.mode.value, "dim")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
