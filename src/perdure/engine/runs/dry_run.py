"""The dry run: what the state of a run without a live owner would be if the run were resumed now. Nothing is kept.

    recorded state ─▶ due bounds and all messages, in order of arrival, accepted without a move ─▶ state shown

It answers senders of control messages, and views show its state; `history` has only what was decided.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.engine.runs.inbox import borrowed_by
from perdure.kernel import inputs as i
from perdure.kernel.control_messages import RESULTS, kind_of
from perdure.kernel.documents.lookups import Fetch
from perdure.kernel.errors import NewerRecord
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.input_recording import why_refused
from perdure.kernel.instants import format_instant
from perdure.kernel.json_values.values import Instant
from perdure.kernel.pause import PAUSE, is_pause
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.turn import Turn
from perdure.stores.protocol import Store

NO_MOVES = Limits()


class Pending(msgspec.Struct, frozen=True):
    """Something that is recorded and not decided yet."""

    kind: str  # signal, steer, cancel, reopen, settle; result, deadline
    text: str
    at: Instant
    by: str = ""
    key: str = ""

    def masked(self, mask: Mask) -> "Pending":
        return msgspec.structs.replace(self, text=mask.text(self.text), by=mask.text(self.by))

    def plain(self) -> dict[str, str | None]:
        return {
            "kind": self.kind,
            "text": self.text,
            "at": format_instant(self.at),
            "by": self.by or None,
            "key": self.key or None,
        }


class DryRunAnswer(msgspec.Struct, frozen=True):
    """What would become of one more control message."""

    refusal: str | None = None
    is_new: bool = True  # False: the same message was sent before
    remarks: tuple[str, ...] = ()


class DryRun:
    """Accepts what waits for a run. `execution` is used up: afterwards it is not the recorded state any more."""

    def __init__(self, store: Store, answers: Fetch, execution: Execution, now: Instant, ahead: Instant = 0) -> None:
        self.execution = execution
        self.pending: list[Pending] = []
        self._store = store
        self._answers = answers
        self._now = now
        self._ahead = ahead  # of the wall, compared with the store's clock
        self._accepted: list[tuple[Instant, i.Input]] = []

    async def play(self, control: i.Input | None = None) -> DryRunAnswer:
        """Accept everything that waits, and then `control`, which the answer is about."""
        execution = self.execution
        refusal = None if control is None else why_refused(execution, control)
        cause = ""
        for at, input in await self._waiting():
            before = refusal
            turn = await self._accept(input, at)
            self._note(turn, input, at)
            if control is not None:
                refusal = why_refused(execution, control)
                if refusal is None:
                    cause = ""
                elif before is None:
                    cause = _cause(turn, input, at)
        if control is None:
            return DryRunAnswer()
        if refusal is not None:
            return DryRunAnswer(f"{cause}: {refusal}" if cause else refusal)
        unreached = _unreached(execution, control)
        tried = await self._accept(control, self._now)
        if tried.changes_nothing:
            return DryRunAnswer(is_new=False, remarks=self._earlier(control))
        return DryRunAnswer(
            remarks=(*self._remarks(control), *([f"applies when {unreached} is reached"] if unreached else ()))
        )

    async def waiting(self) -> list[Pending]:
        """What waits, without trying it."""
        for at, input in await self._waiting():
            self._note(Turn(self.execution, input, at, at), input, at)
        return self.pending

    async def _waiting(self) -> Sequence[tuple[Instant, i.Input]]:
        """Due bounds and messages in order of arrival. A wait for a control message has not expired yet."""
        state = self.execution.state
        waiting: list[tuple[Instant, int, i.Input]] = [
            (timer.due_with(self._ahead), i.TIMER_RANK + timer.rank, i.TimerDue(number))
            for number, timer in state.timers.items()
            if timer.due_with(self._ahead) <= self._now and timer.rank < i.CONTROL_WAIT_RANK
        ]
        for delivered in await self._store.messages(self.execution.id):
            try:
                input = i.decode(delivered.message.body)
            except NewerRecord:
                continue  # the run cannot take it now either
            waiting.append((delivered.message.at, 0, input))
        return [(at, input_waiting) for at, _, input_waiting in sorted(waiting, key=lambda row: row[:2])]

    async def _accept(self, input: i.Input, at: Instant) -> Turn:
        """As its owner would, but without a move."""
        turn = Turn(self.execution, input, at, at)  # as if decided at once: the same at every look
        while (needs := decide(turn, NO_MOVES, is_held=True)) is not None:
            if needs.lookups:
                turn.answers.update(await self._answers(needs.lookups))
            values = await self._store.values(self.execution.id, needs.digests)
            for source, _ in borrowed_by(self.execution.id, input):
                values |= await self._store.values(source, [name for name in needs.digests if name not in values])
            turn.absent.update(name for name in needs.digests if name not in values)
            missing = turn.absent.intersection(needs.digests)
            if missing and not needs.may_be_absent:
                raise LookupError(f"large values of run {self.execution.id} are not in the store")
            turn.texts.update(values)
        self._accepted.append((at, input))
        return turn

    def _note(self, turn: Turn, input: i.Input, at: Instant) -> None:
        """What people are told of it while it is not decided."""
        refused = turn.answer.reason if isinstance(turn.answer, i.Refused) else ""
        if isinstance(input, i.Cancel):
            kind, event_text = "cancel", "cancel requested"
        elif kind := kind_of(input):
            event_text = _phrase(self.execution, input)
        elif isinstance(input, i.TimerDue) and not refused:
            kind, event_text = "deadline", "a deadline passed"
        elif isinstance(input, RESULTS) and not refused:
            kind, event_text = "result", "a result arrived" if not isinstance(input, i.ChildResult) else "a child ended"
        else:
            return
        by = getattr(input, "by", "")
        who = f" by {by}" if by else ""
        fate = f"does not count: {refused}" if refused else "takes effect when resumed"
        text = f"{event_text} at {format_instant(at)}{who}, {fate}"
        self.pending.append(Pending(kind, text, at, by, getattr(input, "key", "")))

    def _earlier(self, control: i.Input) -> tuple[str, ...]:
        if isinstance(control, i.Cancel):
            for at, input in self._accepted[:-1]:
                if isinstance(input, i.Cancel):
                    return (f"a cancel requested at {format_instant(at)} waits already",)
        return ("it was said before",)

    def _remarks(self, control: i.Input) -> list[str]:
        remarks = []
        before = self._accepted[:-1]
        about = _subjects(self.execution, control)
        for at, input in before:
            if kind_of(input) and not isinstance(input, i.Cancel) and about & _subjects(self.execution, input):
                by = getattr(input, "by", "")
                who = f" by {by}" if by else ""
                remarks.append(f"overrides {_phrase(self.execution, input)}{who}, recorded at {format_instant(at)}")
        if any(isinstance(earlier, RESULTS) for _, earlier in before):
            remarks.append("decided with what waits before it")
        return remarks


def _cause(turn: Turn, input: i.Input, at: Instant) -> str:
    """Why a control message would be refused, and since when."""
    match input:
        case i.TimerDue():
            cause = next((text for event in turn.events if (text := _message(event))), "a deadline around it passed")
            return f"{cause.rstrip('.')} (at {format_instant(at)})"
        case i.Cancel(_, by):
            return f"a cancel was requested at {format_instant(at)}{f' by {by}' if by else ''}"
        case _ if kind_of(input):
            return f"{_phrase(turn.execution, input)} was recorded at {format_instant(at)}"
        case _:
            return f"what arrived at {format_instant(at)} comes first"


def _message(event: object) -> str:
    """The message in an event of a language, if it has one."""
    message = getattr(event, "message", None) or getattr(getattr(event, "error", None), "message", None)
    return message if isinstance(message, str) else ""


def _subjects(execution: Execution, input: i.Input) -> frozenset[str]:
    if not isinstance(input, i.Signal | i.Steer | i.Reopen):
        return frozenset()
    return frozenset({"pause"}) if is_pause(input) else execution.dialect.subjects(input)


def _phrase(execution: Execution, input: i.Input) -> str:
    if isinstance(input, i.Steer) and is_pause(input):
        return "pause" if input.verb == PAUSE else "unpause"
    if isinstance(input, i.Signal | i.Steer | i.Reopen) and (phrase := execution.dialect.phrase(input)) is not None:
        return phrase
    match input:
        case i.Signal(name):
            return f"signal {name!r}"
        case i.Steer(verb):
            return verb
        case i.Cancel():
            return "cancel"
        case i.EffectSettle(effect, result):
            return f"effect {effect!r} settled as {'not done' if result is None else 'done'}"
        case i.Migrate():
            return "a move to another document"
        case _:
            return "redrive"


def _unreached(execution: Execution, input: i.Input) -> str:
    if is_pause(input):
        return ""
    return execution.dialect.unreached(execution, input) if isinstance(input, i.Signal | i.Steer | i.Reopen) else ""


def with_pending(picture: Any, pending: Sequence[Pending]) -> Any:
    """A picture with what is recorded and not decided yet, behind whatever else waits in it."""
    if not pending or not isinstance(picture, dict):
        return picture
    return {**picture, "pending": [*picture.get("pending", ()), *(message.plain() for message in pending)]}
