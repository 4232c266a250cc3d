"""`providers`: what tasks may call here, and with which parameters."""

import argparse
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.server_choice import refuse_load, server_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Cell, Column, table
from perdure.views.errors import ProviderNotFound
from perdure.views.resources.provider_list import find_provider, list_parameters, list_providers
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


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.choice is not None:
        refuse_load(args)
        return complete(_ask_server(args, talk))
    load_sources(args.load)
    if args.name is None:
        _list(args, [entry.json() for entry in list_providers()])
    else:
        _show(args, find_provider(args.name).json())
    return Exit.OK


async def _ask_server(args: argparse.Namespace, talk: Console) -> int:
    async with server_access(args, talk.say) as server:
        providers = [provider async for provider in server.pages("/api/v1/providers")]
    if args.name is None:
        _list(args, providers)
        return Exit.OK
    match = next((provider for provider in providers if provider["name"] == args.name), None)
    if match is None:
        raise ProviderNotFound(f"the server has no provider {args.name!r}")
    _show(args, match)
    return Exit.OK


def _list(args: argparse.Namespace, providers: list[dict[str, Any]]) -> None:
    if args.json:
        give_json(providers)
        return
    cells = [
        [(entry["name"], ""), _mode(entry), (entry.get("problem") or _first_line(entry["description"]), "")]
        for entry in providers
    ]
    give_text("\n".join(table(COLUMNS, cells)))


def _show(args: argparse.Namespace, entry: dict[str, Any]) -> None:
    if args.json:
        give_json(entry)
    elif "problem" in entry:
        give_text(f"{entry['name']}: {entry['problem']}")
    else:
        effects = "may have side effects" if entry["side_effects"] else "has no side effects"
        head = f"{entry['name']} ({entry['mode']}; {effects})"
        give_text("\n".join([head, "", cleandoc(entry["description"]), "", *_parameters(entry["parameters"])]))


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


def _mode(entry: dict[str, Any]) -> Cell:
    return ("-", "red") if "problem" in entry else (entry["mode"], "dim")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
