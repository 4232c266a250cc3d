"""A resident run: one slot, one mailbox.

    LOADING -> IDLE -> READY -> (FETCHING ->) COMMITTING -> IDLE -> GONE
                                                         -> STUCK

While a transition of the run is unsynced it takes no input: mail waits.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from operator import attrgetter

import msgspec

from perdure.kernel.control_messages import held_places, is_control_message
from perdure.kernel.execution import Execution
from perdure.kernel.ids import RunName
from perdure.kernel.inputs import (
    CALENDAR_RANK,
    TIMER_RANK,
    WORD_RANK,
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
from perdure.kernel.state import OpenTimer
from perdure.kernel.turn import Turn
from perdure.kernel.values import Instant, RunId
from perdure.stores.commit_types import NewRun, RunSummary


class Phase(IntEnum):
    LOADING = 0
    IDLE = 1
    READY = 2
    FETCHING = 3
    COMMITTING = 4
    STUCK = 5
    GONE = 6  # not ours any more: whatever still comes back to it is dropped


# Every step asks for these: a global name is found ten times as fast as a member of an enumeration.
IDLE, READY, COMMITTING, STUCK, GONE = Phase.IDLE, Phase.READY, Phase.COMMITTING, Phase.STUCK, Phase.GONE
_LOADING = Phase.LOADING


ELSEWHERE = Refused("the run belongs to another process")
"""No answer of the run's: whoever asked may ask its owner, through the store."""


class Mail(msgspec.Struct):
    """An input on its way into a run, with everything that must happen when it is decided."""

    at: Instant
    rank: int
    given: Input
    position: int | None = None  # in the inbox, deleted by the commit that decides it
    partition: int = 0  # whose inbox that is; a run that is not there yet is born in it
    reply: Callable[[InputAnswer], None] | None = None
    values: tuple[tuple[bytes, bytes], ...] = ()  # large values that came with it
    borrowed: tuple[tuple[RunId, bytes | None], ...] = ()  # and those that lie with another run

    def answer(self, given: InputAnswer) -> None:
        if self.reply is not None:
            self.reply(given)

    @property
    def is_acknowledged_word(self) -> bool:
        """Whether somebody was told that it is recorded, and it is to leave a trace if it does not count."""
        return self.position is not None and is_control_message(self.given)

    @property
    def comes_again(self) -> bool:
        """Whether the next owner of the run has it anyway: it lies in the store, or follows from what is recorded."""
        return self.position is not None or isinstance(self.given, Wake | Proceed | TaskLost | TimerDue | TakeUp)


_order = attrgetter("at", "rank")


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
        self.waits: list[tuple[Instant, int]] = []  # ends of waits for a word, which come after everything else
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
        self.has_unassigned_tasks = False  # some of its tasks may be in nobody's hands; looked at when it comes to rest
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
        self.pooled = {number for number, task in execution.state.tasks.items() if task.pool}

    def set_timer(self, timer: OpenTimer, number: int) -> None:
        heappush(self._timers_like(timer), (timer.due, number))

    def _timers_like(self, timer: OpenTimer) -> list[tuple[Instant, int]]:
        if timer.rank >= WORD_RANK:
            return self.waits
        return self.calendar if timer.rank == CALENDAR_RANK else self.timers

    def look_at_wall(self, now: Instant, wall: Instant) -> None:
        """Timers whose instant the wall shows, or has shown, are due by the store's clock too."""
        self.ahead = wall - now
        while (due := self._first(self.calendar)) is not None and due <= wall:
            _, number = heappop(self.calendar)
            heappush(self.timers, (due - self.ahead, number))

    def next_due(self) -> Instant | None:
        """By the store's clock, if nobody sets the wall meanwhile."""
        if not (self.timers or self.waits or self.calendar):
            return None
        due, on_wall = self.due_times()
        if on_wall is not None and (due is None or on_wall - self.ahead < due):
            return on_wall - self.ahead
        return due

    def due_times(self) -> tuple[Instant | None, Instant | None]:
        """The next one by the store's clock, and the next one on the wall."""
        bound = self._first(self.timers) if self.timers else None
        wait = self._first(self.waits) if self.waits else None
        due = bound if wait is None or (bound is not None and bound <= wait) else wait
        return due, self._first(self.calendar) if self.calendar else None

    def _first(self, timers: list[tuple[Instant, int]]) -> Instant | None:
        assert self.execution is not None
        open_timers = self.execution.state.timers
        while timers and timers[0][1] not in open_timers:
            heappop(timers)
        return timers[0][0] if timers else None

    def take(self, now: Instant, heard: Callable[["Slot"], Instant]) -> bool:
        """Take the mail up, bounds that are due among it, in order of arrival; on a tie a result is first.

        A wait for a word runs out only when there is nothing else to take up. `heard` says until when all letters are
        known. False: nothing can be taken, because a timer is due since then, and a letter may have come before it.
        """
        taken, self.mailbox = self.mailbox, []
        due = self._first(self.timers) if self.timers else None
        if due is not None and due <= now:
            known = min(now, heard(self))
            while due is not None and due <= known:
                taken.append(self._ring(self.timers))
                due = self._first(self.timers)
            if due is not None and due <= now:
                self.mailbox = [mail for mail in taken if mail.at > due]
                taken = [mail for mail in taken if mail.at <= due]
                if not taken:
                    return False
        if not taken and self.waits and not self._end_waits(taken, now, heard):
            return False
        if len(taken) > 1:
            taken.sort(key=_order)
            self.held = held_places([mail.given for mail in taken])
            self.unsynced = {name: text for mail in taken for name, text in mail.values}
        else:
            self.held = frozenset()
            self.unsynced = dict(taken[0].values) if taken else {}
        self.taken = taken
        self.decided = 0
        self.turns = []
        self.unfinished = None
        return True

    def _end_waits(self, taken: list[Mail], now: Instant, heard: Callable[["Slot"], Instant]) -> bool:
        """Take waits that have run out; False when the inbox has to be read first."""
        due = self._first(self.waits)
        if due is None or due > now or self.is_leaving:  # letters to a run that leaves are for its next owner
            return True
        known = min(now, heard(self))
        while due is not None and due <= known:
            taken.append(self._ring(self.waits))
            due = self._first(self.waits)
        return bool(taken)

    def _ring(self, timers: list[tuple[Instant, int]]) -> Mail:
        assert self.execution is not None
        due, number = heappop(timers)
        return Mail(due, TIMER_RANK + self.execution.state.timers[number].rank, TimerDue(number))

    @property
    def is_disowned(self) -> bool:
        return any(isinstance(mail.given, Disown) for mail in self.taken)

    def puts_words_first(self) -> bool:
        """Whether words were taken up, which are decided before the run is removed; the rest waits."""
        words = [mail for mail in self.taken if mail.is_acknowledged_word]
        if words:
            self.mailbox[:0] = [mail for mail in self.taken if not mail.is_acknowledged_word]
            self.taken = words
            self.held = frozenset()
        return bool(words)

    def finish(self, turn: Turn) -> None:
        """A turn is decided; its values are at hand for those behind it, although no disk has them yet."""
        self.unfinished = None
        self.turns.append(turn)
        self.decided += 1
        if turn.values:
            self.unsynced.update(turn.values)

    def put_back(self) -> None:
        """The decision did not happen: its mail waits again, timers excepted, which the state remembers."""
        self.mailbox[:0] = [mail for mail in self.taken if not isinstance(mail.given, TimerDue)]
        self.taken = []
        self.turns = []
        self.unfinished = None
        self.unsynced = {}
