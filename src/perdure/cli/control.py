"""What the verbs that control runs have in common: they send a message to each and say what became of it."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from perdure.cli.arguments import meant_namespaces, names_namespace
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit, exit_of_error
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.views.access import Access, Send
from perdure.views.runs.batch_steering import COUNTED, BatchAnswer, Selection, Verb, steer_named
from perdure.views.runs.run_details import send_result_json

WORST_FIRST = (Exit.ENGINE_ERROR, Exit.NOT_ALLOWED, Exit.USAGE, Exit.CONFLICT, Exit.NOT_FOUND)
RUNS_NAMED = 3  # in the command that resumes them


async def steer(args: argparse.Namespace, talk: Console, done: str, send: Send, *, late: str = "") -> Exit:
    """Send to one run, and say whether it is decided or waits for an owner. `late` is said if the run has ended."""
    async with open_access(args, talk) as access:
        run = await access.resolve(args.run, meant_namespaces(args))
        is_late = bool(late) and (await access.status(run)).is_final
        result = await send(access, run)
        is_live = result.is_live or await access.is_served()
        if args.json:
            give_json(send_result_json(run, result, recorded=not is_late, live=is_live))
        if is_late:
            talk.say(f"run {run}: {'; '.join([late, *result.remarks])}")
            return Exit.OK
        talk.say(_line(run, result, done, is_live))
        if not is_live:
            talk.say(f"Resume it with: {resume_command(args, run)}")
        return Exit.OK


async def steer_runs(
    args: argparse.Namespace,
    talk: Console,
    verb: Verb,
    done: str,
    send: Send,
    *,
    members: dict[str, Any],
    late: str = "",
) -> tuple[Exit, Sequence[RunId]]:
    """Send to one run, to several, or to all that a filter matches; the worst exit code, and which were steered.

    `members` says the same as `send` to a server that sends to all that match.
    """
    selection = _selection(args)
    if len(args.runs) == 1 and not args.dry_run:
        (args.run,) = args.runs
        return await steer(args, talk, done, send, late=late), ()
    async with open_access(args, talk) as access:
        if selection is None:
            namespaces = meant_namespaces(args)
            answer = await steer_named(access, args.runs, send, namespaces=namespaces, dry_run=args.dry_run)
        elif args.dry_run:
            answer = await access.plan(selection, verb)
        elif await _is_agreed(args, talk, access, selection, verb):
            answer = await access.steer_piece(selection, verb, send, members=members)
            while answer.next:
                piece = await access.steer_piece(selection, verb, send, members=members, cursor=answer.next)
                answer = answer.joined(piece)
        else:
            answer = BatchAnswer()
        return await _tell(args, talk, access, answer, verb, done), answer.ids


def is_filtered(args: argparse.Namespace) -> bool:
    """Whether runs are chosen by a filter."""
    return args.everything or not _filter(args).is_empty


def _filter(args: argparse.Namespace) -> Selection:
    return Selection(
        statuses=[Status(status) for status in args.by_status],
        name=args.by_name,
        language=args.by_language,
        labels=dict(args.by_label),
        created_after=args.since,
        created_before=args.until,
        with_children=args.children,
        everything=args.everything,
        namespaces=[args.namespace] if names_namespace(args) else [],
        within=meant_namespaces(args),
    )


def _selection(args: argparse.Namespace) -> Selection | None:
    """The filter; None if runs are named."""
    if args.runs and is_filtered(args):
        raise BadUsage("name runs, or choose them by a filter: not both")
    if not args.runs and not is_filtered(args) and not names_namespace(args):
        raise BadUsage(
            f"which runs? Name them, or choose them by --label, --status, --name, --namespace, --language, --since or"
            " --until;"
            f" `perdure {args.verb} --all` means all"
        )
    return None if args.runs else _filter(args)


_DONE = {
    Verb.CANCEL: "cancelled",
    Verb.REDRIVE: "reopened",
    Verb.PAUSE: "paused",
    Verb.UNPAUSE: "unpaused",
    Verb.SIGNAL: "signalled",
    Verb.DELETE: "deleted",
}


async def _is_agreed(args: argparse.Namespace, talk: Console, access: Access, selection: Selection, verb: Verb) -> bool:
    """Whether whoever asks has seen how many runs there are. False only if there are none."""
    counted = await access.plan(selection, verb)
    runs = _number(counted)
    if args.yes or not counted.count:
        return bool(counted.count)
    if args.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "Add --yes to continue without a question, or --dry-run to list them."
        raise BadUsage(f"{runs} would be {_DONE[verb]}; nothing was changed", hint=hint)
    talk.always(f"{verb.value} {runs}, of which {counted.ids[0]} is the latest? [y/N]")
    if (await _answer_of_user()).strip().lower() not in ("y", "yes"):
        raise BadUsage("nothing was changed", hint="")
    return True


async def _answer_of_user() -> str:
    """A line of standard input. The loop goes on meanwhile, so that Ctrl-C is heard."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()


async def _tell(
    args: argparse.Namespace, talk: Console, access: Access, answer: BatchAnswer, verb: Verb, done: str
) -> Exit:
    if args.json:
        give_json(answer.plain())
    elif args.dry_run and answer.ids:
        give_text("\n".join(answer.ids))
    for failure in answer.failed:
        message = str(failure.error)
        talk.always(message if failure.id in message else f"run {failure.id}: {message}")
    if answer.dry_run:
        talk.say(f"{_number(answer)} would be {_DONE[verb]}" if answer.count else "no run matches")
    else:
        is_any_served = await access.is_served()
        for run, result in answer.steered:
            if result is not None:
                talk.say(_line(run, result, done, result.is_live or is_any_served))
        refused = f", {len(answer.failed)} refused" if answer.failed else ""
        talk.say(f"{_runs(len(answer.steered))}: {done}{refused}" if answer.count else "no run matches")
        ownerless = [run for run, result in answer.steered if result is not None and not result.is_live]
        if ownerless and not is_any_served:
            named = ownerless if len(ownerless) <= RUNS_NAMED else ()
            them = "it" if len(named) == 1 else "them"
            talk.say(f"Resume {them} with: {resume_command(args, *named)}")
    codes = {exit_of_error(failure.error) for failure in answer.failed}
    return next((code for code in WORST_FIRST if code in codes), Exit.ENGINE_ERROR if codes else Exit.OK)


def _number(answer: BatchAnswer) -> str:
    return f"more than {COUNTED:,} runs" if answer.more else _runs(answer.count)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _line(run: RunId, result: SendResult, done: str, is_live: bool) -> str:
    parts = [done, *([] if result.is_decided else [_not_decided(is_live)]), *result.remarks]
    return f"run {run}: {'; '.join(parts)}"


def _not_decided(is_live: bool) -> str:
    if is_live:
        return "recorded; its owner has not read it yet"
    return "recorded; it takes effect when the run is resumed"
