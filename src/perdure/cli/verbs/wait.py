"""`wait`: until a run has ended, until a step of it has, or until it is in a phase."""

import argparse
import asyncio

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.stdout import give_json, give_text
from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.kernel.execution import Execution
from perdure.kernel.outcomes import Status
from perdure.kernel.values import SECOND, RunId
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


class Condition(msgspec.Struct, frozen=True):
    kind: str  # ended, step or phase
    name: str = ""

    @property
    def text(self) -> str:
        return f"{self.kind}={self.name}" if self.name else self.kind


ENDED = Condition("ended")


def condition(text: str) -> Condition:
    """Raises ValueError for what cannot be waited for."""
    kind, _, name = text.partition("=")
    if text == ENDED.kind:
        return ENDED
    if kind not in ("step", "phase") or not name:
        raise ValueError(f"{text!r} cannot be waited for (expected ended, step=NAME or phase=PHASE)")
    return Condition(kind, name)


class ConditionResult(msgspec.Struct, frozen=True):
    is_met: bool
    status: Status
    is_over: bool  # the run has ended
    seq: int


async def look(
    client: Client, run: RunId, condition: Condition, before: ConditionResult | None = None
) -> ConditionResult:
    """Whether the condition is met now. `before`: the last look; what has not changed since is not read again."""
    row = await client.find(run)
    if condition == ENDED or (condition.kind == "phase" and row.status.value == condition.name.lower()):
        is_met = row.status.is_final or condition != ENDED
        return ConditionResult(is_met, row.status, row.status.is_final, 0)
    execution = await run_views.load(client.store, client.languages, row)
    state = execution.state
    if before is not None and before.seq == state.seq:
        return before
    if condition.kind == "step":
        is_met = condition.name in await _ended_steps(client, execution)
    else:
        is_met = condition.name.lower() in (state.activity.value, (await _phase(client, execution)).lower())
    return ConditionResult(is_met, state.activity, state.status.is_final, state.seq)


async def _ended_steps(client: Client, execution: Execution) -> frozenset[str]:
    dialect = execution.dialect
    turns = await run_views.turns(client.store, dialect, execution.id) if dialect.tells_steps_by_events else []
    return dialect.ended_steps(execution, turns)


async def _phase(client: Client, execution: Execution) -> str:
    """In the language's own word."""
    picture = execution.dialect.brief(execution) or await run_views.show(client.store, execution)
    status = picture.get("status")
    return str(status.get("phase", "") if isinstance(status, dict) else status or "")


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


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_wait(asked, talk))


async def _wait(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        try:
            async with asyncio.timeout(None if asked.timeout is None else asked.timeout / SECOND) as bound:
                result = await _until(observer, run, asked.condition, talk)
        except TimeoutError:
            if not bound.expired():
                raise
            result = await look(observer, run, asked.condition)
            if not result.is_met:
                talk.always(f"run {run}: {asked.condition.text} did not come within {span(asked.timeout)}")
                return _tell(asked, run, result, Exit.WAIT_TIMED_OUT)
        if not result.is_met:
            talk.always(f"run {run} has {result.status.done}; {asked.condition.text} does not come any more")
        return _tell(asked, run, result, Exit.OK if result.is_met else Exit.CONFLICT)


async def _until(observer: Client, run: RunId, condition: Condition, talk: Console) -> ConditionResult:
    """When it is met, or cannot be met any more."""
    result = await look(observer, run, condition)
    if not (result.is_met or result.is_over) and not await observer.store.owned([(await observer.find(run)).partition]):
        talk.say(f"no live process executes run {run}; start one with: perdure resume {run}")
    while not (result.is_met or result.is_over):
        await asyncio.sleep(LOOK_EVERY)
        result = await look(observer, run, condition, result)
    return result


def _tell(asked: argparse.Namespace, run: RunId, result: ConditionResult, code: Exit) -> Exit:
    if asked.json:
        give_json({"id": run, "status": result.status, "for": asked.condition.text, "met": result.is_met})
    else:
        give_text(result.status)
    return code
