"""`providers`: what tasks may call here, and with which parameters."""

import argparse
import sys
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.open_engine import load_sources
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel import jsontext
from perdure.kernel.problems import guess
from perdure.providers.registry import Provider, shared
from perdure.views.errors import ProviderNotFound

EXAMPLES = """\
examples:
  perdure providers                        what comes with Perdure and what is installed
  perdure providers --load ./tasks.py      and what this file registers
  perdure providers shell                  one of them, with its parameters
"""

COLUMNS = (Column("NAME"), Column("RUNS"), Column("DESCRIPTION", may_shrink=True))
PARAMETERS = (Column("PARAMETER"), Column("TYPE"), Column("DEFAULT"), Column("", may_shrink=True))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this one, with its parameters")
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    load_sources(asked.load)
    if asked.name is None:
        _list(asked)
    else:
        _show(asked)
    return Exit.OK


def _list(asked: argparse.Namespace) -> None:
    found = [(name, _find(name)) for name in shared.names()]
    if asked.json:
        give_json([_plain(name, one) for name, one in found])
        return
    cells = [
        [(name, ""), _runs(one), (one if isinstance(one, str) else _first_line(one.description), "")]
        for name, one in found
    ]
    give_text("\n".join(table(COLUMNS, cells, width_of(sys.stdout), Paint(sys.stdout))))


def _show(asked: argparse.Namespace) -> None:
    one = _find(asked.name) if shared.knows(asked.name) else None
    if one is None:
        raise ProviderNotFound(f"there is no provider {asked.name!r}{guess(asked.name, shared.names())}")
    if asked.json:
        give_json(_plain(asked.name, one))
    elif isinstance(one, str):
        give_text(f"{asked.name}: {one}")
    else:
        effects = "may have side effects" if one.side_effects else "has no side effects"
        head = f"{one.name} ({_runs(one)[0]}; {effects})"
        give_text("\n".join([head, "", cleandoc(one.description), "", *_parameters(one.parameters)]))


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required", ())
    cells = [
        [
            (name, ""),
            (_type(about), ""),
            ("required" if name in required else _default(about), "dim"),
            (_first_line(about.get("description", "")), ""),
        ]
        for name, about in schema.get("properties", {}).items()
    ]
    return table(PARAMETERS, cells, width_of(sys.stdout), Paint(sys.stdout)) if cells else ["It takes no parameters."]


def _type(about: Mapping[str, Any]) -> str:
    """A schema in few words: `list of string`, `string or null`, `"json"`."""
    if "anyOf" in about:
        return " or ".join(_type(one) for one in about["anyOf"])
    if "$ref" in about:
        return "object"
    if "enum" in about:
        return " or ".join(jsontext.encode(one).decode() for one in about["enum"])
    kind = about.get("type", "any")
    if kind == "array" and about.get("items"):
        return f"list of {_type(about['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _default(about: Mapping[str, Any]) -> str:
    return jsontext.encode(about["default"]).decode() if about.get("default") is not None else ""


def _find(name: str) -> Provider | str:
    """The provider, or why it cannot be had: one that is broken must not hide the others."""
    try:
        found = shared.find(name)
    except Exception as error:
        return f"cannot be loaded: {type(error).__name__}: {error}"
    return found or "cannot be loaded"


def _runs(one: Provider | str) -> tuple[str, str]:
    return ("-", "red") if isinstance(one, str) else (one.mode.value, "dim")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _plain(name: str, one: Provider | str) -> dict[str, Any]:
    if isinstance(one, str):
        return {"name": name, "problem": one}
    return {
        "name": name,
        "description": one.description,
        "mode": one.mode.value,
        "side_effects": one.side_effects,
        "parameters": one.parameters,
    }
