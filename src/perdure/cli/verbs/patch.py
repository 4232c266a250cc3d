"""`patch`: change the `ctx` of a Playbook's run, where gates that wait for it open at once; or change a run that its
language shows as a resource, in the manner of a merge patch.
"""

import argparse
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer
from perdure.cli.errors import BadUsage
from perdure.cli.interrupts import complete
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values.values import RunId
from perdure.views.access import Access
from perdure.views.resources.resource_changes import ResourcePatch, check_parts

EXAMPLES = """\
examples:
  perdure patch 06g2k --ctx '{"approved": true}'
  perdure patch 06g2k --ctx @decision.json --reason "checked by hand" --by Ada
  perdure patch 06g2k --set approved=true              members, one by one; dots reach into maps
  perdure patch storyrun deploy-x7k --type merge -p '{"spec": {"cancelRequested": true}}'
  perdure patch storyrun deploy-x7k --subresource status -p '{"status": {"gates": {"ok": {"state": "Approved"}}}}'

The patch is stored when the command returns. A run that has ended is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN", help="the run's id or name; with -p the kind: `KIND NAME` or `KIND/NAME`")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the name of a run of that kind")
    parser.add_argument("--ctx", metavar="JSON|@FILE", type=a.json_or_file, help="the members of ctx to set")
    parser.add_argument("--set", metavar="K=V", type=a.pair, action="append", default=[], help="set one member of ctx")
    parser.add_argument("-p", "--patch", metavar="JSON|@FILE", type=a.json_or_file, help="the members to change")
    parser.add_argument("--type", choices=("merge", "strategic"), default="merge", help="the patch type of -p")
    parser.add_argument("--subresource", choices=("status",), help="the part that -p changes")
    a.add_namespace(parser, "of this namespace (default: any)")
    parser.add_argument("--reason", metavar="TEXT", default="", help="the reason; recorded in the history")
    parser.add_argument("--by", metavar="WHO", default="", help="who decided this; recorded in the history")
    a.add_key(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.patch is None and args.name is None:
        return _patch_ctx(args, talk)
    if args.patch is None or args.ctx is not None or args.set:
        raise BadUsage("use either KIND NAME -p PATCH or RUN --ctx MEMBERS")
    if not isinstance(args.patch, dict):
        raise BadUsage("a merge patch is a JSON object")
    kind, _, name = args.run.partition("/") if args.name is None else (args.run, "", args.name)
    if not name:
        raise BadUsage("a name is required: KIND NAME or KIND/NAME")
    args.run = name
    patch = ResourcePatch(kind, args.patch, args.subresource)
    check_parts(patch)
    return complete(steer(args, talk, "patched", lambda access, run: access.patch_resource(run, patch, args.by)))


def _patch_ctx(args: argparse.Namespace, talk: Console) -> int:
    members = {} if args.ctx is None else args.ctx
    if not isinstance(members, dict):
        raise BadUsage(
            "--ctx takes the members to set, as a JSON object", hint="For example: --ctx '{\"approved\": true}'."
        )
    if not members and not args.set:
        raise BadUsage("nothing to set", hint="For example: --ctx '{\"approved\": true}', or --set approved=true.")
    for name, text in args.set:  # a dotted name stays one: the run assigns the nested path
        members = {**members, name: a.with_members(None, [("value", text)])["value"]}
    body = {"ctx": members, "reason": args.reason}
    return complete(steer(args, talk, "ctx patched", lambda access, run: _send_ctx(access, run, body, args)))


async def _send_ctx(access: Access, run: RunId, body: dict[str, Any], args: argparse.Namespace) -> SendResult:
    return await access.steer(run, "patch", body, key=args.key, by=args.by)
