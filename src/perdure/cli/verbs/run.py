"""`run`: start a document and follow it to its end."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.answer import give_json, give_text
from perdure.cli.documents import Judged, ProblemsFound, judge, read_applied
from perdure.cli.endings import give_result, tell_end, tell_left_behind
from perdure.cli.exits import Exit
from perdure.cli.following import follow, listening
from perdure.cli.interruption import complete
from perdure.cli.opening import load_sources, open_engine, resume_command
from perdure.cli.progress import progress_for
from perdure.cli.talk import Talk
from perdure.cli.times import span
from perdure.engine.client import Client, Handle
from perdure.kernel.values import SECOND, Instant
from perdure.wiring import languages

EXAMPLES = """\
examples:
  perdure run examples/hello.json
  perdure run flow.json --input '{"name": "Ada"}'      the input as JSON, or --input @file.json
  perdure run flow.json --set user.name=Ada --set n=3  members of the input, one by one
  perdure run flow.json --token order-17               started only once, however often it is typed
  perdure run flow.json --load ./tasks.py              with providers of your own
  perdure run flow.json --json | jq .                  exactly one JSON value on stdout
  perdure run flow.json --detach                       only record the start; `perdure resume` does the work

Ctrl-C stops the process, not the run: `perdure resume` goes on with it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="FILE", help="the document; - for standard input")
    parser.add_argument("--input", metavar="JSON|@FILE", type=a.json_or_file, help="the run's input")
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
    add_waiting(parser)


def add_waiting(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="follow the run to its end (the default)")
    how.add_argument("--detach", action="store_true", help="only record the start, and print the id")
    parser.add_argument(
        "--wait-timeout", metavar="DURATION", type=a.duration, help="stop following after this long (exit code 6)"
    )


def perform(asked: argparse.Namespace, talk: Talk) -> int:
    load_sources(asked.load)
    judged = judge(asked.file, languages())
    for line in judged.lines():
        talk.insist(line)
    if judged.errors:
        raise ProblemsFound(judged)
    given = a.with_members(asked.input, asked.set)
    return complete(begin_and_follow(asked, talk, lambda engine: _start(engine, asked, judged, given)))


async def _start(engine: Client, asked: argparse.Namespace, judged: Judged, given: Any) -> Handle:
    options: dict[str, Any] = {}
    if asked.args is not None:
        options["args"] = asked.args
    if asked.apply:
        options["applied"] = read_applied(asked.apply)
    return await engine.start(judged.text, given, options=options, token=asked.token, labels=dict(asked.label))


async def begin_and_follow(
    asked: argparse.Namespace, talk: Talk, begin: Callable[[Client], Awaitable[Handle]], *, must_exist: bool = False
) -> int:
    """Begin a run with an engine of our own; follow it, unless it is to be left alone."""
    progress = progress_for(talk)
    run = ""
    try:
        async with open_engine(asked, talk, must_exist=must_exist) as engine:
            with listening(engine, progress):
                handle = await begin(engine)
                run = handle.id
                if asked.detach:
                    return await _leave(engine, handle, asked, talk)
                row = await engine.find(handle.id)
                talk.say(f"run {talk.paint(run, 'bold')} ({row.name}, {row.language})")
                async with asyncio.timeout(_seconds(asked.wait_timeout)):
                    ends = await follow(engine, [handle.id], progress)
            end = ends[handle.id]
            code = await tell_end(engine, handle.id, end, talk)
            await give_result(engine, handle.id, end, asked)
            await tell_left_behind(engine, handle.id, asked, talk)
            return code
    except TimeoutError:
        return await _waited_long_enough(asked, talk, run)
    except asyncio.CancelledError:
        what = f"run {run} is durable" if run else "the start may or may not be recorded (see `perdure ps`)"
        talk.insist(f"stopped; {what}. Go on with: {resume_command(asked, *filter(None, [run]))}")
        raise


async def _leave(engine: Client, handle: Handle, asked: argparse.Namespace, talk: Talk) -> Exit:
    command = resume_command(asked, handle.id)
    if asked.json:
        status = (await engine.find(handle.id)).status
        give_json({"id": handle.id, "status": status, "detached": True, "resume": command})
    else:
        give_text(handle.id)
    talk.say(f"recorded; no live process drives it. Have it done with: {command}")
    return Exit.OK


async def _waited_long_enough(asked: argparse.Namespace, talk: Talk, run: str) -> Exit:
    """Our engine is closed by now: the picture is what the next owner will find."""
    from perdure.cli.opening import open_observer

    talk.insist(f"run {run} has not ended within {span(asked.wait_timeout)}; it is durable.")
    talk.say(f"Go on with: {resume_command(asked, run)}")
    if asked.json:
        async with open_observer(asked, talk) as observer:
            give_json(await observer.handle(run).show())
    return Exit.WAIT_TIMED_OUT


def _seconds(length: Instant | None) -> float | None:
    return None if length is None else length / SECOND
