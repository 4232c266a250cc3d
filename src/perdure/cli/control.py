"""What the steering verbs have in common: a message to a run, and what becomes of it."""

import argparse
from collections.abc import Awaitable, Callable

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_observer
from perdure.cli.server_presence import is_served
from perdure.cli.stdout import give_json
from perdure.engine.client import Client
from perdure.engine.message_sending import SendResult
from perdure.kernel.values import RunId

Send = Callable[[Client, RunId], Awaitable[SendResult]]


async def steer(asked: argparse.Namespace, talk: Console, done: str, send: Send, *, late: str = "") -> Exit:
    """Send, and say what a live owner has made of it, or when the next one will; `late`, if it comes too late."""
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        is_late = bool(late) and (await observer.find(run)).status.is_final
        told = await send(observer, run)
        is_live = told.is_live or await is_served(observer)
        if asked.json:
            give_json(
                {
                    "id": run,
                    "recorded": not is_late,
                    "live": is_live,
                    "decided": told.is_decided,
                    "remarks": list(told.remarks),
                }
            )
        if is_late:
            talk.say(f"run {run}: {'; '.join([late, *told.remarks])}")
            return Exit.OK
        said = [done, *([] if told.is_decided else [_not_decided(told, is_live)]), *told.remarks]
        talk.say(f"run {run}: {'; '.join(said)}")
        if not is_live:
            talk.say(f"Resume it with: {resume_command(asked, run)}")
        return Exit.OK


def _not_decided(told: SendResult, is_live: bool) -> str:
    if is_live:
        return "it is recorded, its owner has not read it yet"
    return "it is recorded, and counts when the run is resumed"
