"""`trigger`: ask durably for a run of a Story that is in the catalog."""

import argparse
import secrets
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_engine
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.views.administration.server_presence import TAKEN_UP, who_goes_on

EXAMPLES = """\
examples:
  perdure trigger orders --input '{"id": 7}'                 a new run each time
  perdure trigger orders --input '{"id": 7}' --token evt-7   the same token and inputs: the same run
  perdure trigger --impulse github --input @event.json       an event, delivered as the Impulse says; it may start a
                                                             document of any language
  perdure trigger shop/orders --key order:7 -n web --json

The request and its decision are stored when the command returns; the run is executed by `perdure serve` or
`perdure resume`. A token that was used with other inputs is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("story", metavar="STORY", nargs="?", help="NAME or NAMESPACE/NAME; omit it with --impulse")
    parser.add_argument(
        "--input", metavar="JSON|@FILE", type=a.json_or_file, help="the inputs; with --impulse the event"
    )
    parser.add_argument(
        "--set",
        metavar="K=V",
        type=a.pair,
        action="append",
        default=[],
        help="set a member of the input",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--token", metavar="T", help="the same token starts the same run only once")
    which.add_argument("--key", metavar="K", help="like --token, for a key that is derived from an event")
    parser.add_argument("--impulse", metavar="NAME", help="deliver the input as an event of this Impulse")
    parser.add_argument("--version", metavar="V", help="only if the Story has this version")
    a.add_namespace(parser, "namespace of the request and its run (default: default)")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.story is None and args.impulse is None:
        raise BadUsage("name a Story, or an Impulse with --impulse")
    if args.story is not None and args.impulse is not None:
        raise BadUsage("an Impulse names its Story itself; leave STORY out")
    if args.impulse is not None and args.key is not None:
        raise BadUsage("the key of an Impulse follows from its own policy; give a --token, or nothing")
    inputs = a.with_members(args.input, args.set)
    if args.impulse is None and not isinstance(inputs, dict | None):
        raise BadUsage("the inputs of a Story are a JSON object")
    args.detach = True
    return complete(_trigger(args, talk, inputs))


async def _trigger(args: argparse.Namespace, talk: Console, inputs: Any) -> int:
    if args.choice is not None:
        request, goes_on = await _trigger_on_server(args, talk, inputs), TAKEN_UP
    else:
        request, goes_on = await _trigger_here(args, talk, inputs)
    status = request["status"]
    run = _run_of(request)
    if args.json:
        give_json(request)
    if not args.json:
        give_text(f"storytrigger/{request['metadata']['name']} {status['decision']}" + (f" {run}" if run else ""))
    if status["decision"] == "Rejected":
        talk.always(f"{status['reason']}: {status['message']}")
        return Exit.CONFLICT if status["reason"].endswith("RunConflict") else Exit.FINDINGS
    if status["decision"] == "Pending":
        talk.always(f"the request is durable and waits: {status.get('message', '')}")
    elif status["decision"] == "Created":
        talk.say(f"recorded; {goes_on}")
    return Exit.OK


def _run_of(request: dict[str, Any]) -> str:
    status = request["status"]
    return str(status.get("storyRunRef", {}).get("name", "") or status.get("runRef", {}).get("id", ""))


async def _trigger_here(args: argparse.Namespace, talk: Console, inputs: Any) -> tuple[dict[str, Any], str]:
    from perdure.server.handlers.schedule_handlers import story_reference

    namespace = args.namespace or "default"
    async with open_engine(args, talk, must_exist=True) as engine:
        story, version = args.story, args.version
        reference = None if story is None else await story_reference(engine, story, version, namespace)
        request = await engine.trigger(
            reference, inputs, token=args.token, key=args.key, impulse=args.impulse, namespace=namespace
        )
        return request, await who_goes_on(engine, resume_command(args, _run_of(request)))


async def _trigger_on_server(args: argparse.Namespace, talk: Console, inputs: Any) -> dict[str, Any]:
    body = {"story": args.story, "version": args.version, "impulse": args.impulse, "input": inputs}
    body |= {"token": args.token, "key": args.key, "namespace": args.namespace}
    async with server_access(args, talk.say) as server:
        request: dict[str, Any] = await server.call("POST", "/api/v1/triggers", body, key=secrets.token_hex(16))
        return request
