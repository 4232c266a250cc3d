"""How much of one language's work a worker does at a time: a Playbook's worker has 8 step-runs in hand (PBK-197).

What holds a place is one task of a pipeline or of an iteration, while its function works: a pipeline that waits for its
next attempt, for a child or for a patch has nothing in hand. Inline functions never wait and need no place.
Those without a place wait in order of arrival, wherever they will run; families take turns (`groups`). A thread that
has ended one takes the next at once: short functions would otherwise pay a turn of the event loop for every place.
"""

import asyncio
import threading
from collections.abc import Callable

from perdure.providers.registry import Mode
from perdure.workers.group_limit import LONG, Places
from perdure.workers.task_execution import TaskExecution


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
