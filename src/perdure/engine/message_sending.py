"""A word on its way to a run that lives elsewhere, or nowhere: what its sender is told.

Where a live process owns the run, its owner answers: the word stands in the run's history, accepted or declined. Where
nobody does, a rehearsal answers. The run is never taken up for it.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from perdure.engine import run_views
from perdure.engine.dry_run import DryRun
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.control_messages import is_control_message
from perdure.kernel.errors import Conflict, RunNotFound
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import is_recorded_before, why_refused
from perdure.kernel.values import Instant, RunId
from perdure.stores.commit_types import Message
from perdure.stores.protocol import RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client

PATIENCE = 2.0  # seconds that an owner gets to answer
LOOK_EVERY = 0.02, 0.1  # seconds between looks at its run: at first, and at most


class SendResult(msgspec.Struct, frozen=True):
    """What became of a word that was not refused."""

    is_decided: bool  # its run has taken it up; else it is on disk, and will be decided
    is_live: bool  # a process drives the run
    is_new: bool = True  # False: the same was said before, and nothing was added
    remarks: tuple[str, ...] = ()


async def send(
    client: "Client", row: RunRow, given: i.Input, patience: float, along: Sequence[RunId] = ()
) -> SendResult:
    """`along` are other runs that are told the same, together with it: all of them hear of it or none."""
    store = client.store
    execution = await run_views.load(store, client.languages, row)
    is_live = bool(await store.owned([row.partition])) or any(server.serves for server in await store.servers())
    if row.stuck and not is_live:
        await _record(client, row.id, given, along)
        return SendResult(False, False, remarks=("decided when the run is not stuck",))
    if not is_live:
        now = client.clock.now()
        rehearsal = DryRun(store, client.answers, execution, now, client.clock.wall() - now)
        verdict = await rehearsal.play(given)
        if verdict.refusal is not None:
            raise refused(row.id, verdict.refusal)
        if verdict.is_new or along:
            await _record(client, row.id, given, along)
        return SendResult(False, False, verdict.is_new, verdict.remarks)
    if reason := why_refused(execution, given):
        raise refused(row.id, reason)
    if is_recorded_before(execution, given) and not along:
        return SendResult(True, True, is_new=False)
    seen = execution.state.seq
    at = await _record(client, row.id, given, along)
    return await _heard(client, execution, given, seen, at, patience)


async def _record(client: "Client", run: RunId, given: i.Input, along: Sequence[RunId]) -> Instant:
    """When it arrived, as the store says."""
    letter = Message(run, client.clock.now(), i.encode(given), is_control_message(given))
    if along:
        letters = [letter, *(msgspec.structs.replace(letter, to=other) for other in along)]
        sent = next(
            (delivered for delivered in await client.store.send_together(letters) if delivered.message.to == run), None
        )
    else:
        sent = await client.store.send(letter)
    if sent is None:
        raise RunNotFound(f"there is no run {run!r}")
    return sent.message.at


async def _heard(
    client: "Client", execution: Execution, given: i.Input, seen: int, at: Instant, patience: float
) -> SendResult:
    """The owner's answer, as the history has it; or that there is none yet."""
    until = monotonic() + patience
    pause, longest = LOOK_EVERY
    is_counted = False
    while True:
        waits = any(_is_same(delivered.message, given, at) for delivered in await client.store.messages(execution.id))
        for last, body in await client.store.history(execution.id, seen):
            for _, events in decode_turns(execution.dialect, body):
                for event in events:
                    answer = _answered(event, given, at)
                    if isinstance(answer, str):
                        raise refused(execution.id, answer)
                    if answer:
                        return SendResult(True, True)
                    is_counted = is_counted or isinstance(event, e.MoreInputsDeclined)
            seen = last
        if not waits and is_counted:
            raise refused(
                execution.id, "it does not count; so many words were declined that they are not listed any more"
            )
        if not waits:  # decided without an event of its own: it was said before, or there was nothing left to stop
            return SendResult(True, True, is_new=False)
        if monotonic() >= until:
            return SendResult(False, bool(await client.store.owned([(await client.find(execution.id)).partition])))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, longest)


def _is_same(message: Message, given: i.Input, at: Instant) -> bool:
    return message.at == at and message.body == i.encode(given)


def _answered(event: e.Event, given: i.Input, at: Instant) -> bool | str:
    """Whether the event accepts the word; the reason where it declines it."""
    key = getattr(given, "key", "")
    match event:
        case e.InputDeclined("cancel", reason=reason, arrived=arrived) if isinstance(given, i.Cancel) and arrived == at:
            return reason
        case e.InputDeclined(kind, declined, reason=reason) if kind != "cancel" and key and declined == key:
            return reason
        case e.CancelRequested():
            return isinstance(given, i.Cancel)
        case e.SignalReceived() | e.Steered() | e.RunReopened() | e.EffectSettled():
            return bool(key) and event.key == key
        case _:
            return False


def refused(run: RunId, reason: str) -> Conflict:
    return Conflict(f"run {run}: {reason}", hint=f"Look at it with `perdure show {run}`.", run=run)
