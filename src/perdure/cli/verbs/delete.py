"""`delete`: take resources out of the catalog; runs keep what they began with. `delete run`: remove ended runs."""

import argparse
from collections.abc import Sequence
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, indented
from perdure.cli.control import is_filtered, steer_runs
from perdure.cli.document_files import read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.resources.catalog import Catalog, ResourceNotFound, key_of
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.engine.runs.retention import delete_resources
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.views.administration.audit_log import audited
from perdure.views.resources.resource_changes import NO_NAMESPACE
from perdure.views.resources.resource_names import full_resource_names
from perdure.views.runs.batch_steering import Verb
from perdure.wiring import languages

RUN_WORDS = ("run", "runs")

EXAMPLES = """\
examples:
  perdure delete story deploy
  perdure delete engram builder shipper -n shop
  perdure delete -f story.yaml --ignore-not-found
  perdure delete run 06g2k 06g3m                 runs that have ended, each with all runs below it
  perdure delete run --status failed --dry-run   list the runs that would be deleted

Either all of them are deleted or none. A StoryRun that has ended is deleted together with its sub-runs; if one of those
is still open, it is cancelled first, and the StoryRun is deleted when it has stopped. See also `perdure prune`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND NAME…", nargs="*", help="KIND NAME… or KIND/NAME…")
    a.add_files(parser)
    a.add_namespace(parser, "namespace of the resources (default: default) or runs (default: all)")
    a.add_run_filter(parser)
    parser.add_argument("--ignore-not-found", action="store_true", help="do not fail if a resource does not exist")


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.what and args.what[0].lower().partition("/")[0] in RUN_WORDS:
        return complete(_delete_runs(args, talk))
    if is_filtered(args) or args.dry_run:
        raise BadUsage("a filter chooses runs: perdure delete run --status failed")
    if bool(args.what) == bool(args.files):
        raise BadUsage("name resources, or files that declare them with -f")
    return complete(_delete(args, talk))


async def _delete_runs(args: argparse.Namespace, talk: Console) -> int:
    if args.files:
        raise BadUsage("runs are named, or chosen by a filter; -f is for resources")
    first, *rest = args.what
    kind, _, run = first.partition("/")
    args.runs = [*([run] if run else []), *(name.removeprefix(f"{kind}/") for name in rest)]
    code, _ = await steer_runs(args, talk, Verb.DELETE, "deleted", lambda access, run: access.delete(run), members={})
    return code


async def _delete(args: argparse.Namespace, talk: Console) -> int:
    if args.choice is not None:
        return await _delete_on_server(args, talk)
    async with open_client(args, talk, must_exist=True) as client:
        kinds = dict(_keys(client.catalog, args))
        names = ", ".join(kind.title(key.name) for key, kind in list(kinds.items())[:10])
        acting = await audited(client, "delete_one_resource", names, namespace=args.namespace or "")
        deleted = await delete_resources(acting, kinds, ignore_missing=args.ignore_not_found)
        for run in deleted.waiting:
            talk.say(f"run {run} is removed as soon as its sub-runs have stopped and what was said to them is decided")
        _give(args, kinds, deleted.keys)
        return Exit.OK


async def _delete_on_server(args: argparse.Namespace, talk: Console) -> int:
    """All of them must be there before the first one is deleted."""
    dialects = languages()
    nowhere: Any = None  # what is deleted is looked up by the server
    kinds = dict(_keys(Catalog(nowhere, dialects, DocumentValidator(dialects), nowhere), args))
    keys = []
    async with server_access(args, talk.say) as server:
        for key, kind in kinds.items():
            try:
                await server.resource(kind.name, key.name, key.namespace or NO_NAMESPACE)
                keys.append(key)
            except ResourceNotFound:
                if not args.ignore_not_found:
                    raise
        for key in keys:
            await server.delete_resource(kinds[key].name, key.name, key.namespace or NO_NAMESPACE)
    _give(args, kinds, keys)
    return Exit.OK


def _give(args: argparse.Namespace, kinds: dict[ResourceKey, ResourceKind], keys: Sequence[ResourceKey]) -> None:
    if args.json:
        give_json([{"kind": key.kind, "namespace": key.namespace or None, "name": key.name} for key in keys])
    elif keys:
        give_text("\n".join(indented(f"{kinds[key].title(key.name)} deleted") for key in keys))


def _keys(catalog: Catalog, args: argparse.Namespace) -> list[tuple[ResourceKey, ResourceKind]]:
    if args.files:
        entries, _ = catalog.entries(read_applied(args.files), args.namespace or "")
        return [(entry.key, entry.kind) for entry in entries]
    names = full_resource_names(catalog, args.what)
    for name in names:
        if name.kind.of_runs and not name.kind.is_request:
            raise BadUsage(
                f"a {name.kind.name} is a run; stop it with `perdure cancel`, remove it with `perdure prune`"
            )
    return [(key_of(name.kind, name.name or "", args.namespace or ""), name.kind) for name in names]
