"""`config view`: the settings in force, and where each comes from: flag, environment, file, context or default."""

import argparse
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.server_choice import chosen_server, context_of
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel.json_values import jsontext
from perdure.server.limits import settings_in_force
from perdure.wiring import url_to_type

EXAMPLES = """\
examples:
  perdure config view                      the settings in force
  perdure config view --show-origin        also where each of them comes from
  perdure config view --config server.toml --show-origin --json

Flags take precedence over the environment (PERDURE_SERVER, PERDURE_TOKEN, PERDURE_NAMESPACE, PERDURE_DB,
PERDURE_CONFIG, PERDURE_POLICY), the environment over the settings file or the context in use, and these over the
defaults. Tokens and passwords are not printed. Tables such as policy and limits are those of a server.
"""

MASK = "***"
DEFAULT = "default"
_SECRET = re.compile(r"secret|password|token$")
_LOGIN = re.compile(r"(?<=://)[^/@\s\"]+@")

Setting = tuple[str, Any, str]
"""Name, value, origin."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    view = actions.add_parser("view", help="print the settings in force", allow_abbrev=False)
    view.add_argument("--show-origin", action="store_true", help="also say where each setting comes from")
    view.add_argument("--config", metavar="FILE", help="the settings file (default: $PERDURE_CONFIG)")
    view.add_argument("-n", "--namespace", metavar="NS", type=a.namespace, help="as a command would name it")
    a.add_shared_again(view)


def perform(args: argparse.Namespace, talk: Console) -> int:
    settings = [(name, _masked(name, value), origin) for name, value, origin in (*_client(args), *_server(args))]
    if args.json:
        give_json(
            [
                {"name": name, "value": value, **({"origin": origin} if args.show_origin else {})}
                for name, value, origin in settings
            ]
        )
        return Exit.OK
    columns = [Column("NAME"), Column("VALUE", may_shrink=True), *([Column("ORIGIN")] if args.show_origin else [])]
    rows = [
        [(name, ""), (_text(value), ""), *([(origin, "dim")] if args.show_origin else [])]
        for name, value, origin in settings
    ]
    give_text("\n".join(table(columns, rows)))
    return Exit.OK


def _client(args: argparse.Namespace) -> Iterator[Setting]:
    """What chooses where commands go."""
    as_of_a_look = argparse.Namespace(**{**vars(args), "verb": "ps"})
    choice = chosen_server(as_of_a_look)
    context = None if choice is None else choice.context or context_of(choice.url)
    yield "server", choice and choice.url, choice.origin if choice is not None else DEFAULT
    for origin, text in (
        ("--access-token", args.access_token),
        ("PERDURE_TOKEN", os.environ.get("PERDURE_TOKEN")),
        ("context", context and (context.token or context.token_file)),
    ):
        if text:
            yield "access_token", MASK, origin
            break
    else:
        yield "access_token", None, DEFAULT
    if context is not None and context.ca and not os.environ.get("PERDURE_CA"):
        yield "ca", context.ca, "context"
    else:
        yield from _by_environment("ca", "PERDURE_CA", None)
    if args.namespace:
        yield "namespace", args.namespace, "--namespace"
    elif context is not None and context.namespace and not os.environ.get("PERDURE_NAMESPACE"):
        yield "namespace", context.namespace, "context"
    else:
        yield from _by_environment("namespace", "PERDURE_NAMESPACE", "default")
    if args.names_store:
        yield "db", url_to_type(args.db), "--db"
    else:
        yield "db", url_to_type(args.db), "PERDURE_DB" if os.environ.get("PERDURE_DB") else DEFAULT
    if args.config:
        yield "config", args.config, "--config"
    else:
        yield from _by_environment("config", "PERDURE_CONFIG", None)


def _by_environment(name: str, variable: str, default: Any) -> Iterator[Setting]:
    text = os.environ.get(variable)
    yield name, text or default, variable if text else DEFAULT


def _server(args: argparse.Namespace) -> Iterator[Setting]:
    """What a server would read, member by member."""
    environment = dict(os.environ) | ({"PERDURE_CONFIG": args.config} if args.config else {})
    name = environment.get("PERDURE_CONFIG", "").strip()
    try:
        written: dict[str, Any] = tomllib.loads(Path(name).read_text("utf-8")) if name else {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadUsage(f"the settings file {name!r} cannot be read: {error}", hint="") from None
    variable: Mapping[str, Any] = jsontext.decode(environment.get("PERDURE_POLICY") or "{}")
    for table_name, members in settings_in_force(environment).items():
        in_file = written.get(table_name)
        if not isinstance(members, dict):
            yield table_name, members, name if in_file else DEFAULT
            continue
        for member, value in members.items():
            if table_name == "policy" and member in variable:
                origin = "PERDURE_POLICY"
            elif isinstance(in_file, dict) and member in in_file:
                origin = name
            else:
                origin = DEFAULT
            yield f"{table_name}.{member}", value, origin


def _masked(name: str, value: Any) -> Any:
    """A secret, or a login in an address, is nobody's business; also inside of tables."""
    if value and _SECRET.search(name):
        return MASK
    match value:
        case str():
            return _LOGIN.sub(f"{MASK}@", value)
        case list():
            return [_masked("", item) for item in value]
        case dict():
            return {member: _masked(member, item) for member, item in value.items()}
        case _:
            return value


def _text(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else jsontext.encode(value).decode()
