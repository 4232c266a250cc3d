"""`mcp`: runs and workflows as tools of a language model (Model Context Protocol), over standard input and output."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access, open_engine
from perdure.server.model_tools import offer, tools_of
from perdure.views.access import Access, StoreAccess
from perdure.views.administration.access_tokens import AccessRole

EXAMPLES = """\
examples:
  perdure mcp                                        runs of the local store, read only
  perdure mcp --server https://perdure.example.org   those of a server, with the token of your context
  perdure mcp --write --load tasks.py                also start, signal and cancel runs

A workflow is a tool if its author has labelled it `perdure.dev/tool: "true"`; starting one needs --write, and the role
operator. Contents of runs are passed on as data: anybody may have written them.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--write", action="store_true", help="also offer tools that start and control runs")
    a.add_namespace(parser, "offer workflows of this namespace only")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    try:
        import mcp.server.stdio  # noqa: F401  (asked for here, so that its absence is explained)
    except ImportError as error:
        raise BadUsage(f"mcp needs a package: {error.name}", hint="pip install 'perdure[mcp]'") from None
    return complete(_serve(args, talk))


async def _serve(args: argparse.Namespace, talk: Console) -> int:
    from mcp.server.stdio import stdio_server

    async with _opened(args, talk) as access:
        may_write = args.write and await _may_write(access, talk)
        tools = await tools_of(access, args.namespace, may_write=may_write)
        server = offer(access, tools)
        talk.say(f"{len(tools)} tools are offered on standard input and output")
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    return Exit.OK


@asynccontextmanager
async def _opened(args: argparse.Namespace, talk: Console) -> AsyncIterator[Access]:
    """On a store, whoever writes drives the runs that are started."""
    if args.choice is None and args.write:
        async with open_engine(args, talk, must_exist=True) as engine:
            yield StoreAccess(engine, is_recorded=False)
    else:
        async with open_access(args, talk) as access:
            yield access


async def _may_write(access: Access, talk: Console) -> bool:
    if isinstance(access, StoreAccess):
        return True
    role = AccessRole((await _remote(access).call("GET", "/api/v1/whoami"))["role"])
    if not role.includes(AccessRole.OPERATOR):
        talk.say(f"--write: the token has the role {role.value}; tools that change something are not offered")
        return False
    return True


def _remote(access: Access) -> Any:
    """A `ServerAccess`, which is not imported on a store."""
    return access
