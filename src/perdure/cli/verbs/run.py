"""`run`: start a document and follow it to its end."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.documents import (
    CheckedDocument,
    NothingToRun,
    ProblemsFound,
    read,
    read_applied,
    validate,
    validator_for,
)
from perdure.cli.errors import BadUsage
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import load_sources, store_if_any
from perdure.cli.start_and_follow import add_waiting, begin_and_follow
from perdure.engine.catalog import ResourceNotFound, Runnable
from perdure.engine.client import Client
from perdure.engine.handle import Handle
from perdure.kernel.errors import InvalidDocument, UnfitInput
from perdure.kernel.validation import AppliedDocument
from perdure.wiring import languages

# Which variables of the environment a document may read: those that somebody has named for it, and no others.

PREFIX = "PERDURE_ENV_"


def readable(named: Sequence[str], environment: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` and `NAME` as given with --env, and `PERDURE_ENV_NAME`; only what a text mentions beside `env`."""
    allowed = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
    for one in named:
        name, equals, value = one.partition("=")
        if not name.isidentifier():
            raise BadUsage(f"--env {one}: {name!r} is not the name of a variable")
        if not equals and name not in environment:
            raise BadUsage(f"--env {name}: there is no such variable", hint="Set it, or write --env NAME=VALUE.")
        allowed[name] = value if equals else environment[name]
    reading = [text for text in texts if "env" in text]
    return {name: value for name, value in sorted(allowed.items()) if any(name in text for text in reading)}


EXAMPLES = """\
examples:
  perdure run examples/hello.json
  perdure run flow.json --input '{"name": "Ada"}'      the input as JSON, or --input @file.json
  perdure run flow.json --set user.name=Ada --set n=3  members of the input, one by one
  perdure run flow.json --token order-17               started once, however often the command is repeated
  perdure run flow.json --load ./tasks.py              with providers of your own
  perdure run flow.json --json | jq .                  exactly one JSON value on stdout
  perdure run math/sums@2                              version 2 of what `perdure apply` has put into the catalog
  perdure run flow.json --detach                       only record the start; `perdure resume` does the work

Ctrl-C stops the process, not the run: `perdure resume` continues it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "file", metavar="FILE", help="the document; - for standard input; or one of the catalog by its name"
    )
    parser.add_argument("--name", metavar="NAME", default="", help="the document to run, where FILE holds several")
    parser.add_argument("--input", metavar="JSON|@FILE", type=a.json_or_file, help="the run's input")
    parser.add_argument(
        "--payload", dest="input", metavar="JSON|@FILE", type=a.json_or_file, help="the same as --input"
    )
    parser.add_argument("--args", metavar="JSON|@FILE", type=a.json_or_file, help="arguments of the document")
    parser.add_argument(
        "--set", metavar="K=V", type=a.pair, action="append", default=[], help="set a member of the input, as in a.b=3"
    )
    parser.add_argument("--token", metavar="T", help="the same token starts the same run only once")
    a.add_labels(parser, "mark the run, to find it with `ps --label`")
    a.add_load(parser)
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="resources the document refers to; may be repeated"
    )
    parser.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="let the document read this variable of the environment; may be repeated",
    )
    parser.add_argument("-t", "--target", metavar="STEP", help="start a Playbook at this step")
    parser.add_argument(
        "-r",
        "--runtime",
        choices=("local", "auto", "distributed"),
        default="auto",
        help="accepted for NoETL compatibility; runs are always local",
    )
    parser.add_argument("--dry-run", action="store_true", help="only check the document, as `perdure check` does")
    add_waiting(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    if asked.runtime == "distributed":
        raise BadUsage("-r distributed: there is no server to hand the run to; leave it out")
    if asked.dry_run:
        from perdure.cli.verbs import check

        asked.files = [asked.file]
        return check.perform(asked, talk)
    load_sources(asked.load)
    given = a.with_members(asked.input, asked.set)
    return complete(_run(asked, talk, given))


async def _run(asked: argparse.Namespace, talk: Console, given: Any) -> int:
    applied = read_applied(asked.apply)
    async with store_if_any(asked, talk) as store:
        origin, text, entry = await _find(asked.file, store)
        judging = validator_for(languages(), store)
        judged = await validate(origin, text, judging, applied, chosen=asked.name)
        if judged.pinned == text and not judged.errors:
            await judging.recorded(applied)  # found in order before a store is made
    for line in judged.lines():
        talk.always(line)
    if judged.errors:
        raise ProblemsFound(judged)
    if judged.program is None:
        raise NothingToRun(f"{judged.origin} holds nothing that can be run; nothing was started")
    if asked.target is not None:
        _check_target(judged, asked.target)
    assert judged.language is not None
    if reason := judged.language.why_unfit(judged.program, given):
        raise UnfitInput(f"{judged.origin}: {reason}; nothing was started")
    name = entry.key.name if entry is not None else None if asked.file == "-" else Path(asked.file).stem
    return await begin_and_follow(asked, talk, lambda engine: _start(engine, asked, judged, applied, given, name))


def _check_target(judged: CheckedDocument, step: str) -> None:
    if judged.language is None or not judged.language.has_entries:
        raise BadUsage("-t: only a Playbook begins with a step of your choice")
    if problem := judged.language.check_entry(judged.program, step):
        raise InvalidDocument(problem.describe(judged.origin), problems=replace(judged, problems=[problem]).plain())


async def _find(name: str, store: Callable[[], Client | None]) -> tuple[str, bytes, Runnable | None]:
    """A file, or else what the catalog keeps under that name."""
    if name != "-" and not Path(name).exists():
        client = store()
        found = None if client is None else await client.catalog.find(name)
        if found is not None:
            return found.origin, found.text, found
        if not Path(name).suffix:
            raise ResourceNotFound(
                f"there is no file {name!r}, and nothing in the catalog that can be run under that name"
            )
    return *read(name), None


async def _start(
    engine: Client,
    asked: argparse.Namespace,
    judged: CheckedDocument,
    applied: Sequence[AppliedDocument],
    given: Any,
    name: str | None,
) -> Handle:
    options: dict[str, Any] = {} if asked.args is None else {"args": asked.args}
    if asked.target is not None:
        options["entry_step"] = asked.target
    if env := readable(asked.env, os.environ, [judged.text.decode(), *(one.text for one in applied)]):
        options["env"] = env
    if asked.file != "-" and b"script" in judged.text:
        # Where scripts beside the document are found. Others need no place, and start the same from any folder.
        options["folder"] = str(Path(asked.file).resolve().parent)
    return await engine.start(
        judged.text,
        given,
        name=name,
        applied=applied,
        chosen=asked.name,
        options=options,
        token=asked.token,
        labels=dict(asked.label),
    )
