"""`delete`: take resources out of the catalog; runs keep what they began with."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.answer import give_json, give_text
from perdure.cli.documents import read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exits import Exit
from perdure.cli.interruption import complete
from perdure.cli.naming import named
from perdure.cli.opening import open_client
from perdure.cli.talk import Talk
from perdure.engine.catalog import ResourceNotFound, key_of
from perdure.engine.client import Client
from perdure.kernel.kinds import Kind
from perdure.kernel.questions import Named

EXAMPLES = """\
examples:
  perdure delete story deploy
  perdure delete engram builder shipper -n shop
  perdure delete -f story.yaml --ignore-not-found

All of them are removed, or none. Runs are not kept in the catalog: see `perdure cancel` and `perdure prune`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND NAME…", nargs="*", help="KIND NAME… or KIND/NAME…")
    a.add_files(parser)
    a.add_namespace(parser, "of this namespace (default: default)")
    parser.add_argument("--ignore-not-found", action="store_true", help="what is not there needs no removal")


def perform(asked: argparse.Namespace, talk: Talk) -> int:
    if bool(asked.what) == bool(asked.files):
        raise BadUsage("name resources, or files that declare them with -f")
    return complete(_delete(asked, talk))


async def _delete(asked: argparse.Namespace, talk: Talk) -> int:
    async with open_client(asked, talk, must_exist=True) as client:
        meant = dict(_keys(client, asked))
        there = await client.store.resources(list(meant))
        missing = [key for key in meant if key not in there]
        if missing and not asked.ignore_not_found:
            titles = ", ".join(meant[key].title(key.name) for key in missing)
            raise ResourceNotFound(f"there is no {titles}; nothing was removed")
        gone = await client.catalog.delete(list(there))
        if asked.json:
            give_json([{"kind": key.kind, "namespace": key.namespace or None, "name": key.name} for key in gone])
        elif gone:
            give_text("\n".join(f"{meant[key].title(key.name)} deleted" for key in gone))
        return Exit.OK


def _keys(client: Client, asked: argparse.Namespace) -> list[tuple[Named, Kind]]:
    if asked.files:
        entries, _ = client.catalog.entries(read_applied(asked.files), asked.namespace or "")
        return [(entry.key, entry.kind) for entry in entries]
    found = named(client.catalog, asked.what)
    for one in found:
        if one.kind.of_runs:
            raise BadUsage(f"a {one.kind.name} is a run; stop it with `perdure cancel`, remove it with `perdure prune`")
    return [(key_of(one.kind, one.name or "", asked.namespace or ""), one.kind) for one in found]
