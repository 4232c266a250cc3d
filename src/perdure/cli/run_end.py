"""How the end of a followed run is told: talk for people, the answer on stdout, and the exit code."""

import argparse

from perdure.cli.console import Console, from_here, indented
from perdure.cli.errors import RunStuck
from perdure.cli.exit_codes import Exit, exit_of_status
from perdure.cli.follow import End, Ended, Idle, Stuck
from perdure.cli.next_commands import resume_command, with_store
from perdure.cli.progress import ended_text
from perdure.cli.stdout import give_json, give_value
from perdure.engine.clock import SystemClock
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.views.access import Access, NoParameters
from perdure.views.runs.progress_events import status_words
from perdure.views.runs.run_screen import ENDING, LEFT_BEHIND, EndingQuery

CHILDREN_NAMED = 3


async def tell_end(access: Access, run: RunId, end: End, args: argparse.Namespace, talk: Console) -> Exit:
    """Say how a run ended, or why it is not followed any further."""
    paint = talk.paint
    match end:
        case Ended():
            return await _tell_ended(access, run, args, talk)
        case Idle(status):
            now = SystemClock().now()
            waits = "; ".join(wait.text(now) for wait in status.awaited) or "something from outside"
            line = f"{paint('·', 'yellow')} run {run} waits for {waits}: nothing more happens by itself"
            talk.always(indented(line))
            return Exit.OK
        case Stuck(reason):
            raise RunStuck(f"run {run} is stuck: {reason}", run=run)
        case _:
            talk.always(f"run {run} has no live owner")
            return Exit.WAIT_TIMED_OUT


async def _tell_ended(access: Access, run: RunId, args: argparse.Namespace, talk: Console) -> Exit:
    paint = talk.paint
    ending = await access.ask(ENDING, EndingQuery(), run)
    status, summary = ending.run_status.status, ended_text(ending.run_status)
    if status is Status.SUCCEEDED:
        talk.say(f"{paint('✓', 'green')} run {run} succeeded {paint(summary, 'dim')}")
    elif status is Status.PARTIAL:
        talk.say(f"{paint('✓', 'yellow')} run {run} is partial: a part of it failed {paint(summary, 'dim')}")
        _tell_where_to_look(run, args, talk)
    else:
        mark = paint("✗", "red")
        if ending.cause is not None:
            talk.say(f"{mark} {from_here(ending.cause)}")
        reason = f": {ending.reason}" if ending.reason else ""
        talk.always(indented(f"{mark} run {run} {status_words(status)}{reason} {paint(f'({summary})', 'dim')}"))
        _tell_where_to_look(run, args, talk)
    return exit_of_status(ending.exit_status)


def _tell_where_to_look(run: RunId, args: argparse.Namespace, talk: Console) -> None:
    talk.say(f"{talk.paint('hint:', 'dim')} {with_store(args, f'perdure show {run}')} (or logs, history, timeline)")


async def give_result(access: Access, run: RunId, end: End, args: argparse.Namespace) -> None:
    """The run's picture as JSON, or the value it returned."""
    if args.json:
        give_json(await access.show(run))
    elif isinstance(end, Ended) and end.status.has_result:
        ending = await access.ask(ENDING, EndingQuery(value=True), run)
        if ending.value is not None:
            give_value(ending.value.encode())


async def tell_left_behind(access: Access, run: RunId, args: argparse.Namespace, talk: Console) -> None:
    """A run may end before children that it does not wait for; they are durable, but nobody drives them now."""
    left = await access.ask(LEFT_BEHIND, NoParameters(), run)
    count = len({*left.open, *left.unstarted})
    if count:
        named = () if left.unstarted or count > CHILDREN_NAMED else left.open
        goes_on = (
            "a server will resume them"
            if await access.is_served()
            else f"resume them with: {resume_command(args, *named)}"
        )
        talk.say(f"{count} of its children are not awaited and still open; {goes_on}")
