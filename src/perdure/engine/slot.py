"""A resident run: one slot, one mailbox.

    LOADING -> IDLE -> READY -> (FETCHING ->) COMMITTING -> IDLE -> GONE
                                                         -> STUCK

While a transition of the run is unsynced it takes no input: mail waits.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from perdure.kernel.control_messages import deferred_places, is_control_message
from perdure.kernel.execution import Execution
from perdure.kernel.ids import RunName
from perdure.kernel.inputs import (
    CALENDAR_RANK,
    CONTROL_WAIT_RANK,
    TIMER_RANK,
    Disown,
    Input,
    InputAnswer,
    Proceed,
    Refused,
    TakeUp,
    TaskLost,
    TimerDue,
    Wake,
)
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.state import OpenTimer
from perdure.kernel.turn import Turn
from perdure.stores.access import Act
from perdure.stores.commit_types import NewRun, RunSummary, TaskAnswer

if TYPE_CHECKING:
    import asyncio


class SlotPhase(IntEnum):
    LOADING = 0
    IDLE = 1
    READY = 2
    FETCHING = 3
    COMMITTING = 4
    STUCK = 5
    GONE = 6  # not ours any more: whatever still comes back to it is dropped


# Every step asks for these: a global name is found ten times as fast as a member of an enumeration.
IDLE, READY, COMMITTING, STUCK, GONE = (
    SlotPhase.IDLE,
    SlotPhase.READY,
    SlotPhase.COMMITTING,
    SlotPhase.STUCK,
    SlotPhase.GONE,
)
_LOADING = SlotPhase.LOADING


ELSEWHERE = Refused("the run belongs to another process")
"""No answer of the run's: whoever asked may ask its owner, through the store."""


class Mail(msgspec.Struct, gc=False):
    """An input on its way into a run, with everything that must happen when it is decided."""

    at: Instant
    rank: int
    input: Input
    position: int | None = None  # in the inbox, deleted by the commit that decides it
    partition: int = 0  # whose inbox that is; a run that is not there yet is born in it
    reply: Callable[[InputAnswer], None] | None = None
    values: tuple[tuple[bytes, bytes], ...] = ()  # large values that came with it
    borrowed: tuple[tuple[RunId, bytes | None], ...] = ()  # and those that lie with another run
    lease_answer: TaskAnswer | None = None  # it is the answer of a worker elsewhere
    act: Act | None = None  # somebody asked for it: its record is written with what is decided

    def answer(self, answer: InputAnswer) -> None:
        if self.reply is not None:
            self.reply(answer)

    @property
    def is_acknowledged_control(self) -> bool:
        """Whether somebody was told that it is recorded, and it is to leave a trace if it does not count."""
        return self.position is not None and is_control_message(self.input)

    @property
    def comes_again(self) -> bool:
        """Whether the next owner of the run has it anyway: it lies in the store, or follows from what is recorded."""
        return self.position is not None or isinstance(self.input, Wake | Proceed | TaskLost | TimerDue | TakeUp)


def answer_into(future: "asyncio.Future[InputAnswer]") -> Callable[[InputAnswer], None]:
    """For `Mail.reply`: who waits for the future gets the answer."""

    def settle(answer: InputAnswer) -> None:
        if not future.done():
            future.set_result(answer)

    return settle


_order = attrgetter("at", "rank")
_NOTHING_HELD: frozenset[int] = frozenset()


