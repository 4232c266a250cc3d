"""`context`: servers under a name, with the token for each; one of them is in use."""

import argparse
import stat
from contextlib import suppress
from pathlib import Path

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.server_choice import (
    Context,
    Contexts,
    check_url,
    contexts_path,
    plain_json,
    read_contexts,
    read_token,
    write_contexts,
)
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.views.errors import ContextNotFound

EXAMPLES = """\
examples:
  perdure context add prod --server https://perdure.example.org --access-token @token
  perdure context add test --server http://127.0.0.1:8420 --access-token-file ~/.perdure-token -n shop
  perdure context use prod           all commands use this server from now on
  perdure context use --none         verbs work on a store again
  perdure context list
  perdure context remove test

The contexts are in a file that only you can read; `perdure context list` never prints a token. A store or a server
named by the command or the environment takes precedence over the context in use.
"""

COLUMNS = (Column(""), Column("NAME"), Column("SERVER", may_shrink=True), Column("NAMESPACE"), Column("TOKEN"))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="add a server, or replace it", allow_abbrev=False)
    add.add_argument("name", metavar="NAME", help="what you call it")
    add.add_argument("--access-token-file", metavar="FILE", help="read the token from this file whenever it is needed")
    add.add_argument("--ca", metavar="FILE", help="the authority of the server's certificate (see `perdure ca`)")
    add.add_argument(
        "-n", "--namespace", metavar="NS", type=a.namespace, help="the namespace of commands that name none"
    )
    use = actions.add_parser("use", help="use this server from now on", allow_abbrev=False)
    use.add_argument("name", metavar="NAME", nargs="?", help="of the context")
    use.add_argument("--none", action="store_true", help="use none: verbs work on a store")
    actions.add_parser("list", help="list the contexts", allow_abbrev=False)
    remove = actions.add_parser("remove", help="forget a context and its token", allow_abbrev=False)
    remove.add_argument("name", metavar="NAME", help="of the context")
    for action in actions.choices.values():
        a.add_shared_again(action)


def perform(args: argparse.Namespace, talk: Console) -> int:
    contexts = read_contexts()
    match args.action:
        case "add":
            _add(args, contexts)
            _warn_of_readers(contexts.contexts[args.name].token_file, talk)
        case "use":
            _use(args, contexts)
        case "remove":
            _need(contexts, args.name)
            del contexts.contexts[args.name]
            contexts.current = "" if contexts.current == args.name else contexts.current
    if args.action != "list":
        write_contexts(contexts)
        talk.say(_said(args, contexts))
    if args.json:
        give_json(plain_json(contexts))
    elif args.action == "list":
        _list(contexts, talk)
    return Exit.OK


def _add(args: argparse.Namespace, contexts: Contexts) -> None:
    if not args.server:
        raise BadUsage("a context needs the address of a server", hint="perdure context add NAME --server URL")
    if not args.name or args.name.startswith("-") or not args.name.isprintable():
        raise BadUsage(f"{args.name!r} is not a name for a context", hint="")
    if args.access_token and args.access_token_file:
        raise BadUsage("keep the token, or name its file: not both")
    contexts.contexts[args.name] = Context(
        check_url(args.server),
        read_token(args.access_token) if args.access_token else "",
        str(Path(args.access_token_file).expanduser().resolve()) if args.access_token_file else "",
        str(Path(args.ca).expanduser().resolve()) if args.ca else "",
        args.namespace or "",
    )
    contexts.current = contexts.current or args.name


def _warn_of_readers(file: str, talk: Console) -> None:
    """A token of which others on the machine can read the file is theirs as well."""
    with suppress(OSError):  # it comes later: then nobody can be warned here
        if file and stat.S_IMODE(Path(file).stat().st_mode) & 0o077:
            talk.say(f"warning: others can read the token in {file}; keep it to yourself: chmod 600 {file}")


def _use(args: argparse.Namespace, contexts: Contexts) -> None:
    if bool(args.name) == args.none:
        raise BadUsage("name a context, or --none", hint="perdure context list")
    if args.name:
        _need(contexts, args.name)
    contexts.current = args.name or ""


def _need(contexts: Contexts, name: str) -> None:
    if name not in contexts.contexts:
        known = ", ".join(sorted(contexts.contexts)) or "none"
        raise ContextNotFound(f"there is no context {name!r}; there are: {known}")


def _said(args: argparse.Namespace, contexts: Contexts) -> str:
    if not contexts.current:
        return "no context is in use: verbs work on a store"
    return f"in use: {contexts.current} ({contexts.contexts[contexts.current].server})"


def _list(contexts: Contexts, talk: Console) -> None:
    rows = [
        [
            ("*" if context["current"] else "", "green"),
            (context["name"], ""),
            (context["server"], ""),
            (context["namespace"] or "-", ""),
            ({"file": "in a file", "kept": "kept", None: "none"}[context["token"]], ""),
        ]
        for context in plain_json(contexts)
    ]
    if rows:
        give_text("\n".join(table(COLUMNS, rows)))
    else:
        talk.say(f"no contexts ({contexts_path()})")
