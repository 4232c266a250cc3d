"""`get`: what the catalog holds, and runs as resources."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.resource_output import FORMS, Named, give_resources
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.engine.catalog import ResourceNotFound
from perdure.engine.client import Client
from perdure.engine.resource_usage import with_usage
from perdure.engine.resource_views import View, find_views, list_views
from perdure.kernel.resource_kinds import ResourceKind
from perdure.views.resource_names import ResourceName, resource_names

LIMIT = 500

EXAMPLES = """\
examples:
  perdure get                              the kinds there are
  perdure get stories                      of namespace `default`; -n NS for another one, -A for all
  perdure get story deploy -o yaml         as it can be applied again
  perdure get stories,engrams -l team=blue
  perdure get storyruns -A -o wide         runs, as their language shows them
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND [NAME…]", nargs="*", help="KIND, KIND NAME… or KIND/NAME…")
    where = a.add_namespace(parser, "only of this namespace (default: default)")
    where.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    parser.add_argument("-o", "--output", choices=FORMS, help="another form than a table")
    a.add_selector(parser)
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"of runs, the latest N (default: {LIMIT})"
    )


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_get(asked, talk))


async def _get(asked: argparse.Namespace, talk: Console) -> int:
    async with open_client(asked, talk, must_exist=True) as client:
        if not asked.what:
            _give_kinds(client, as_json=asked.json)
            return Exit.OK
        found: list[Named] = []
        is_cut = False
        asked_for = resource_names(client.catalog, asked.what)
        for one in asked_for:
            some, is_more = await _resources(client, one, asked)
            found += some
            is_cut = is_cut or is_more
        form = "json" if asked.json else asked.output
        alone = len(asked_for) == 1 and asked_for[0].name is not None
        everywhere = asked.all_namespaces
        give_resources(found, form, client.clock.now(), alone=alone, all_namespaces=everywhere)
        if is_cut:
            talk.say(f"these are the latest {asked.limit}; --limit N gives more")
        if not found and form not in ("json", "yaml"):
            is_placed = not everywhere and any(one.kind.has_namespace for one in asked_for)
            talk.say(
                f"no resources found in namespace {asked.namespace or 'default'!r}"
                if is_placed
                else "no resources found"
            )
        return Exit.OK


async def _resources(client: Client, one: ResourceName, asked: argparse.Namespace) -> tuple[list[Named], bool]:
    """What was asked for, and whether there is more of it."""
    labels = dict(asked.selector)
    namespace = None if asked.all_namespaces else asked.namespace or "default"
    if one.kind.of_runs:
        views, is_more = await _views(client, one, namespace, labels, asked.limit)
        return [_seen(one.kind, view) for view in views], is_more
    if one.name is None:
        entries = await client.catalog.search(one.kind, namespace, labels)
    else:
        entries = [(one.name, await client.catalog.get(one.kind, one.name, asked.namespace or ""))]
    resources = [resource for _, resource in entries]
    if asked.json or asked.output in ("json", "yaml"):
        resources = await with_usage(client, one.kind, resources)
    return [Named(one.kind, entry[0], resource) for entry, resource in zip(entries, resources, strict=True)], False


async def _views(
    client: Client, one: ResourceName, namespace: str | None, labels: dict[str, str], limit: int
) -> tuple[list[View], bool]:
    if one.name is None:
        return await list_views(client, one.kind, namespace, labels, limit)
    views = await find_views(client, one.kind, one.name, namespace)
    if not views:
        raise ResourceNotFound(f"there is no {one.kind.title(one.name)}")
    return views, False


def _seen(kind: ResourceKind, view: View) -> Named:
    row, resource = view
    return Named(kind, str(resource.get("metadata", {}).get("name", row.id)), resource)


def _give_kinds(client: Client, *, as_json: bool) -> None:
    kinds = client.catalog.kinds
    if as_json:
        give_json(
            [
                {
                    "kind": kind.name,
                    "plural": kind.plural,
                    "short": list(kind.short),
                    "group": kind.group,
                    "namespaced": kind.has_namespace,
                }
                for kind in kinds
            ]
        )
        return
    import sys

    columns = [Column("KIND"), Column("PLURAL"), Column("SHORT"), Column("GROUP"), Column("IS", may_go=True)]
    rows = [
        [(text, "") for text in (kind.name, kind.plural, ",".join(kind.short) or "-", kind.group, _what(kind))]
        for kind in kinds
    ]
    give_text("\n".join(table(columns, rows, None, Paint(sys.stdout))))


def _what(kind: ResourceKind) -> str:
    where = "in a namespace" if kind.has_namespace else "for all namespaces"
    return "a view of runs" if kind.of_runs else f"kept {where}"
