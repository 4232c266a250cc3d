"""What a dispatcher has: tasks by run, and for each language the runs whose turn comes, with places for their tasks."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

from perdure.engine.clock import Alarm, Clock
from perdure.kernel.ids import family_of
from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.assignments import Assignment

LOOKED_AT = 1_000  # runs, for one that may have a place
MOST_LONG = 4  # tasks without a place, for each place there is

NOTHING: OrderedDict[int, Assignment] = OrderedDict()


SLICE = 0.005
"""Seconds of tasks that are done while they are handed out, after which the event loop has its turn."""


class TimeSlice:
    """How long tasks are handed out at a time. Time decides when the others are begun, and nothing else."""

    def __init__(self, clock: Clock, again: Callable[[], None]) -> None:
        self._clock = clock
        self._again = again
        self._until: float | None = None
        self._is_set = False

    def begin(self) -> None:
        self._until = None

    @property
    def is_over(self) -> bool:
        """Whether the next one has to wait; then it is begun soon. At least one is begun in a slice."""
        now = time.perf_counter()
        if self._until is None:
            self._until = now + SLICE
        elif now >= self._until:
            if not self._is_set:
                self._is_set = True
                self._clock.call_at(self._clock.now(), self._go_on)
            return True
        return False

    def _go_on(self) -> None:
        self._is_set = False
        self._again()


MOST_UNRECORDED = 64 << 20
"""Bytes of large results of one family of runs that wait to be recorded; its next tasks begin after that."""


class UnrecordedResults:
    """Large results on their way to the store. `size_of` says how many bytes of them a run has in memory."""

    __slots__ = ("_size_of", "runs")

    def __init__(self, size_of: Callable[[RunId], int]) -> None:
        self._size_of = size_of
        self.runs: dict[str, set[RunId]] = {}  # that had some, by family

    def add(self, run: RunId) -> None:
        self.runs.setdefault(family_of(run), set()).add(run)

    def are_many(self, family: str) -> bool:
        """Whether a family has to wait; it is looked at, not counted, so that nothing that is lost is waited for."""
        runs = self.runs.get(family)
        if runs is None:
            return False
        sizes = {run: self._size_of(run) for run in runs}
        runs.difference_update([run for run, size in sizes.items() if not size])
        if not runs:
            del self.runs[family]
        return sum(sizes.values()) > MOST_UNRECORDED


class TaskQueue:
    """The runs of one language that have tasks ready, in the order of their turns; and so many places for tasks.

    Of those who have stayed long while others waited, some need no place any more: of each family (a root run and all
    below it) a quarter of the places. So one whose tasks never end keeps nobody else out. It gets no more in all than
    there are places.
    """

    __slots__ = ("_limit", "_long", "_long_of", "_of", "_unrecorded", "alarm", "order", "placed")

    def __init__(self, limit: int, unrecorded: "UnrecordedResults | None" = None) -> None:
        self.order: OrderedDict[RunId, None] = OrderedDict()  # of which one can be taken out of the middle
        self.placed = 0
        self.alarm: Alarm | None = None  # until those who work now have stayed long
        self._limit = limit
        self._unrecorded = unrecorded or UnrecordedResults(lambda run: 0)
        self._of: Counter[str] = Counter()  # tasks that have begun, by family; only while some have stayed long
        self._long: dict[tuple[RunId, int], Assignment] = {}
        self._long_of: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        return self.placed >= self._limit

    def next_run(self) -> RunId | None:
        """Whose task may begin now."""
        if self.placed >= self._limit or not self.order:
            return None
        if not self._long and not self._unrecorded.runs:
            return next(iter(self.order))
        for _ in range(min(len(self.order), LOOKED_AT)):
            run = next(iter(self.order))
            family = family_of(run)
            if self._of[family] < self._limit and not self._unrecorded.are_many(family):
                return run
            self.order.move_to_end(run)
        return None

    def enter(self, assignment: Assignment) -> None:
        self.placed += 1
        if self._long:
            self._of[family_of(assignment.run)] += 1

    def leave(self, assignment: Assignment) -> None:
        """It has ended, or does not begin after all."""
        if not self._long:
            self.placed -= 1
            return
        family = family_of(assignment.run)
        self._of[family] -= 1
        if not self._of[family]:
            del self._of[family]
        if self._long.get((assignment.run, assignment.task)) is not assignment:
            self.placed -= 1
            return
        del self._long[assignment.run, assignment.task]
        self._long_of[family] -= 1
        if not self._long_of[family]:
            del self._long_of[family]

    def make_room(self, long: Iterable[Assignment], started: Iterable[Assignment]) -> None:
        """Free places of tasks that have run `long`. `started` are all running tasks of this queue."""
        self._of = Counter(family_of(task.run) for task in started)
        share = max(1, self._limit // 4)
        for assignment in long:
            family = family_of(assignment.run)
            if (assignment.run, assignment.task) in self._long or self._long_of[family] >= share:
                continue
            if len(self._long) >= MOST_LONG * self._limit:
                return
            self._long[assignment.run, assignment.task] = assignment
            self._long_of[family] += 1
            self.placed -= 1


class HeldTasks:
    """Assignments by run and task. What one run has is found without looking at the others'."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[RunId, dict[int, Assignment]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __iter__(self) -> Iterator[Assignment]:
        return (assignment for tasks in self._of.values() for assignment in tasks.values())

    def add(self, assignment: Assignment) -> None:
        tasks = self._of.get(assignment.run)
        if tasks is None:
            self._of[assignment.run] = {assignment.task: assignment}
        else:
            tasks[assignment.task] = assignment

    def get(self, run: RunId, task: int) -> Assignment | None:
        tasks = self._of.get(run)
        return None if tasks is None else tasks.get(task)

    def of(self, run: RunId) -> Mapping[int, Assignment]:
        return self._of.get(run, NOTHING)

    def pop(self, run: RunId, task: int) -> Assignment | None:
        tasks = self._of.get(run)
        assignment = None if tasks is None else tasks.pop(task, None)
        if assignment is not None and not tasks:
            del self._of[run]
        return assignment

    def remove(self, assignment: Assignment) -> bool:
        """Whether this very assignment was held."""
        tasks = self._of.get(assignment.run)
        if tasks is None or tasks.get(assignment.task) is not assignment:
            return False
        if len(tasks) == 1:
            del self._of[assignment.run]
        else:
            del tasks[assignment.task]
        return True

    def pop_all(self, run: RunId) -> Mapping[int, Assignment]:
        return self._of.pop(run, NOTHING)
