"""`run`: start a document and follow it to its end."""

import argparse
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import read, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import store_if_any
from perdure.cli.server_choice import refuse_load
from perdure.cli.start_and_follow import add_waiting, begin_and_follow, start_on_server
from perdure.engine.client import Client
from perdure.engine.decision_threads import collect_seldom
from perdure.engine.handle import Handle
from perdure.engine.resources.catalog import ResourceNotFound, Runnable
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import UnfitInput
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import RunId
from perdure.views.administration.audit_log import audited
from perdure.views.resources.document_check import (
    CheckedDocument,
    NothingToRun,
    ProblemsFound,
    check_target,
    checked_elsewhere,
    validate,
    validator_for,
)
from perdure.wiring import languages, load_sources

if TYPE_CHECKING:
    from perdure.server.api_client.server_access import ServerAccess

# Which variables of the environment a document may read: those that somebody has named for it, and no others.

PREFIX = "PERDURE_ENV_"


def readable(named: Sequence[str], environment: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` and `NAME` as given with --env, and `PERDURE_ENV_NAME`; only what a text mentions beside `env`."""
    allowed = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
    for setting in named:
        name, equals, value = setting.partition("=")
        if not name.isidentifier():
            raise BadUsage(f"--env {setting}: {name!r} is not the name of a variable")
        if not equals and name not in environment:
            raise BadUsage(f"--env {name}: there is no such variable", hint="Set it, or write --env NAME=VALUE.")
        allowed[name] = value if equals else environment[name]
    readers = [text for text in texts if "env" in text]
    return {name: value for name, value in sorted(allowed.items()) if any(name in text for text in readers)}


EXAMPLES = """\
examples:
  perdure run examples/hello.json
  perdure run flow.json --input '{"name": "Ada"}'      the input as JSON, or --input @file.json
  perdure run flow.json --set user.name=Ada --set n=3  members of the input, one by one
  perdure run flow.json --token order-17               started only once, however often you repeat the command
  perdure run flow.json --load ./tasks.py              with your own providers
  perdure run flow.json --json | jq .                  exactly one JSON value on stdout
  perdure run math/sums@2                              version 2 of an entry that `perdure apply` created
  perdure run -n shop orders                           the entry `orders` of namespace `shop`, in that namespace
  perdure run flow.json --detach                       only record the start; `perdure resume` or a server executes it

Ctrl-C stops the process, not the run: `perdure resume` continues it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "file", metavar="FILE", help="the document: a file, - for standard input, or the name of a catalog entry"
    )
    parser.add_argument("--name", metavar="NAME", default="", help="which document to run if FILE contains several")
    parser.add_argument("--input", metavar="JSON|@FILE", type=a.json_or_file, help="the run's input")
    parser.add_argument(
        "--payload", dest="input", metavar="JSON|@FILE", type=a.json_or_file, help="the same as --input"
    )
    parser.add_argument("--args", metavar="JSON|@FILE", type=a.json_or_file, help="arguments of the document")
    parser.add_argument(
        "--set",
        metavar="K=V",
        type=a.pair,
        action="append",
        default=[],
        help="set a member of the input, e.g. a.b=3",
    )
    parser.add_argument(
        "--set-string",
        metavar="K=V",
        type=a.pair,
        action="append",
        default=[],
        help="the same as --set, but the value is always a text",
    )
    parser.add_argument("--token", metavar="T", help="start only one run per token, however often it is repeated")
    a.add_labels(parser, "label the run, to find it with `ps --label`")
    parser.add_argument("--traceparent", metavar="T", help="make the run a part of this trace (W3C, OpenTelemetry)")
    a.add_namespace(parser, "namespace of the run and of all that it starts (default: the document's, or default)")
    a.add_load(parser)
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources the document refers to; may be repeated"
    )
    parser.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="allow the document to read this environment variable; may be repeated",
    )
    parser.add_argument("-t", "--target", metavar="STEP", help="start a Playbook at this step")
    parser.add_argument(
        "-r",
        "--runtime",
        choices=("local", "auto", "distributed"),
        default="auto",
        help="accepted for NoETL compatibility; runs are always local",
    )
    parser.add_argument("--dry-run", action="store_true", help="only check the document, like `perdure check`")
    add_waiting(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.runtime == "distributed" and args.choice is None:
        raise BadUsage("-r distributed: there is no server to hand the run to; leave it out, or name it with --server")
    if args.dry_run:
        from perdure.cli.verbs import check

        args.files, args.strict, args.sound = [args.file], False, True
        return check.perform(args, talk)
    load_sources(args.load)
    run_input = a.with_members(a.with_members(args.input, args.set), args.set_string, as_text=True)
    if args.choice is not None:
        refuse_load(args)
        return complete(start_on_server(args, talk, lambda access: _start_on_server(access, args, talk, run_input)))
    return complete(_run(args, talk, run_input))


async def _run(args: argparse.Namespace, talk: Console, run_input: Any) -> int:
    applied = read_applied(args.apply)
    async with store_if_any(args, talk) as store:
        origin, text, entry = await _find(args.file, store, args.namespace or "")
        if entry is not None:
            args.namespace = entry.key.namespace
        namespace = args.namespace or DEFAULT_NAMESPACE
        validator = validator_for(languages(), store)
        document = await validate(origin, text, validator, applied, chosen=args.name, namespace=namespace)
        if document.pinned == text and not document.errors:
            await validator.recorded(applied, namespace)  # found in order before a store is made
    for line in document.lines():
        talk.always(line)
    if document.errors:
        raise ProblemsFound(document)
    if document.program is None:
        raise NothingToRun(f"{document.origin} contains nothing that can be run; nothing was started")
    if args.target is not None:
        check_target(document, args.target)
    assert document.language is not None
    if reason := document.language.why_unfit(document.program, run_input):
        raise UnfitInput(f"{document.origin}: {reason}; nothing was started")
    name = entry.key.name if entry is not None else None if args.file == "-" else Path(args.file).stem
    from_api = entry is not None and entry.from_api

    def begin(engine: Client) -> Awaitable[Handle]:
        return _start(engine, args, document, applied, run_input, name, from_api=from_api)

    collect_seldom(is_brief=True)
    return await begin_and_follow(args, talk, begin)


async def _start_on_server(access: "ServerAccess", args: argparse.Namespace, talk: Console, run_input: Any) -> RunId:
    """A file is sent with what it refers to; anything else is the name of an entry of the server's catalog."""
    options: dict[str, Any] = {} if args.args is None else {"args": args.args}
    options |= {} if args.target is None else {"entry_step": args.target}
    options |= {} if args.traceparent is None else {"traceparent": args.traceparent}
    shared = {"token": args.token, "labels": dict(args.label), "namespace": args.namespace}
    if args.file != "-" and not Path(args.file).exists() and not Path(args.file).suffix:
        if args.apply or args.env:
            raise BadUsage("--apply and --env are for a document that is sent; this names an entry of the catalog")
        return (await access.start_named(args.file, run_input, options=options, **shared)).id
    origin, text = read(args.file)
    applied = read_applied(args.apply)
    if env := readable(args.env, os.environ, [text.decode(errors="replace"), *(item.text for item in applied)]):
        options["env"] = env
    texts = [item.text for item in applied]
    problems = await access.check(text, applied=texts, chosen=args.name, namespace=args.namespace)
    document = checked_elsewhere(origin, text, problems)
    for line in document.lines():
        talk.always(line)
    if document.errors:
        raise ProblemsFound(document)
    name = None if args.file == "-" else Path(args.file).stem
    started = await access.start(text, run_input, name=name, applied=texts, chosen=args.name, options=options, **shared)
    return started.id


async def _find(name: str, store: Callable[[], Client | None], namespace: str) -> tuple[str, bytes, Runnable | None]:
    """A file, or else what the catalog keeps under that name, in this namespace if there is one."""
    if name != "-" and not Path(name).exists():
        client = store()
        runnable = None if client is None else await client.catalog.find(name, namespace)
        if runnable is not None:
            return runnable.origin, runnable.text, runnable
        if not Path(name).suffix:
            raise ResourceNotFound(
                f"there is no file {name!r}, and nothing in the catalog that can be run under that name"
                + (f" in namespace {namespace!r}" if namespace else "")
            )
    return *read(name), None


async def _start(
    engine: Client,
    args: argparse.Namespace,
    document: CheckedDocument,
    applied: Sequence[AppliedDocument],
    run_input: Any,
    name: str | None,
    *,
    from_api: bool,
) -> Handle:
    options: dict[str, Any] = {} if args.args is None else {"args": args.args}
    if args.target is not None:
        options["entry_step"] = args.target
    if args.traceparent is not None:
        options["traceparent"] = args.traceparent
    if env := readable(args.env, os.environ, [document.text.decode(), *(resource.text for resource in applied)]):
        options["env"] = env
    if args.file != "-" and b"script" in document.text:
        # Where scripts beside the document are found. Others need no place, and start the same from any folder.
        options["folder"] = str(Path(args.file).resolve().parent)
    return await (await audited(engine, "start_run", "")).start(
        document.text,
        run_input,
        name=name,
        applied=applied,
        chosen=args.name,
        options=options,
        token=args.token,
        labels=dict(args.label),
        namespace=args.namespace,
        from_api=from_api,
    )
