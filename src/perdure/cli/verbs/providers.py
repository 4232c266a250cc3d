"""`providers`: what tasks may call here, and with which parameters."""

import argparse
import sys
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.answer import give_json, give_text
from perdure.cli.exits import Exit
from perdure.cli.opening import load_sources
from perdure.cli.outline import outline
from perdure.cli.tables import Column, table
from perdure.cli.talk import Paint, Talk, width_of
from perdure.kernel.errors import RunNotFound
from perdure.kernel.problems import guess
from perdure.providers.registry import Provider, shared

EXAMPLES = """\
examples:
  perdure providers                        what comes with Perdure and what is installed
  perdure providers --load ./tasks.py      and what this file registers
  perdure providers shell                  one of them, with its parameters
"""

COLUMNS = (Column("NAME"), Column("RUNS"), Column("DESCRIPTION", may_shrink=True))


class ProviderNotFound(RunNotFound):
    """No provider of that name is shipped, installed or loaded."""

    code = "PROVIDER-NOT-FOUND"
    hint = "List them with `perdure providers`; bring your own with --load."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this one, with its parameters")
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Talk) -> int:
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
        parameters = outline(one.parameters, width_of(sys.stdout))
        give_text("\n".join([f"{one.name} ({_runs(one)[0]}; {effects})", "", one.description, "", *parameters]))


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
