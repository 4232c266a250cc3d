"""Beginning a run with an engine of our own, and what happens then: it is followed, or left for a later owner."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.follow import End, Ended, follow, follow_below, follow_on_server, listening
from perdure.cli.next_commands import resume_command, with_store
from perdure.cli.open_engine import open_engine
from perdure.cli.progress import Progress, progress_for
from perdure.cli.run_end import give_result, tell_end, tell_left_behind
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text, has_given, interrupted
from perdure.engine.client import Client
from perdure.engine.handle import Handle
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.views.access import Access, NoParameters, StoreAccess
from perdure.views.administration.server_presence import TAKEN_UP, is_served_after_us
from perdure.views.runs.run_screen import LIVE_STATUS
from perdure.views.times import span

if TYPE_CHECKING:
    from perdure.server.api_client.server_access import ServerAccess

GOES_ON = "A server will resume it."

Begin = Callable[[Client], Awaitable[Handle]]
BeginOnServer = Callable[["ServerAccess"], Awaitable[RunId]]

T = TypeVar("T")


def add_waiting(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="follow the run to its end (the default)")
    how.add_argument("--detach", action="store_true", help="only record the start and print the id of the run")
    parser.add_argument(
        "--wait-timeout", metavar="DURATION", type=a.duration, help="stop following after this long (exit code 6)"
    )


async def begin_and_follow(args: argparse.Namespace, talk: Console, begin: Begin, *, must_exist: bool = False) -> Exit:
    progress = progress_for(talk)
    run = goes_on = ""
    try:
        async with open_engine(args, talk, must_exist=must_exist) as engine:
            access = StoreAccess(engine)
            try:
                with listening(engine, progress):
                    handle = await begin(engine)
                    run = handle.id
                    if args.detach:
                        return await _leave(access, handle.id, args, talk)
                    row = await engine.find(handle.id)
                    talk.say(f"run {talk.paint(run, 'bold')} ({row.name}, {row.language})")
                    end = await _follow_for(args.wait_timeout, engine, handle.id, progress)
                    if isinstance(end, Ended):
                        await follow_below(engine, handle.id, progress)
            except asyncio.CancelledError:
                goes_on = GOES_ON if run and await is_served_after_us(engine) else ""
                raise
            return await _tell(access, handle.id, end, args, talk)
    except asyncio.CancelledError:
        state = f"run {run} is durable" if run else "the start may or may not be recorded (see `perdure ps`)"
        goes_on = goes_on or f"Resume it with: {resume_command(args, *filter(None, [run]))}"
        talk.always(f"stopped; {state}. {goes_on}")
        if args.json and not has_given():
            give_json(interrupted(f"stopped; {state}", goes_on, run))
        raise


async def start_on_server(args: argparse.Namespace, talk: Console, begin: "BeginOnServer") -> Exit:
    """The same through a server, which executes the run; this process only follows it."""
    progress, run = progress_for(talk), ""
    try:
        async with server_access(args, talk.always) as access:
            run = await begin(access)
            if args.detach:
                return await _leave(access, run, args, talk)
            row = (await access.ask(LIVE_STATUS, NoParameters(), run)).row
            talk.say(f"run {talk.paint(run, 'bold')} ({row.name}, {row.language})")
            end = await _within(args.wait_timeout, follow_on_server(access, run, progress))
            return await _tell(access, run, end, args, talk)
    except asyncio.CancelledError:
        state = (
            f"run {run} continues on the server" if run else "the start may or may not be recorded (see `perdure ps`)"
        )
        goes_on = f"Wait for it with: {with_store(args, f'perdure wait {run}')}" if run else ""
        talk.always(f"stopped; {state}. {goes_on}".rstrip())
        if args.json and not has_given():
            give_json(interrupted(f"stopped; {state}", goes_on, run))
        raise


async def _tell(access: Access, run: RunId, end: End | None, args: argparse.Namespace, talk: Console) -> Exit:
    if end is None:
        return await _waited_long_enough(access, run, args, talk)
    code = await tell_end(access, run, end, args, talk)
    await give_result(access, run, end, args)
    await tell_left_behind(access, run, args, talk)
    return code


async def _follow_for(timeout: Instant | None, engine: Client, run: RunId, progress: Progress) -> End | None:
    """How the run ends; None when it takes too long."""
    ends = await _within(timeout, follow(engine, [run], progress))
    return None if ends is None else ends[run]


async def _within(timeout: Instant | None, work: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(None if timeout is None else timeout / SECOND) as bound:
            return await work
    except TimeoutError:
        if bound.expired():
            return None
        raise


async def _leave(access: Access, run: RunId, args: argparse.Namespace, talk: Console) -> Exit:
    command = resume_command(args, run)
    status = await access.status(run)
    if args.json:
        needs_us = not status.is_final and not await access.is_served()
        give_json({"id": run, "status": status, "detached": True, "resume": command if needs_us else None})
    else:
        give_text(run)
    if status.is_final:
        talk.say(f"recorded; nothing was left to be done: it has {status.done} already")
    else:
        goes_on = TAKEN_UP if await access.is_served() else f"no server is running; resume it with: {command}"
        talk.say(f"recorded; {goes_on}")
    return Exit.OK


async def _waited_long_enough(access: Access, run: RunId, args: argparse.Namespace, talk: Console) -> Exit:
    if args.json:
        give_json(await access.show(run))
    talk.always(f"run {run} has not ended within {span(args.wait_timeout)}; it is durable.")
    talk.say(GOES_ON if await access.is_served() else f"Resume it with: {resume_command(args, run)}")
    return Exit.WAIT_TIMED_OUT
