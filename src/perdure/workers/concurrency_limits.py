"""How many tasks of one language, or of one group of providers, a worker executes at a time.

A Playbook's worker executes 8 step-runs at a time (PBK-197); databases bear only so many connections. A task has its
place while its function runs: a pipeline that waits for its next attempt, for a child or for a patch has none. Inline
functions never wait and need no place in a language.

Tasks without a place wait in order of arrival within a family of runs; families take turns. A thread that has ended a
task takes the next one at once: short functions would otherwise cost a turn of the event loop for every place.
"""

import asyncio
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from perdure.kernel.errors import PerdureError
from perdure.providers.registry import DATABASE, Mode
from perdure.providers.task_outcomes import RESULT_LIMIT
from perdure.workers.task_execution import TaskExecution

LONG = 30.0
"""Seconds that others wait before a task that had its place all that time continues without one."""

MOST_LONG = 4  # tasks that continue without a place, for each place there is

_THREAD = Mode.THREAD  # looking up a member of an enumeration is slow, and every task needs it


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker allows itself. `grace` is the time between a polite stop and giving a task up."""

    result_bytes: int = RESULT_LIMIT
    threads: int = 32
    processes: int = 4
    processes_apart: int = 16  # for suspects; those that wait for a place are held up by no more than each other
    tasks_per_process: int = 1000
    process_memory: int | None = None  # bytes of address space
    grace: float = 5.0  # seconds
    groups: Mapping[str, int] = field(default_factory=lambda: {DATABASE: 4})  # at a time, of providers of one group
    languages: Mapping[str, int] = field(default_factory=dict)  # at a time, of runs in one language
    long: float = LONG  # seconds after which one that others wait for does not count among them

    def divided(self, processes: int) -> "Limits":
        """For one of so many processes that are one worker together."""
        return replace(
            self,
            threads=ceil(self.threads / processes),
            processes=ceil(self.processes / processes),
            processes_apart=ceil(self.processes_apart / processes),
            groups={name: ceil(count / processes) for name, count in self.groups.items()},
            languages={name: ceil(count / processes) for name, count in self.languages.items()},
        )


class Places:
    """Which tasks have a place and which wait for one, in order of arrival within a family."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._placed: dict[int, TaskExecution] = {}
        self._long: dict[int, TaskExecution] = {}
        self._long_of: Counter[str] = Counter()  # by family
        self._waiting: OrderedDict[str, deque[TaskExecution]] = OrderedDict()  # by family, in the order of their turns

    def __contains__(self, execution: TaskExecution) -> bool:
        return id(execution) in self._placed

    @property
    def is_full(self) -> bool:
        return len(self._placed) >= self._limit

    @property
    def is_wanted(self) -> bool:
        """Whether a task waits because there is no place."""
        return len(self._placed) >= self._limit and bool(self._waiting)

    @property
    def placed(self) -> list[TaskExecution]:
        return list(self._placed.values())

    def wait(self, execution: TaskExecution) -> None:
        waiting = self._waiting.get(execution.family)
        if waiting is None:
            self._waiting[execution.family] = deque((execution,))
        else:
            waiting.append(execution)

    def first(self, instead_of: TaskExecution | None = None) -> TaskExecution | None:
        """The task that gets the next place; or that gets the place of `instead_of`, if that one left."""
        if not self._long:  # then no family can have more than the limit
            for waiting in self._waiting.values():
                if not waiting[0].is_over:
                    return waiting[0]
                break
            else:
                return None
        counts = self._count_begun(instead_of) if self._long else {}
        for _ in range(len(self._waiting)):
            family, waiting = next(iter(self._waiting.items()))
            while waiting and waiting[0].is_over:  # it was stopped while it waited
                waiting.popleft()
            if not waiting:
                del self._waiting[family]
            elif counts.get(family, 0) < self._limit:
                return waiting[0]
            else:
                self._waiting.move_to_end(family)
        return None

    def _count_begun(self, instead_of: TaskExecution | None) -> Mapping[str, int]:
        """How many of each family have begun, with and without a place."""
        counts = self._long_of.copy()
        counts.update(execution.family for execution in self._placed.values() if execution is not instead_of)
        return counts

    def take(self) -> TaskExecution | None:
        """Give the next task a place, if there is one."""
        if not self._waiting or len(self._placed) >= self._limit or (execution := self.first()) is None:
            return None
        self.place(execution)
        return execution

    def place(self, execution: TaskExecution) -> None:
        """Give a place to the task that `first` returned; its family waits behind the others."""
        waiting = self._waiting.pop(execution.family)
        waiting.popleft()
        if waiting:
            self._waiting[execution.family] = waiting
        self._placed[id(execution)] = execution

    def leave(self, execution: TaskExecution) -> bool:
        """The task has ended. False: it had no place, because it never began or another task has its place."""
        if self._placed.pop(id(execution), None) is not None:
            return True
        if self._long.pop(id(execution), None) is None:
            return False
        self._long_of[execution.family] -= 1
        if not self._long_of[execution.family]:
            del self._long_of[execution.family]
        return True

    def make_room(self, long: Iterable[TaskExecution]) -> None:
        """Take away the places of tasks that had them while others waited; a family loses at most a quarter."""
        share = max(1, self._limit // 4)
        for execution in long:
            count = self._long_of[execution.family]
            if execution in self and count < share and len(self._long) < MOST_LONG * self._limit:
                del self._placed[id(execution)]
                self._long[id(execution)] = execution
                self._long_of[execution.family] = count + 1


class TaskSemaphore:
    """Begins tasks as places become free. All but `follow` is called on the event loop."""

    def __init__(self, limit: int, begin: Callable[[TaskExecution], None], long: float = LONG) -> None:
        self._places = Places(limit)
        self._begin = begin
        self._long = long
        self._lock = threading.Lock()
        self._is_filling = False
        self._alarm: asyncio.TimerHandle | None = None

    def enter(self, execution: TaskExecution) -> None:
        """Begin the task as soon as there is a place."""
        with self._lock:
            self._places.wait(execution)
            if self._places.is_full:  # nearly always, under load
                self._watch()
                return
        self._fill()

    def leave(self, execution: TaskExecution) -> None:
        """The task has ended. None can begin if it had no place, or if its thread has passed the place on."""
        with self._lock:
            has_left = self._places.leave(execution)
        if has_left:
            self._fill()

    def follow(self, execution: TaskExecution) -> TaskExecution | None:
        """In the thread of a task that has just ended: the task that takes over its thread and place."""
        with self._lock:
            if execution not in self._places:
                return None  # abandoned meanwhile, or without a place after a long time
            following = self._places.first(instead_of=execution)
            if following is None or following.mode is not _THREAD:
                return None
            self._places.leave(execution)
            self._places.place(following)
            return following

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _fill(self) -> None:
        if self._is_filling:
            return  # a task that began has ended at once: the loop below continues
        self._is_filling = True
        try:
            while (execution := self._take()) is not None:
                self._begin(execution)
        finally:
            self._is_filling = False

    def _take(self) -> TaskExecution | None:
        with self._lock:
            execution = self._places.take()
            if execution is None:
                self._watch()
            return execution

    def _watch(self) -> None:
        if self._alarm is None and self._places.is_wanted:
            loop, placed = asyncio.get_running_loop(), self._places.placed
            self._alarm = loop.call_later(self._long, self._make_room, placed)

    def _make_room(self, placed: list[TaskExecution]) -> None:
        self._alarm = None
        with self._lock:
            self._places.make_room(placed)
        self._fill()


def limits_from_environment(languages: Mapping[str, tuple[str, int]], processes: int = 1) -> Limits:
    """What a worker allows itself, or its part of it if it is one of so many processes. `languages`: by which variable
    an operator says otherwise, and the usual number.
    """
    limits = Limits(
        groups={DATABASE: _count("PERDURE_DATABASE_TASKS", 4)},
        languages={name: _count(variable, usual) for name, (variable, usual) in languages.items()},
    )
    return limits if processes == 1 else limits.divided(processes)


def _count(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise PerdureError(f"{variable} is {text!r}", hint="It is a whole number, 1 or more.")
    return int(text)
