"""How the end of a followed run is told: talk for people, the answer on stdout, and the exit code."""

import argparse

from perdure.cli.console import Console, from_here, indented
from perdure.cli.errors import RunStuck
from perdure.cli.exit_codes import Exit, exit_of_status
from perdure.cli.follow import End, Ended, Idle, Stuck
from perdure.cli.next_commands import resume_command, with_store
from perdure.cli.progress import ended_text
from perdure.cli.stdout import give_json, give_value
from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.kernel.outcomes import Status, Succeeded
from perdure.kernel.values import RunId
from perdure.views.progress_events import outcome_text, status_words
from perdure.views.run_list import open_children
from perdure.views.run_status import run_status
from perdure.views.server_presence import is_served

CHILDREN_NAMED = 3


async def tell_end(client: Client, run: RunId, end: End, asked: argparse.Namespace, talk: Console) -> Exit:
    """Say how a run ended, or why it is not followed any further."""
    paint = talk.paint
    match end:
        case Ended(Status.SUCCEEDED):
            summary = ended_text(await run_status(client, run))
            talk.say(f"{paint('✓', 'green')} run {run} succeeded {paint(summary, 'dim')}")
            return Exit.OK
        case Ended(Status.PARTIAL):
            summary = ended_text(await run_status(client, run))
            talk.say(f"{paint('✓', 'yellow')} run {run} is partial: not all of it went well {paint(summary, 'dim')}")
            _tell_where_to_look(run, asked, talk)
            return Exit.OK
        case Ended(final_status, outcome):
            mask = await run_views.mask_of_run(client.store, client.languages, await client.find(run))
            why = mask.text(outcome_text(outcome))
            summary = ended_text(await run_status(client, run))
            mark = paint("✗", "red")
            from perdure.views.run_overview import failure_of_run

            cause = await failure_of_run(client, run)
            if cause is not None:
                talk.say(mask.text(f"{mark} {from_here(cause)}"))
            reason = f": {why}" if why else ""
            line = f"{mark} run {run} {status_words(final_status)}{reason} {paint(f'({summary})', 'dim')}"
            talk.always(indented(line))
            _tell_where_to_look(run, asked, talk)
            language = client.languages[(await client.find(run)).language]
            return exit_of_status(language.exit_status(final_status, outcome))
        case Idle(status):
            now = client.clock.now()
            waits = "; ".join(wait.text(now) for wait in status.awaited) or "something from outside"
            line = f"{paint('·', 'yellow')} run {run} waits for {waits}: nothing more happens by itself"
            talk.always(indented(line))
            return Exit.OK
        case Stuck(reason):
            raise RunStuck(f"run {run} is stuck: {reason}", run=run)
        case _:
            talk.always(f"run {run} has no live owner")
            return Exit.WAIT_TIMED_OUT


def _tell_where_to_look(run: RunId, asked: argparse.Namespace, talk: Console) -> None:
    talk.say(f"{talk.paint('hint:', 'dim')} {with_store(asked, f'perdure show {run}')} (or logs, history, timeline)")


async def give_result(client: Client, run: RunId, end: End, asked: argparse.Namespace) -> None:
    """The run's picture as JSON, or the value it returned."""
    if asked.json:
        give_json(await client.show(run))
    elif isinstance(end, Ended) and isinstance(end.outcome, Succeeded):
        mask = await run_views.mask_of_run(client.store, client.languages, await client.find(run))
        give_value(mask.json(await client.text(run, end.outcome.value)))


async def tell_left_behind(client: Client, run: RunId, asked: argparse.Namespace, talk: Console) -> None:
    """A run may end before children that it does not wait for; they are durable, but nobody drives them now."""
    children = await open_children(client, run)
    unstarted = set(await client.store.unstarted_children(run))
    count = len(unstarted.union(children))
    if count:
        named = () if unstarted or count > CHILDREN_NAMED else children
        goes_on = (
            "a server will resume them"
            if await is_served(client)
            else f"resume them with: {resume_command(asked, *named)}"
        )
        talk.say(f"{count} of its children are not awaited and still open; {goes_on}")
