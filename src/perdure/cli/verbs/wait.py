"""`wait`: until a run has ended, until a step of it has, or until it is in a phase."""

import argparse
import asyncio

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.views.access import Access
from perdure.views.runs.run_screen import CONDITION, ConditionQuery, ConditionResult
from perdure.views.times import span

EXAMPLES = """\
examples:
  perdure wait 06g2k                                    until it has ended
  perdure wait 06g2k --for step=ship --timeout 10m      until its step ship has ended, at most ten minutes (exit code 6)
  perdure wait deploy-x7k --for phase=Paused            until a Story waits for a decision
  perdure wait @latest --for phase=waiting              a status, as `perdure ps` shows it

It only waits: a server, or another process, executes the run. A run that ends otherwise is a conflict (exit code 9).
"""

LOOK_EVERY = 0.1  # seconds
LOOK_EVERY_REMOTE = 0.5


ENDED = ConditionQuery()


def condition(text: str) -> ConditionQuery:
    """Raises ValueError for what cannot be waited for."""
    kind, _, name = text.partition("=")
    if text == ENDED.kind:
        return ENDED
    if kind == "step" and name:
        return ConditionQuery(kind="step", name=name)
    if kind == "phase" and name:
        return ConditionQuery(kind="phase", name=name)
    raise ValueError(f"{text!r} cannot be waited for (expected ended, step=NAME or phase=PHASE)")


def spell(args: ConditionQuery) -> str:
    return f"{args.kind}={args.name}" if args.name else args.kind


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument(
        "--for",
        dest="condition",
        metavar="CONDITION",
        type=a.checked(condition),
        default=ENDED,
        help="ended (the default), step=NAME or phase=PHASE",
    )
    parser.add_argument(
        "--timeout", metavar="DURATION", type=a.duration, help="stop waiting after this long (exit code 6)"
    )


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_wait(args, talk))


async def _wait(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as observer:
        run = await observer.resolve(args.run)
        try:
            async with asyncio.timeout(None if args.timeout is None else args.timeout / SECOND) as bound:
                result = await _until(observer, run, args.condition, talk)
        except TimeoutError:
            if not bound.expired():
                raise
            result = await observer.ask(CONDITION, args.condition, run)
            if not result.is_met:
                talk.always(f"run {run}: {spell(args.condition)} did not come within {span(args.timeout)}")
                return _tell(args, run, result, Exit.WAIT_TIMED_OUT)
        if not result.is_met:
            talk.always(f"run {run} has {result.status.done}; {spell(args.condition)} does not come any more")
        return _tell(args, run, result, Exit.OK if result.is_met else Exit.CONFLICT)


async def _until(access: Access, run: RunId, condition: ConditionQuery, talk: Console) -> ConditionResult:
    """When it is met, or cannot be met any more."""
    result = await access.ask(CONDITION, condition, run)
    if not (result.is_met or result.is_over or result.is_owned or access.is_remote):
        talk.say(f"no live process executes run {run}; start one with: perdure resume {run}")
    while not (result.is_met or result.is_over):
        await asyncio.sleep(LOOK_EVERY_REMOTE if access.is_remote else LOOK_EVERY)
        result = await access.ask(CONDITION, msgspec.structs.replace(condition, behind=result.seq), run)
    return result


def _tell(args: argparse.Namespace, run: RunId, result: ConditionResult, code: Exit) -> Exit:
    if args.json:
        give_json({"id": run, "status": result.status, "for": spell(args.condition), "met": result.is_met})
    else:
        give_text(result.status)
    return code
