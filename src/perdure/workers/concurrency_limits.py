"""How much of one language's work a worker does at a time: a Playbook's worker has 8 step-runs in hand (PBK-197).

What holds a place is one task of a pipeline or of an iteration, while its function works: a pipeline that waits for its
next attempt, for a child or for a patch has nothing in hand. Inline functions never wait and need no place.
Those without a place wait in order of arrival, wherever they will run; families take turns (`groups`). A thread that
has ended one takes the next at once: short functions would otherwise pay a turn of the event loop for every place.
"""

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from perdure.providers.registry import Mode
from perdure.workers.task_execution import TaskExecution

# How many tasks of one kind a worker has in hand: databases bear only so many connections (PBK-197).

LONG = 30.0
"""Seconds that others wait for a place before those who have had theirs all the while need none."""

_THREAD = Mode.THREAD  # members of an enumeration are found slowly, and every task asks

MOST_LONG = 4  # errands without a place, for each place there is


class Places:
    """So many at a time, in order of arrival within a family."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._placed: dict[int, TaskExecution] = {}
        self._long: dict[int, TaskExecution] = {}
        self._long_of: Counter[str] = Counter()  # by family
        self._waiting: OrderedDict[str, deque[TaskExecution]] = OrderedDict()  # by family, in the order of their turns

    def __contains__(self, errand: TaskExecution) -> bool:
        return id(errand) in self._placed

    @property
    def is_full(self) -> bool:
        return len(self._placed) >= self._limit

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits because there is no place."""
        return len(self._placed) >= self._limit and bool(self._waiting)

    @property
    def placed(self) -> list[TaskExecution]:
        return list(self._placed.values())

    def wait(self, errand: TaskExecution) -> None:
        waiting = self._waiting.get(errand.family)
        if waiting is None:
            self._waiting[errand.family] = deque((errand,))
        else:
            waiting.append(errand)

    def first(self, instead_of: TaskExecution | None = None) -> TaskExecution | None:
        """Whose turn it is, if there were a place; or if that one had left."""
        begun = self._begun(instead_of) if self._long else {}  # else no family can have more than there are places
        for _ in range(len(self._waiting)):
            family, waiting = next(iter(self._waiting.items()))
            while waiting and waiting[0].is_over:  # it may have been stopped while it waited
                waiting.popleft()
            if not waiting:
                del self._waiting[family]
            elif begun.get(family, 0) < self._limit:
                return waiting[0]
            else:
                self._waiting.move_to_end(family)
        return None

    def _begun(self, instead_of: TaskExecution | None) -> Mapping[str, int]:
        """How many of each family have begun, with and without a place."""
        begun = self._long_of.copy()
        begun.update(errand.family for errand in self._placed.values() if errand is not instead_of)
        return begun

    def take(self) -> TaskExecution | None:
        """Whose turn it is; it has a place now."""
        if not self._waiting or len(self._placed) >= self._limit or (errand := self.first()) is None:
            return None
        self.place(errand)
        return errand

    def place(self, errand: TaskExecution) -> None:
        """It has a place now, as `first` has said; its family waits behind the others."""
        waiting = self._waiting.pop(errand.family)
        waiting.popleft()
        if waiting:
            self._waiting[errand.family] = waiting
        self._placed[id(errand)] = errand

    def leave(self, errand: TaskExecution) -> bool:
        """It has ended. False: it has not begun, or somebody else has its place, so there is nothing to leave."""
        if self._placed.pop(id(errand), None) is not None:
            return True
        if self._long.pop(id(errand), None) is None:
            return False
        self._long_of[errand.family] -= 1
        if not self._long_of[errand.family]:
            del self._long_of[errand.family]
        return True

    def make_room(self, long: Iterable[TaskExecution]) -> None:
        """They have had their places all the while that others waited."""
        share = max(1, self._limit // 4)
        for errand in long:
            count = self._long_of[errand.family]
            if errand in self and count < share and len(self._long) < MOST_LONG * self._limit:
                del self._placed[id(errand)]
                self._long[id(errand)] = errand
                self._long_of[errand.family] = count + 1


class GroupLimit:
    """Places in groups. An errand without a limited group needs none. All of it is called on the loop."""

    def __init__(self, limits: Mapping[str, int], begin: Callable[[TaskExecution], None], long: float = LONG) -> None:
        self._places = {group: Places(limit) for group, limit in limits.items()}
        self._begin = begin
        self._long = long
        self._alarms: dict[str, asyncio.TimerHandle] = {}

    def enter(self, errand: TaskExecution) -> bool:
        """Whether it may begin now. If not, it is begun when its turn has come."""
        group = errand.group
        places = self._places.get(group)
        if places is None:
            return True
        places.wait(errand)
        taken = places.take()
        if taken is not None and taken is not errand:
            self._begin(taken)
        self._watch(group, places)
        return taken is errand

    def leave(self, errand: TaskExecution) -> TaskExecution | None:
        """It has ended, wherever it was; answers with the one that may begin in its place."""
        group = errand.group
        places = self._places.get(group)
        if places is None:
            return None
        places.leave(errand)
        return places.take()

    def close(self) -> None:
        for alarm in self._alarms.values():
            alarm.cancel()

    def _watch(self, group: str, places: Places) -> None:
        if group not in self._alarms and places.is_wanted:
            loop, placed = asyncio.get_running_loop(), places.placed
            self._alarms[group] = loop.call_later(self._long, self._make_room, group, places, placed)

    def _make_room(self, group: str, places: Places, placed: list[TaskExecution]) -> None:
        del self._alarms[group]
        places.make_room(placed)
        while (errand := places.take()) is not None:
            self._begin(errand)
        self._watch(group, places)


class LanguageLimit:
    """The places of one language. All but `follow` is called on the loop."""

    def __init__(self, limit: int, begin: Callable[[TaskExecution], None], long: float = LONG) -> None:
        self._places = Places(limit)
        self._begin = begin
        self._long = long
        self._lock = threading.Lock()
        self._is_filling = False
        self._alarm: asyncio.TimerHandle | None = None

    def enter(self, errand: TaskExecution) -> None:
        """It begins as soon as there is a place."""
        with self._lock:
            self._places.wait(errand)
            if self._places.is_full:  # nearly always, where there is much to do
                self._watch()
                return
        self._fill()

    def leave(self, errand: TaskExecution) -> None:
        """It has ended, wherever it was; nobody can begin if it had no place, or its thread has passed that on."""
        with self._lock:
            has_left = self._places.leave(errand)
        if has_left:
            self._fill()

    def follow(self, errand: TaskExecution) -> TaskExecution | None:
        """In its thread: the one that takes over thread and place of this one, which has just ended."""
        with self._lock:
            if errand not in self._places:
                return None  # given up meanwhile, or long: its place belongs to somebody else
            following = self._places.first(instead_of=errand)
            if following is None or following.mode is not _THREAD:
                return None
            self._places.leave(errand)
            self._places.place(following)
            return following

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _fill(self) -> None:
        if self._is_filling:
            return  # one that began has ended at once: the loop below goes on anyway
        self._is_filling = True
        try:
            while (errand := self._take()) is not None:
                self._begin(errand)
        finally:
            self._is_filling = False

    def _take(self) -> TaskExecution | None:
        with self._lock:
            errand = self._places.take()
            if errand is None:
                self._watch()
            return errand

    def _watch(self) -> None:
        if self._alarm is None and self._places.is_wanted:
            loop, placed = asyncio.get_running_loop(), self._places.placed
            self._alarm = loop.call_later(self._long, self._make_room, placed)

    def _make_room(self, placed: list[TaskExecution]) -> None:
        self._alarm = None
        with self._lock:
            self._places.make_room(placed)
        self._fill()
