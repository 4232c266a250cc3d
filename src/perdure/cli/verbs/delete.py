"""`delete`: take resources out of the catalog; runs keep what they began with."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console, indented
from perdure.cli.documents import read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.stdout import give_json, give_text
from perdure.engine.catalog import ResourceNotFound, key_of
from perdure.engine.client import Client
from perdure.engine.resource_views import find_views
from perdure.engine.retention import Sweeper
from perdure.kernel.errors import Conflict
from perdure.kernel.lookups import ResourceKey
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.values import RunId
from perdure.views.resource_names import full_resource_names

EXAMPLES = """\
examples:
  perdure delete story deploy
  perdure delete engram builder shipper -n shop
  perdure delete -f story.yaml --ignore-not-found

All of them are removed, or none. A StoryRun that has ended goes with its sub-runs; where one of those is still open it
is cancelled, and the StoryRun goes when it has stopped. See also `perdure prune`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND NAME…", nargs="*", help="KIND NAME… or KIND/NAME…")
    a.add_files(parser)
    a.add_namespace(parser, "of this namespace (default: default)")
    parser.add_argument("--ignore-not-found", action="store_true", help="what is not there needs no removal")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    if bool(asked.what) == bool(asked.files):
        raise BadUsage("name resources, or files that declare them with -f")
    return complete(_delete(asked, talk))


async def _delete(asked: argparse.Namespace, talk: Console) -> int:
    async with open_client(asked, talk, must_exist=True) as client:
        meant = dict(_keys(client, asked))
        there = await client.store.resources(list(meant))
        runs = {key: run for key, kind in meant.items() if kind.of_runs for run in await _ended(client, kind, key)}
        missing = [key for key in meant if key not in there and key not in runs]
        if missing and not asked.ignore_not_found:
            titles = ", ".join(meant[key].title(key.name) for key in missing)
            raise ResourceNotFound(f"there is no {titles}; nothing was removed")
        for run in runs.values():
            if not await Sweeper(client).remove(run):  # sub-runs of it are open: they stop first (STY-091)
                await Sweeper(client).disown(run)
                talk.say(
                    f"run {run} is removed as soon as its sub-runs have stopped and what was said to them is decided"
                )
        gone = [*await client.catalog.delete(list(there)), *runs]
        if asked.json:
            give_json([{"kind": key.kind, "namespace": key.namespace or None, "name": key.name} for key in gone])
        elif gone:
            give_text("\n".join(indented(f"{meant[key].title(key.name)} deleted") for key in gone))
        return Exit.OK


async def _ended(client: Client, kind: ResourceKind, key: ResourceKey) -> list[RunId]:
    """The run of that name, if there is one; one that has not ended is not removed (STY-191)."""
    found = [row for row, _ in await find_views(client, kind, key.name, key.namespace)]
    for row in found:
        if not row.status.is_final:
            hint = f"Cancel it first: `perdure cancel {row.id}`."
            raise Conflict(f"{kind.title(key.name)} has not ended; nothing was removed", hint=hint)
        if row.has_control_messages:
            hint = f"Have it decided: `perdure resume {row.id}`; then remove it."
            raise Conflict(f"{kind.title(key.name)} was told something that is not decided yet; it stays", hint=hint)
    return [row.id for row in found]


def _keys(client: Client, asked: argparse.Namespace) -> list[tuple[ResourceKey, ResourceKind]]:
    if asked.files:
        entries, _ = client.catalog.entries(read_applied(asked.files), asked.namespace or "")
        return [(entry.key, entry.kind) for entry in entries]
    found = full_resource_names(client.catalog, asked.what)
    for one in found:
        if one.kind.of_runs and not one.kind.is_request:
            raise BadUsage(f"a {one.kind.name} is a run; stop it with `perdure cancel`, remove it with `perdure prune`")
    return [(key_of(one.kind, one.name or "", asked.namespace or ""), one.kind) for one in found]
