"""Beginning a run with an engine of our own, and what happens then: it is followed, or left for a later owner."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import End, Ended, follow, follow_below, listening
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_engine
from perdure.cli.progress import Progress, progress_for
from perdure.cli.run_end import give_result, tell_end, tell_left_behind
from perdure.cli.stdout import give_json, give_text, has_given, interrupted
from perdure.engine.client import Client
from perdure.engine.handle import Handle
from perdure.kernel.values import SECOND, Instant, RunId
from perdure.views.server_presence import is_served, is_served_after_us, who_goes_on
from perdure.views.times import span

GOES_ON = "A server will resume it."

Begin = Callable[[Client], Awaitable[Handle]]


def add_waiting(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="follow the run to its end (the default)")
    how.add_argument("--detach", action="store_true", help="only record the start and print the id of the run")
    parser.add_argument(
        "--wait-timeout", metavar="DURATION", type=a.duration, help="stop following after this long (exit code 6)"
    )


async def begin_and_follow(asked: argparse.Namespace, talk: Console, begin: Begin, *, must_exist: bool = False) -> Exit:
    progress = progress_for(talk)
    run = goes_on = ""
    try:
        async with open_engine(asked, talk, must_exist=must_exist) as engine:
            try:
                with listening(engine, progress):
                    handle = await begin(engine)
                    run = handle.id
                    if asked.detach:
                        return await _leave(engine, handle.id, asked, talk)
                    row = await engine.find(handle.id)
                    talk.say(f"run {talk.paint(run, 'bold')} ({row.name}, {row.language})")
                    end = await _follow_for(asked.wait_timeout, engine, handle.id, progress)
                    if isinstance(end, Ended):
                        await follow_below(engine, handle.id, progress)
            except asyncio.CancelledError:
                goes_on = GOES_ON if run and await is_served_after_us(engine) else ""
                raise
            if end is None:
                return await _waited_long_enough(engine, handle.id, asked, talk)
            code = await tell_end(engine, handle.id, end, asked, talk)
            await give_result(engine, handle.id, end, asked)
            await tell_left_behind(engine, handle.id, asked, talk)
            return code
    except asyncio.CancelledError:
        state = f"run {run} is durable" if run else "the start may or may not be recorded (see `perdure ps`)"
        goes_on = goes_on or f"Resume it with: {resume_command(asked, *filter(None, [run]))}"
        talk.always(f"stopped; {state}. {goes_on}")
        if asked.json and not has_given():
            give_json(interrupted(f"stopped; {state}", goes_on, run))
        raise


async def _follow_for(patience: Instant | None, engine: Client, run: RunId, progress: Progress) -> End | None:
    """How the run ends; None when it takes too long."""
    try:
        async with asyncio.timeout(None if patience is None else patience / SECOND) as bound:
            return (await follow(engine, [run], progress))[run]
    except TimeoutError:
        if bound.expired():
            return None
        raise


async def _leave(engine: Client, run: RunId, asked: argparse.Namespace, talk: Console) -> Exit:
    command = resume_command(asked, run)
    status = (await engine.find(run)).status
    if asked.json:
        needs_us = not status.is_final and not await is_served(engine)
        give_json({"id": run, "status": status, "detached": True, "resume": command if needs_us else None})
    else:
        give_text(run)
    if status.is_final:
        talk.say(f"recorded; nothing was left to be done: it has {status.done} already")
    else:
        talk.say(f"recorded; {await who_goes_on(engine, command)}")
    return Exit.OK


async def _waited_long_enough(engine: Client, run: RunId, asked: argparse.Namespace, talk: Console) -> Exit:
    if asked.json:
        give_json(await engine.show(run))
    talk.always(f"run {run} has not ended within {span(asked.wait_timeout)}; it is durable.")
    talk.say(GOES_ON if await is_served(engine) else f"Resume it with: {resume_command(asked, run)}")
    return Exit.WAIT_TIMED_OUT
