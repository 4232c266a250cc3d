"""How much of one language's work a worker does at a time: a Playbook's worker has 8 step-runs in hand (PBK-197).

What holds a place is one task of a pipeline or of an iteration, while its function works: a pipeline that waits for its
next attempt, for a child or for a patch has nothing in hand. Inline functions never wait and need no place.
Those without a place wait in order of arrival, wherever they will run; families take turns (`groups`). A thread that
has ended one takes the next at once: short functions would otherwise pay a turn of the event loop for every place.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from perdure.kernel.ids import family_of
from perdure.providers.registry import Mode
from perdure.workers.task_execution import TaskExecution

# How many tasks of one kind a worker has in hand: databases bear only so many connections (PBK-197).

LONG = 30.0
"""Seconds that others wait for a place before those who have had theirs all the while need none."""

MOST_LONG = 4  # errands without a place, for each place there is


class Places:
    """So many at a time, in order of arrival within a family."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._placed: dict[int, TaskExecution] = {}
        self._long: dict[int, TaskExecution] = {}
        self._of: dict[str, int] = {}  # those who have begun, by family
        self._long_of: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[TaskExecution]] = OrderedDict()  # by family, in the order of their turns

    def __contains__(self, errand: TaskExecution) -> bool:
        return id(errand) in self._placed

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits because there is no place."""
        return len(self._placed) >= self._limit and bool(self._waiting)

    @property
    def placed(self) -> list[TaskExecution]:
        return list(self._placed.values())

    def wait(self, errand: TaskExecution) -> None:
        self._waiting.setdefault(family_of(errand.assignment.run), deque()).append(errand)

    def first(self, instead_of: TaskExecution | None = None) -> TaskExecution | None:
        """Whose turn it is, if there were a place; or if that one had left."""
        left = "" if instead_of is None else family_of(instead_of.assignment.run)
        for _ in range(len(self._waiting)):
            family, waiting = next(iter(self._waiting.items()))
            while waiting and waiting[0].is_over:  # it may have been stopped while it waited
                waiting.popleft()
            if not waiting:
                del self._waiting[family]
            elif self._of.get(family, 0) - (family == left) < self._limit:
                return waiting[0]
            else:
                self._waiting.move_to_end(family)
        return None

    def take(self) -> TaskExecution | None:
        """Whose turn it is; it has a place now."""
        if not self._waiting or len(self._placed) >= self._limit or (errand := self.first()) is None:
            return None
        family = family_of(errand.assignment.run)
        waiting = self._waiting[family]
        waiting.popleft()
        if waiting:
            self._waiting.move_to_end(family)
        else:
            del self._waiting[family]
        self._placed[id(errand)] = errand
        self._of[family] = self._of.get(family, 0) + 1
        return errand

    def leave(self, errand: TaskExecution) -> None:
        """It has ended; one that has not begun has nothing to leave."""
        family = family_of(errand.assignment.run)
        if self._placed.pop(id(errand), None) is None:
            if self._long.pop(id(errand), None) is None:
                return
            _count_down(self._long_of, family)
        _count_down(self._of, family)

    def make_room(self, long: Iterable[TaskExecution]) -> None:
        """They have had their places all the while that others waited."""
        share = max(1, self._limit // 4)
        for errand in long:
            family = family_of(errand.assignment.run)
            count = self._long_of.get(family, 0)
            if errand in self and count < share and len(self._long) < MOST_LONG * self._limit:
                del self._placed[id(errand)]
                self._long[id(errand)] = errand
                self._long_of[family] = count + 1


def _count_down(counts: dict[str, int], family: str) -> None:
    left = counts[family] - 1
    if left:
        counts[family] = left
    else:
        del counts[family]


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
        self._fill()

    def leave(self, errand: TaskExecution) -> None:
        """It has ended, wherever it was; without a place there is nothing to leave."""
        with self._lock:
            self._places.leave(errand)
        self._fill()

    def follow(self, errand: TaskExecution) -> TaskExecution | None:
        """In its thread: the one that takes over thread and place of this one, which has just ended."""
        with self._lock:
            if errand not in self._places:
                return None  # given up meanwhile, or long: its place belongs to somebody else
            following = self._places.first(instead_of=errand)
            if following is None or following.mode is not Mode.THREAD:
                return None
            self._places.leave(errand)
            return self._places.take()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _fill(self) -> None:
        if self._is_filling:
            return  # one that began has ended at once: the loop below goes on anyway
        self._is_filling = True
        try:
            while True:
                with self._lock:
                    errand = self._places.take()
                if errand is None:
                    break
                self._begin(errand)
        finally:
            self._is_filling = False
        with self._lock:
            if self._alarm is None and self._places.is_wanted:
                loop, placed = asyncio.get_running_loop(), self._places.placed
                self._alarm = loop.call_later(self._long, self._make_room, placed)

    def _make_room(self, placed: list[TaskExecution]) -> None:
        self._alarm = None
        with self._lock:
            self._places.make_room(placed)
        self._fill()
