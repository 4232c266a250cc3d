"""What would become of a run that nobody drives, if it were taken up now: found out on a copy that nobody keeps.

    recorded state ─▶ bounds that are due and all letters, in order of arrival, accepted without a move ─▶ how it stands

Whoever sends a word is answered by it, and whoever looks at the run sees it; `history` has only what was decided.
"""

from collections.abc import Sequence

import msgspec

from perdure.engine.document_validation import Fetch
from perdure.engine.inbox import borrowed_by
from perdure.kernel import inputs as i
from perdure.kernel.control_messages import RESULTS, kind_of
from perdure.kernel.errors import NewerRecord
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.input_recording import why_refused
from perdure.kernel.instants import written
from perdure.kernel.secret_masking import Mask
from perdure.kernel.turn import Turn
from perdure.kernel.values import Instant
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
            "at": written(self.at),
            "by": self.by or None,
            "key": self.key or None,
        }


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of one more word."""

    refusal: str | None = None
    is_new: bool = True  # False: the same was said before
    remarks: tuple[str, ...] = ()


class DryRun:
    """Takes a run up to where it would stand. `execution` is spent on it: it is not what is recorded any more."""

    def __init__(self, store: Store, answers: Fetch, execution: Execution, now: Instant, ahead: Instant = 0) -> None:
        self.execution = execution
        self.pending: list[Pending] = []
        self._store = store
        self._answers = answers
        self._now = now
        self._ahead = ahead  # of the wall, compared with the store's clock
        self._accepted: list[tuple[Instant, i.Input]] = []

    async def play(self, word: i.Input | None = None) -> Verdict:
        """Everything that waits, and then `word`, of which the verdict tells."""
        execution = self.execution
        refusal = None if word is None else why_refused(execution, word)
        cause = ""
        for at, given in await self._waiting():
            before = refusal
            turn = await self._accept(given, at)
            self._note(turn, at)
            if word is not None:
                refusal = why_refused(execution, word)
                if refusal is None:
                    cause = ""
                elif before is None:
                    cause = _cause(turn, at)
        if word is None:
            return Verdict()
        if refusal is not None:
            return Verdict(f"{cause}: {refusal}" if cause else refusal)
        unreached = _unreached(execution, word)
        tried = await self._accept(word, self._now)
        if tried.changes_nothing:
            return Verdict(is_new=False, remarks=self._earlier(word))
        return Verdict(remarks=(*self._remarks(word), *([f"applies when {unreached} is reached"] if unreached else ())))

    async def waiting(self) -> list[Pending]:
        """What waits, without trying it."""
        for at, given in await self._waiting():
            self._note(Turn(self.execution, given, at, at), at)
        return self.pending

    async def _waiting(self) -> Sequence[tuple[Instant, i.Input]]:
        """Bounds that are due, and letters, in order of arrival. A wait for a word has not run out yet."""
        state = self.execution.state
        waiting: list[tuple[Instant, int, i.Input]] = [
            (timer.due_with(self._ahead), i.TIMER_RANK + timer.rank, i.TimerDue(number))
            for number, timer in state.timers.items()
            if timer.due_with(self._ahead) <= self._now and timer.rank < i.WORD_RANK
        ]
        for delivered in await self._store.messages(self.execution.id):
            try:
                given = i.decode(delivered.message.body)
            except NewerRecord:
                continue  # the run cannot take it now either
            waiting.append((delivered.message.at, 0, given))
        return [(at, given) for at, _, given in sorted(waiting, key=lambda one: one[:2])]

    async def _accept(self, given: i.Input, at: Instant) -> Turn:
        """As its owner would, but without a move."""
        turn = Turn(self.execution, given, at, at)  # as if decided at once: the same at every look
        while (needs := decide(turn, NO_MOVES, is_held=True)) is not None:
            if needs.lookups:
                turn.answers.update(await self._answers(needs.lookups))
            values = await self._store.values(self.execution.id, needs.digests)
            for source, _ in borrowed_by(self.execution.id, given):
                values |= await self._store.values(source, [name for name in needs.digests if name not in values])
            turn.absent.update(name for name in needs.digests if name not in values)
            missing = turn.absent.intersection(needs.digests)
            if missing and not needs.may_be_absent:
                raise LookupError(f"large values of run {self.execution.id} are not in the store")
            turn.texts.update(values)
        self._accepted.append((at, given))
        return turn

    def _note(self, turn: Turn, at: Instant) -> None:
        """What people are told of it while it is not decided."""
        given = turn.input
        refused = turn.answer.reason if isinstance(turn.answer, i.Refused) else ""
        if isinstance(given, i.Cancel):
            kind, event_text = "cancel", "cancel requested"
        elif kind := kind_of(given):
            event_text = _phrase(self.execution, given)
        elif isinstance(given, i.TimerDue) and not refused:
            kind, event_text = "deadline", "a deadline passed"
        elif isinstance(given, RESULTS) and not refused:
            kind, event_text = "result", "a result arrived" if not isinstance(given, i.ChildResult) else "a child ended"
        else:
            return
        by = getattr(given, "by", "")
        who = f" by {by}" if by else ""
        fate = f"does not count: {refused}" if refused else "takes effect when resumed"
        text = f"{event_text} at {written(at)}{who}, {fate}"
        self.pending.append(Pending(kind, text, at, by, getattr(given, "key", "")))

    def _earlier(self, word: i.Input) -> tuple[str, ...]:
        if isinstance(word, i.Cancel):
            for at, given in self._accepted[:-1]:
                if isinstance(given, i.Cancel):
                    return (f"a cancel requested at {written(at)} waits already",)
        return ("it was said before",)

    def _remarks(self, word: i.Input) -> list[str]:
        remarks = []
        before = self._accepted[:-1]
        about = _subjects(self.execution, word)
        for at, given in before:
            if kind_of(given) and not isinstance(given, i.Cancel) and about & _subjects(self.execution, given):
                by = getattr(given, "by", "")
                who = f" by {by}" if by else ""
                remarks.append(f"overrides {_phrase(self.execution, given)}{who}, recorded at {written(at)}")
        if any(isinstance(given, RESULTS) for _, given in before):
            remarks.append("decided with what waits before it")
        return remarks


def _cause(turn: Turn, at: Instant) -> str:
    """What it was that speaks against a word, and since when."""
    match turn.input:
        case i.TimerDue():
            cause = next((text for event in turn.events if (text := _message(event))), "a deadline around it passed")
            return f"{cause.rstrip('.')} (at {written(at)})"
        case i.Cancel(_, by):
            return f"a cancel was requested at {written(at)}{f' by {by}' if by else ''}"
        case given if kind_of(given):
            return f"{_phrase(turn.execution, given)} was recorded at {written(at)}"
        case _:
            return f"what arrived at {written(at)} comes first"


def _message(event: object) -> str:
    """What a language says of its own event, if it has words for it."""
    message = getattr(event, "message", None) or getattr(getattr(event, "error", None), "message", None)
    return message if isinstance(message, str) else ""


def _subjects(execution: Execution, given: i.Input) -> frozenset[str]:
    if not isinstance(given, i.Signal | i.Steer | i.Reopen):
        return frozenset()
    return execution.dialect.subjects(given)


def _phrase(execution: Execution, given: i.Input) -> str:
    if isinstance(given, i.Signal | i.Steer | i.Reopen) and (phrase := execution.dialect.phrase(given)) is not None:
        return phrase
    match given:
        case i.Signal(name):
            return f"signal {name!r}"
        case i.Steer(verb):
            return verb
        case i.Cancel():
            return "cancel"
        case i.EffectSettle(effect, result):
            return f"effect {effect!r} settled as {'not done' if result is None else 'done'}"
        case _:
            return "redrive"


def _unreached(execution: Execution, given: i.Input) -> str:
    return execution.dialect.unreached(execution, given) if isinstance(given, i.Signal | i.Steer | i.Reopen) else ""
