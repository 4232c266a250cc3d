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
from perdure.engine.resources.resource_views import find_views
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.errors import RunNotFound
from perdure.kernel.json_values.values import RunId
from perdure.views.access import Access, StoreAccess

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


def perform(asked: argparse.Namespace, talk: Console) -> int:
    if asked.patch is None and asked.name is None:
        return _patch_ctx(asked, talk)
    if asked.patch is None or asked.ctx is not None or asked.set:
        raise BadUsage("use either KIND NAME -p PATCH or RUN --ctx MEMBERS")
    if not isinstance(asked.patch, dict):
        raise BadUsage("a merge patch is a JSON object")
    _check_parts(asked.patch, asked.subresource)
    kind, _, name = asked.run.partition("/") if asked.name is None else (asked.run, "", asked.name)
    if not name:
        raise BadUsage("a name is required: KIND NAME or KIND/NAME")
    asked.run = name
    if asked.choice is not None:
        hint = "Use `perdure approve`, `reject`, `cancel` or `redrive`, or name the store with --db."
        raise BadUsage("KIND NAME -p works on a store, not through a server", hint=hint)
    return complete(steer(asked, talk, "patched", lambda access, run: _send(access, run, kind, asked)))


def _patch_ctx(asked: argparse.Namespace, talk: Console) -> int:
    members = {} if asked.ctx is None else asked.ctx
    if not isinstance(members, dict):
        raise BadUsage(
            "--ctx takes the members to set, as a JSON object", hint="For example: --ctx '{\"approved\": true}'."
        )
    if not members and not asked.set:
        raise BadUsage("nothing to set", hint="For example: --ctx '{\"approved\": true}', or --set approved=true.")
    for name, text in asked.set:  # a dotted name stays one: the run assigns the nested path
        members = {**members, name: a.with_members(None, [("value", text)])["value"]}
    body = {"ctx": members, "reason": asked.reason}
    return complete(steer(asked, talk, "ctx patched", lambda access, run: _send_ctx(access, run, body, asked)))


async def _send_ctx(access: Access, run: RunId, body: dict[str, Any], asked: argparse.Namespace) -> SendResult:
    return await access.steer(run, "patch", body, key=asked.key, by=asked.by)


def _check_parts(patch: dict[str, Any], part: str | None) -> None:
    """A patch of one part may touch nothing else; a patch of the whole does not touch the status."""
    if part is not None and set(patch) - {part}:
        raise BadUsage(f"--subresource {part} changes {part} only")
    if part is None and "status" in patch:
        raise BadUsage("the status is changed with --subresource status")


async def _send(access: Access, run: RunId, word: str, asked: argparse.Namespace) -> SendResult:
    """What the language makes of the patch, in order."""
    assert isinstance(access, StoreAccess)
    client = access.client
    kind = client.catalog.kind(word)
    language = client.catalog.language_of(kind)
    if not kind.of_runs or not language.shows_resources:
        raise BadUsage(f"a {kind.name} is changed with `perdure apply`")
    if not await find_views(client, kind, run, asked.namespace):
        raise RunNotFound(f"run {run} is not a {kind.name}")
    try:
        messages = language.patched(await client.execution(run), kind.name, asked.patch)
    except ValueError as error:
        raise BadUsage(f"{kind.name.lower()} {asked.run}: {error}") from None
    results = [await client.tell(run, message) for message in messages]
    return SendResult(
        all(result.is_decided for result in results),
        all(result.is_live for result in results),
        any(result.is_new for result in results),
        tuple(dict.fromkeys(remark for result in results for remark in result.remarks)),
    )