class Slot:
    __slots__ = (
        "ahead",
        "alarm",
        "calendar",
        "cheap",
        "creation",
        "decided",
        "execution",
        "failures",
        "fetching",
        "has_unassigned_tasks",
        "held",
        "id",
        "is_expensive",
        "is_leaving",
        "lived",
        "mailbox",
        "partition",
        "phase",
        "pooled",
        "programs",
        "returning",
        "rivals",
        "snapshot_bytes",
        "summary",
        "tail_bytes",
        "taken",
        "timers",
        "turns",
        "unfinished",
        "unstarted",
        "unsynced",
        "waits",
    )

    def __init__(self, id: RunId, partition: int) -> None:
        self.id = id
        self.partition = partition
        self.phase = _LOADING
        self.execution: Execution | None = None
        self.creation: NewRun | None = None
        self.programs: tuple[tuple[bytes, str, bytes], ...] = ()
        self.lived: Sequence[tuple[int, bytes]] = ()  # a fork's past, as the other run recorded it
        self.summary: RunSummary | None = None  # as the store has it
        self.mailbox: list[Mail] = []
        self.timers: list[tuple[Instant, int]] = []  # bounds, which arrive when they are due
        self.waits: list[
            tuple[Instant, int]
        ] = []  # ends of waits for control messages, which come after everything else
        self.calendar: list[tuple[Instant, int]] = []  # timers whose due times are instants on the wall
        self.ahead: Instant = 0  # of the wall, compared with the store's clock, when it was last looked at
        self.alarm: Instant | None = None  # when this process will look at the timers again
        self.pooled: set[int] = set()
        self.tail_bytes = 0
        self.snapshot_bytes = 0
        self.failures = 0
        self.is_expensive = False  # its turns are decided in a thread, until so many of them were `cheap`
        self.cheap = 0
        self.fetching: set[int] = set()  # tasks whose large values are on their way from the store
        self.is_leaving = False  # its partition is being handed over: tasks are not begun, but kept in `unbegun`
        self.unstarted: list[int] = []
        self.has_unassigned_tasks = False  # some of its tasks may not be handed out; checked when the run is idle
        self.returning: set[int] = set()  # those of which it is being recorded
        self.rivals: dict[tuple[RunName, RunId], RunId] = {}  # who has the names that it has claimed in vain
        # The decision in progress.
        self.taken: list[Mail] = []
        self.decided = 0
        self.held: frozenset[int] = frozenset()  # places in `taken` after which no move is made yet
        self.turns: list[Turn] = []
        self.unfinished: Turn | None = None
        self.unsynced: dict[bytes, bytes] = {}  # large values that came with its mail or were kept by its turns

    @property
    def is_gone(self) -> bool:
        return self.phase is GONE

    @property
    def comes_again(self) -> bool:
        """Whether nothing would be missed if the run left memory now, without what it has in mind and in its box."""
        return self.creation is None and not self.taken and all(mail.comes_again for mail in self.mailbox)

    def install(self, execution: Execution) -> None:
        self.execution = execution
        self.timers, self.waits, self.calendar = [], [], []
        for number, timer in execution.state.timers.items():
            self._timers_like(timer).append((timer.due, number))
        for timers in (self.timers, self.waits, self.calendar):
            heapify(timers)
        self.pooled = {number for number, task in execution.state.tasks.items() if task.pool and not task.laid_down}

    def set_timer(self, timer: OpenTimer, number: int) -> None:
        heappush(self._timers_like(timer), (timer.due, number))

    def _timers_like(self, timer: OpenTimer) -> list[tuple[Instant, int]]:
        if timer.rank >= CONTROL_WAIT_RANK:
            return self.waits
        return self.calendar if timer.rank == CALENDAR_RANK else self.timers

    def look_at_wall(self, now: Instant, wall: Instant) -> None:
        """Timers whose instant the wall shows, or has shown, are due by the store's clock too."""
        self.ahead = wall - now
        while (due := self._first(self.calendar)) is not None and due <= wall:
            _, number = heappop(self.calendar)
            heappush(self.timers, (due - self.ahead, number))

    @property
    def _is_paused(self) -> bool:
        """Waits for a control message do not expire meanwhile."""
        return self.execution is not None and self.execution.state.pause is not None

    def next_due(self) -> Instant | None:
        """By the store's clock, if nobody sets the wall meanwhile."""
        if not (self.waits or self.calendar):
            return self._first(self.timers) if self.timers else None
        due, on_wall = self.due_times()
        if on_wall is not None and (due is None or on_wall - self.ahead < due):
            return on_wall - self.ahead
        return due

    def has_no_timer_before(self, due: Instant | None) -> bool:
        """Whether no bound is earlier, without looking which are open: the first of the heap is the earliest of all."""
        return not self.timers or (due is not None and self.timers[0][0] >= due)

    def due_times(self) -> tuple[Instant | None, Instant | None]:
        """The next one by the store's clock, and the next one on the wall."""
        bound = self._first(self.timers) if self.timers else None
        wait = self._first(self.waits) if self.waits and not self._is_paused else None
        due = bound if wait is None or (bound is not None and bound <= wait) else wait
        return due, self._first(self.calendar) if self.calendar else None

    def _first(self, timers: list[tuple[Instant, int]]) -> Instant | None:
        assert self.execution is not None
        open_timers = self.execution.state.timers
        while timers and timers[0][1] not in open_timers:
            heappop(timers)
        return timers[0][0] if timers else None

    def take(self, now: Instant, known_until: Callable[["Slot"], Instant]) -> bool:
        """Take the mail up, bounds that are due among it, in order of arrival; on a tie a result is first.

        A wait for a control message expires only if nothing else waits. `known_until` says until when all messages are
        known. False: nothing can be taken, because a timer was due since, and a message may have come before it.
        """
        mails, self.mailbox = self.mailbox, []
        timers = self.timers
        # The first of the heap is the earliest, open or not: while it is not due, none is.
        due = self._first(timers) if timers and timers[0][0] <= now else None
        if due is not None and due <= now:
            until = min(now, known_until(self))
            while due is not None and due <= until:
                mails.append(self._fire(self.timers))
                due = self._first(self.timers)
            if due is not None and due <= now:
                self.mailbox = [mail for mail in mails if mail.at > due]
                mails = [mail for mail in mails if mail.at <= due]
                if not mails:
                    return False
        if not mails and self.waits and not self._is_paused and not self._end_waits(mails, now, known_until):
            return False
        if len(mails) > 1:
            mails.sort(key=_order)
            self.held = deferred_places([mail.input for mail in mails])
            self.unsynced = {name: text for mail in mails for name, text in mail.values}
        else:
            self.held = _NOTHING_HELD
            self.unsynced = dict(mails[0].values) if mails and mails[0].values else {}
        self.taken = mails
        self.decided = 0
        self.turns = []
        self.unfinished = None
        return True

    def _end_waits(self, mails: list[Mail], now: Instant, known_until: Callable[["Slot"], Instant]) -> bool:
        """Take waits that have run out; False when the inbox has to be read first."""
        due = self._first(self.waits)
        if due is None or due > now or self.is_leaving:  # messages to a run that is handed over are for its next owner
            return True
        until = min(now, known_until(self))
        while due is not None and due <= until:
            mails.append(self._fire(self.waits))
            due = self._first(self.waits)
        return bool(mails)

    def _fire(self, timers: list[tuple[Instant, int]]) -> Mail:
        assert self.execution is not None
        due, number = heappop(timers)
        return Mail(due, TIMER_RANK + self.execution.state.timers[number].rank, TimerDue(number))

    @property
    def is_disowned(self) -> bool:
        return any(isinstance(mail.input, Disown) for mail in self.taken)

    def puts_control_first(self) -> bool:
        """Whether control messages were taken: they are decided before the run is removed; the rest waits."""
        control = [mail for mail in self.taken if mail.is_acknowledged_control]
        if control:
            self.mailbox[:0] = [mail for mail in self.taken if not mail.is_acknowledged_control]
            self.taken = control
            self.held = frozenset()
        return bool(control)

    def finish(self, turn: Turn) -> None:
        """A turn is decided; its values are at hand for those behind it, although no disk has them yet."""
        self.unfinished = None
        self.turns.append(turn)
        self.decided += 1
        if turn.values:
            self.unsynced.update(turn.values)

    def put_back(self) -> None:
        """The decision did not happen: its mail waits again, timers excepted, which the state remembers."""
        self.mailbox[:0] = [mail for mail in self.taken if not isinstance(mail.input, TimerDue)]
        self.taken = []
        self.turns = []
        self.unfinished = None
        self.unsynced = {}
