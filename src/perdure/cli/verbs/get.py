"""`get`: what the catalog holds, and runs as resources."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.resource_output import FORMS, give_resources
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.views.resources.resource_list import RESOURCES, ResourceListQuery, kind_json
from perdure.wiring import languages

LIMIT = 500

EXAMPLES = """\
examples:
  perdure get                              list the kinds
  perdure get stories                      of namespace `default`; -n NS for another one, -A for all
  perdure get story deploy -o yaml         as it can be applied again
  perdure get stories,engrams -l team=blue
  perdure get storyruns -A -o wide         runs, as their language shows them
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", metavar="KIND [NAME…]", nargs="*", help="KIND, KIND NAME… or KIND/NAME…")
    namespaces = a.add_namespace(parser, "only resources of this namespace (default: default)")
    namespaces.add_argument("-A", "--all-namespaces", action="store_true", help="resources of all namespaces")
    parser.add_argument("-o", "--output", choices=FORMS, help="another format instead of a table")
    a.add_selector(parser)
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"at most N runs, the latest (default: {LIMIT})"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_get(args, talk))


async def _get(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        if not args.what:
            _give_kinds(as_json=args.json)
            return Exit.OK
        form = "json" if args.json else args.output
        query = ResourceListQuery(
            what=args.what,
            namespace=None if args.all_namespaces else args.namespace,
            all_namespaces=args.all_namespaces,
            label=[f"{name}={value}" for name, value in args.selector],
            limit=args.limit,
            usage=form in ("json", "yaml"),
        )
        answer = await access.ask(RESOURCES, query)
    give_resources(answer.resources, form, answer.now, alone=answer.is_alone, all_namespaces=args.all_namespaces)
    if answer.is_cut:
        talk.say(f"these are the latest {args.limit}; --limit N gives more")
    if not answer.resources and form not in ("json", "yaml"):
        is_namespaced = not args.all_namespaces and answer.has_namespaces
        talk.say(
            f"no resources found in namespace {args.namespace or 'default'!r}"
            if is_namespaced
            else "no resources found"
        )
    return Exit.OK


def _give_kinds(*, as_json: bool) -> None:
    kinds = [kind for language in languages().values() for kind in language.kinds]
    if as_json:
        give_json([kind_json(kind) for kind in kinds])
        return
    columns = [Column("KIND"), Column("PLURAL"), Column("SHORT"), Column("GROUP"), Column("IS", may_go=True)]
    rows = [
        [(text, "") for text in (kind.name, kind.plural, ",".join(kind.short) or "-", kind.group, _description(kind))]
        for kind in kinds
    ]
    give_text("\n".join(table(columns, rows)))


def _description(kind: ResourceKind) -> str:
    scope = "in a namespace" if kind.has_namespace else "for all namespaces"
    return "a view of runs" if kind.of_runs else f"kept {scope}"
