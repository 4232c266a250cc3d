"""How much of one language's work a worker does at a time: a Playbook's worker has 8 step-runs in hand (PBK-197).

What holds a place is one task of a pipeline or of an iteration, while its function works: a pipeline that waits for its
next attempt, for a child or for a patch has nothing in hand. Inline functions never wait and need no place.
Those without a place wait in order of arrival, wherever they will run. A thread that has ended one takes the next at
once: short functions would otherwise pay a turn of the event loop for every place.
"""

import threading
from collections import deque
from collections.abc import Callable

from perdure.providers.registry import Mode
from perdure.workers.errand import Errand


class Crowd:
    """The places of one language. All but `follow` is called on the loop."""

    def __init__(self, limit: int, begin: Callable[[Errand], None]) -> None:
        self._limit = limit
        self._begin = begin
        self._lock = threading.Lock()
        self._placed: set[int] = set()
        self._waiting: deque[Errand] = deque()
        self._is_filling = False

    def enter(self, errand: Errand) -> None:
        """It begins as soon as there is a place."""
        with self._lock:
            self._waiting.append(errand)
        self._fill()

    def leave(self, errand: Errand) -> None:
        """It has ended, wherever it was; without a place there is nothing to leave."""
        with self._lock:
            self._placed.discard(id(errand))
        self._fill()

    def follow(self, errand: Errand) -> Errand | None:
        """In its thread: the one that takes over thread and place of this one, which has just ended."""
        with self._lock:
            if id(errand) not in self._placed:
                return None  # given up meanwhile: its place belongs to somebody else
            self._drop_ended()
            if not self._waiting or self._waiting[0].mode is not Mode.THREAD:
                return None
            following = self._waiting.popleft()
            self._placed.discard(id(errand))
            self._placed.add(id(following))
            return following

    def _fill(self) -> None:
        if self._is_filling:
            return  # one that began has ended at once: the loop below goes on anyway
        self._is_filling = True
        try:
            while (errand := self._next()) is not None:
                self._begin(errand)
        finally:
            self._is_filling = False

    def _next(self) -> Errand | None:
        with self._lock:
            self._drop_ended()
            if not self._waiting or len(self._placed) >= self._limit:
                return None
            errand = self._waiting.popleft()
            self._placed.add(id(errand))
            return errand

    def _drop_ended(self) -> None:
        while self._waiting and self._waiting[0].is_over:  # it may have been stopped while it waited
            self._waiting.popleft()
