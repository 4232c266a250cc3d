"""What the steering verbs have in common: a message to a run, on disk before we answer."""

import argparse
from collections.abc import Awaitable, Callable

from perdure.cli.advice import resume_command
from perdure.cli.answer import give_json
from perdure.cli.exits import Exit
from perdure.cli.opening import open_observer
from perdure.cli.served import is_served
from perdure.cli.talk import Talk
from perdure.engine.client import Client
from perdure.kernel.values import RunId

Send = Callable[[Client, RunId], Awaitable[None]]


async def steer(asked: argparse.Namespace, talk: Talk, done: str, send: Send, *, late: str = "") -> Exit:
    """Send, and say whether a live process hears of it now or the next owner will; `late`, if it comes too late."""
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        # Asked before: a live owner may take the message, end the run and be gone before we could ask.
        row = await observer.find(run)
        is_live = bool(await observer.store.owned([row.partition])) or await is_served(observer)
        await send(observer, run)
        is_late = bool(late) and row.status.is_final
        if asked.json:
            give_json({"id": run, "recorded": not is_late, "live": is_live})
        if is_late:
            talk.say(f"run {run}: {late}")
        elif is_live:
            talk.say(f"run {run}: {done}")
        else:
            talk.say(f"run {run}: {done}; it is recorded, and counts when the run is resumed")
            talk.say(f"Go on with: {resume_command(asked, run)}")
        return Exit.OK
