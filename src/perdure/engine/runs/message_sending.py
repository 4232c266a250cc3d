"""Sending control messages to runs of other processes, and what the sender is answered.

If a live process owns the run, the answer is the owner's: the run's history says that the message was accepted or
declined. Otherwise the answer is that of a dry run. The sender never takes the run over.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from perdure.engine.random_ids import new_key
from perdure.engine.runs import run_views
from perdure.engine.runs.dry_run import DryRun
from perdure.engine.slot import ELSEWHERE
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.control_messages import is_control_message
from perdure.kernel.errors import Conflict, EngineMissing, PerdureError, RunNotFound, UnfitInput
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import UnfitMessage, is_recorded_before, why_refused
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.commit_types import Message
from perdure.stores.protocol import RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client

ANSWER_TIMEOUT = 2.0  # seconds that an owner gets to answer
LOOK_EVERY = 0.02, 0.1  # seconds between looks at its run: at first, and at most


MISSING = "no server with an engine works on the store; nothing was stored"


class SendResult(msgspec.Struct, frozen=True):
    """What became of a control message that was not refused."""

    is_decided: bool  # its run has taken it up; else it is on disk, and will be decided
    is_live: bool  # a process drives the run
    is_new: bool = True  # False: the same was said before, and nothing was added
    remarks: tuple[str, ...] = ()


async def need_engine(client: "Client") -> None:
    """For a server that leaves runs to others: nothing is stored that nobody would go on with."""
    is_guest = client.runtime is not None and client.runtime.is_guest
    if is_guest and not any(server.serves for server in await client.store.servers()):
        raise EngineMissing(MISSING)


async def tell(client: "Client", run: RunId, message: i.Input, along: Sequence[RunId] = ()) -> SendResult:
    """See `Client.tell`."""
    if isinstance(message, i.Signal | i.Steer | i.Reopen | i.Migrate) and not message.key:
        message = msgspec.structs.replace(message, key=new_key())
    if client.act is not None and client.act.sender is not None and hasattr(message, "sender"):
        message = msgspec.structs.replace(message, sender=client.act.sender)
    row = await client.find(run)
    runtime = client.runtime
    if isinstance(message, i.Reopen):
        await need_engine(client)
    if runtime is not None and row.partition in runtime.partitions and not along:
        answer = await runtime.ask(run, message, act=client.act)
        if answer is not ELSEWHERE:
            if isinstance(answer, i.Refused):
                if answer.conflict:
                    raise refused(run, answer.reason)
                raise PerdureError(f"run {run}: {answer.reason}", hint=f"Look at it with `perdure show {run}`.")
            return SendResult(True, True)
        row = await client.find(run)
    return await send(client, row, message, client.answer_timeout, along)


async def send(
    client: "Client", row: RunRow, input: i.Input, timeout: float, along: Sequence[RunId] = ()
) -> SendResult:
    """`along` are other runs that are told the same, together with it: all of them hear of it or none."""
    store = client.store
    execution = await run_views.load(store, client.languages, row)
    is_live = bool(await store.owned([row.partition])) or any(server.serves for server in await store.servers())
    if row.stuck and not is_live:
        await _record(client, row.id, input, along)
        return SendResult(False, False, remarks=("decided when the run is not stuck",))
    if not is_live:
        now = client.clock.now()
        rehearsal = DryRun(store, client.answers, execution, now, client.clock.wall() - now)
        verdict = await rehearsal.play(input)
        if verdict.refusal is not None:
            raise refused(row.id, verdict.refusal)
        if verdict.is_new or along:
            await _record(client, row.id, input, along)
        return SendResult(False, False, verdict.is_new, verdict.remarks)
    if reason := why_refused(execution, input):
        raise refused(row.id, reason)
    if is_recorded_before(execution, input) and not along:
        return SendResult(True, True, is_new=False)
    last_seq = execution.state.seq
    at = await _record(client, row.id, input, along)
    return await _await_decision(client, execution, input, last_seq, at, timeout)


async def _record(client: "Client", run: RunId, input: i.Input, along: Sequence[RunId]) -> Instant:
    """When it arrived, as the store says."""
    message = Message(run, client.clock.now(), i.encode(input), is_control_message(input))
    if along:
        messages = [message, *(msgspec.structs.replace(message, to=other) for other in along)]
        delivered = next(
            (delivered for delivered in await client.store.send_together(messages) if delivered.message.to == run), None
        )
    else:
        delivered = await client.store.send(message)
    if delivered is None:
        raise RunNotFound(f"there is no run {run!r}")
    return delivered.message.at


async def _await_decision(
    client: "Client", execution: Execution, input: i.Input, last_seq: int, at: Instant, timeout: float
) -> SendResult:
    """The owner's answer, as the history has it; or that there is none yet."""
    until = monotonic() + timeout
    pause, longest = LOOK_EVERY
    is_counted = False
    while True:
        waits = any(_is_same(delivered.message, input, at) for delivered in await client.store.messages(execution.id))
        for last, body in await client.store.history(execution.id, last_seq):
            for _, events in decode_turns(execution.dialect, body):
                for event in events:
                    answer = _answered(event, input, at)
                    if isinstance(answer, str):
                        raise refused(execution.id, answer)
                    if answer:
                        return SendResult(True, True)
                    is_counted = is_counted or isinstance(event, e.MoreInputsDeclined)
            last_seq = last
        if not waits and is_counted:
            raise refused(
                execution.id, "it does not count; so many control messages were declined that they are no longer listed"
            )
        if not waits:  # decided without an event of its own: it was said before, or there was nothing left to stop
            return SendResult(True, True, is_new=False)
        if monotonic() >= until:
            return SendResult(False, bool(await client.store.owned([(await client.find(execution.id)).partition])))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, longest)


def _is_same(message: Message, input: i.Input, at: Instant) -> bool:
    return message.at == at and message.body == i.encode(input)


def _answered(event: e.Event, input: i.Input, at: Instant) -> bool | str:
    """Whether the event accepts the message; the reason if it declines it."""
    key = getattr(input, "key", "")
    match event:
        case e.InputDeclined("cancel", reason=reason, arrived=arrived) if isinstance(input, i.Cancel) and arrived == at:
            return reason
        case e.InputDeclined(kind, declined, reason=reason) if kind != "cancel" and key and declined == key:
            return reason
        case e.CancelRequested():
            return isinstance(input, i.Cancel)
        case e.SignalReceived() | e.Steered() | e.RunReopened() | e.EffectSettled() | e.RunMigrated():
            return bool(key) and event.key == key
        case _:
            return False


def refused(run: RunId, reason: str) -> PerdureError:
    if isinstance(reason, UnfitMessage):
        return UnfitInput(f"run {run}: {reason}", hint=f"See what takes it with `perdure show {run}`.", run=run)
    return Conflict(f"run {run}: {reason}", hint=f"Look at it with `perdure show {run}`.", run=run)


def not_ended(run: RunId) -> Conflict:
    return Conflict(f"run {run} has not ended", hint=f"Cancel it first: `perdure cancel {run}`.", run=run)
