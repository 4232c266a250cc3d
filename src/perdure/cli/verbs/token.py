"""`token`: access tokens of a server, made, listed and revoked on the store, or through a server as admin."""

import argparse
from typing import Any
from urllib.parse import quote

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel.json_values.values import SECOND
from perdure.views.administration.access_tokens import AccessRole, create_token, list_tokens, revoke_token
from perdure.views.administration.audit_log import act_on_store, seal_on_store

EXAMPLES = """\
examples:
  perdure token create --name ci --role operator --namespace shop --expires 90d
  perdure token create --name gpu-1 --role worker --pool gpu --json
  perdure token list
  perdure token revoke ci

A token is printed once; the store keeps only its hash. A viewer reads; an operator also starts and controls runs; an
author also sends documents and changes resources; an admin may do everything; a worker may only do tasks of its pools.
A revoked token is refused by every server within a second, and its name cannot be used again.
"""

TOKENS = "/api/v1/tokens"

COLUMNS = (
    Column("NAME"),
    Column("ROLE"),
    Column("NAMESPACES", may_shrink=True),
    Column("EXPIRES", may_go=True),
    Column("STATE"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a token and print it once")
    create.add_argument("--name", metavar="N", required=True, help="what the token is called, in the audit log too")
    create.add_argument(
        "--role", metavar="R", required=True, choices=[role.value for role in AccessRole], help="what it allows"
    )
    create.add_argument(
        "--namespace", metavar="NS", action="append", default=[], help="only this namespace; may be repeated"
    )
    create.add_argument(
        "--pool", metavar="P", action="append", default=[], help="for the role worker: a pool; may be repeated"
    )
    create.add_argument("--expires", metavar="DURATION", type=a.duration, help="how long it is valid, e.g. 30d")
    listing = actions.add_parser("list", help="list the tokens, without the tokens themselves")
    revoke = actions.add_parser("revoke", help="make a token invalid at once")
    revoke.add_argument("name", metavar="NAME", help="the name of the token")
    for action in (create, listing, revoke):
        a.add_shared_again(action)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete({"create": _create, "list": _list, "revoke": _revoke}[args.action](args, talk))


async def _create(args: argparse.Namespace, talk: Console) -> int:
    if args.choice is not None:
        body = {"name": args.name, "role": args.role, "namespaces": args.namespace, "pools": args.pool}
        body |= {} if args.expires is None else {"expires_in": args.expires / SECOND}
        async with server_access(args, talk.say) as server:
            made = await server.call("POST", TOKENS, body)
    else:
        made = await _create_on_store(args, talk)
    if args.json:
        give_json(made)
    else:
        give_text(made["token"])
        talk.say("It is not shown again.")
    return Exit.OK


async def _create_on_store(args: argparse.Namespace, talk: Console) -> dict[str, Any]:
    async with open_client(args, talk) as client:
        made = await create_token(
            client.acting(act_on_store(client, "create_access_token", f"token/{args.name}")),
            args.name,
            AccessRole(args.role),
            namespaces=args.namespace,
            pools=args.pool,
            expires_in=args.expires,
            by="store",
        )
        await seal_on_store(client)
    shown = {"name": made.name, "role": made.role, "namespaces": made.namespaces and list(made.namespaces)}
    return {**shown, "pools": list(made.pools), "expires_at": made.expires_at, "token": made.token}


async def _list(args: argparse.Namespace, talk: Console) -> int:
    if args.choice is not None:
        async with server_access(args, talk.say) as server:
            tokens = [token async for token in server.pages(TOKENS)]
    else:
        async with open_client(args, talk, must_exist=True) as client:
            tokens = await list_tokens(client)
    if args.json:
        give_json(tokens)
    elif tokens:
        rows = [
            [
                (token["name"], ""),
                (token["role"], ""),
                (", ".join(token["namespaces"] or ["all"]), ""),
                (token["expires_at"] or "never", ""),
                ("valid" if token["valid"] else "revoked" if token["revoked_at"] else "expired", ""),
            ]
            for token in tokens
        ]
        give_text("\n".join(table(COLUMNS, rows)))
    else:
        talk.say("no tokens")
    return Exit.OK


async def _revoke(args: argparse.Namespace, talk: Console) -> int:
    if args.choice is not None:
        async with server_access(args, talk.say) as server:
            revoked = await server.call("DELETE", f"{TOKENS}/{quote(args.name, safe='')}")
    else:
        async with open_client(args, talk, must_exist=True) as client:
            act = act_on_store(client, "revoke_access_token", f"token/{args.name}")
            revoked = await revoke_token(client.acting(act), args.name)
            await seal_on_store(client)
    if args.json:
        give_json(revoked)
    talk.say(f"token {args.name!r} is revoked")
    return Exit.OK
