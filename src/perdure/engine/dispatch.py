"""Fair hand-out of tasks to the hands of this process.

Runs take turns: one run with ten thousand ready tasks does not starve the others. Languages have lanes of their own:
one whose tasks wait at the worker for a place does not keep the others' tasks away from it.
A task whose provider is not loaded waits, visibly, until it is.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from perdure.engine.clock import Alarm, Clock
from perdure.kernel.outcomes import Cancelled, Outcome
from perdure.kernel.values import Instant, RunId
from perdure.kernel.work import Assignment, Port

Key = tuple[RunId, int]


class _Lane:
    """The runs of one language that have tasks ready, in the order of their turns."""

    __slots__ = ("order", "running")

    def __init__(self) -> None:
        self.order: OrderedDict[RunId, None] = OrderedDict()  # of which one can be taken out of the middle
        self.running = 0


_NOTHING: OrderedDict[int, Assignment] = OrderedDict()


class _Held:
    """Assignments by run and task. What one run has is found without looking at the others'."""

    __slots__ = ("_of", "_total")

    def __init__(self) -> None:
        self._of: dict[RunId, dict[int, Assignment]] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[Assignment]:
        return (one for held in self._of.values() for one in held.values())

    def add(self, one: Assignment) -> None:
        held = self._of.get(one.run)
        if held is None:
            held = self._of[one.run] = {}
        self._total += one.task not in held
        held[one.task] = one

    def get(self, run: RunId, task: int) -> Assignment | None:
        held = self._of.get(run)
        return None if held is None else held.get(task)

    def of(self, run: RunId) -> Mapping[int, Assignment]:
        return self._of.get(run, _NOTHING)

    def pop(self, run: RunId, task: int) -> Assignment | None:
        held = self._of.get(run)
        one = None if held is None else held.pop(task, None)
        if one is not None:
            self._total -= 1
            if not held:
                del self._of[run]
        return one

    def pop_all(self, run: RunId) -> Mapping[int, Assignment]:
        held = self._of.pop(run, _NOTHING)
        self._total -= len(held)
        return held


class Hands(Protocol):
    """What does tasks in this process."""

    def can_perform(self, provider: str) -> bool: ...

    def perform(self, assignment: Assignment, port: Port, done: Callable[[Outcome], None]) -> None:
        """Begin the work; `done` is called once, on the event loop, perhaps before this returns."""

    def cancel(self, assignment: Assignment) -> object:
        """Ask work in progress to stop."""

    async def close(self) -> None: ...


class Dispatcher:
    def __init__(
        self,
        hands: Hands,
        clock: Clock,
        most_in_flight: int,
        port_for: Callable[[Assignment], Port],
        deliver: Callable[[Assignment, Outcome], None],
        redeliver: Callable[[Assignment], None],
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._hands = hands
        self._clock = clock
        self._most = most_in_flight
        self._port_for = port_for
        self._deliver = deliver
        self._redeliver = redeliver
        self._may_begin = may_begin
        self._queues: dict[RunId, OrderedDict[int, Assignment]] = {}  # by task: a cancel takes one out of the middle
        self._lanes: dict[str, _Lane] = defaultdict(_Lane)  # by language
        self._running = _Held()
        self._graces: dict[Key, Alarm] = {}
        self._unprovided = _Held()
        self._restored: set[Key] = set()  # those of them that an earlier process may have begun
        self._filling = False
        self._closed = False

    def add(self, assignment: Assignment) -> None:
        if not self._hands.can_perform(assignment.provider):
            self._unprovided.add(assignment)
            return
        queue = self._queues.get(assignment.run)
        if queue is None:
            queue = self._queues[assignment.run] = OrderedDict()
            self._lanes[assignment.language].order[assignment.run] = None
        queue[assignment.task] = assignment

    def restore(self, assignment: Assignment) -> None:
        """A task of an earlier process. It is handed out again once that is recorded, and its provider is here."""
        if not self.puts_aside(assignment):
            self._redeliver(assignment)

    def puts_aside(self, assignment: Assignment) -> bool:
        """Whether a task of an earlier process has to wait for its provider; then it does."""
        if self._hands.can_perform(assignment.provider):
            return False
        self._unprovided.add(assignment)
        self._restored.add((assignment.run, assignment.task))
        return True

    def fill(self) -> None:
        """Hand out what there is room for. Called after additions and after each end."""
        if self._filling or self._closed or not self._may_begin():
            return  # an inline provider ended while we were handing out: the loop below goes on anyway
        self._filling = True
        try:
            while any(self._fill_lane(lane) for lane in list(self._lanes.values())):
                pass  # an inline task that ended at once may have made another lane's task ready
        finally:
            self._filling = False

    def _fill_lane(self, lane: _Lane) -> bool:
        order, running = lane.order, self._running
        has_begun = False
        while order and lane.running < self._most:
            has_begun = True
            run = next(iter(order))
            queue = self._queues[run]
            _, assignment = queue.popitem(last=False)
            if queue:
                order.move_to_end(run)
            else:
                del order[run]
                del self._queues[run]
            running.add(assignment)
            lane.running += 1
            self._hands.perform(assignment, self._port_for(assignment), self._ending(assignment))
        return has_begun

    def _ending(self, assignment: Assignment) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            run, task = assignment.run, assignment.task
            if self._closed or self._running.get(run, task) is not assignment:
                return  # given up meanwhile: a late result is nobody's
            self._running.pop(run, task)
            self._lanes[assignment.language].running -= 1
            grace = self._graces.pop((run, task), None)
            if grace is not None:
                grace.cancel()
            self._deliver(assignment, outcome)
            self.fill()

        return done

    def holds(self, run: RunId, task: int, delivery: int) -> bool:
        """Whether this delivery is queued, waiting for its provider, or at work here."""
        held = self._running.get(run, task) or self._unprovided.get(run, task)
        held = held or self._queues.get(run, _NOTHING).get(task)
        return held is not None and held.delivery == delivery

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def running(self) -> Counter[RunId]:
        """How many tasks of each run are at work here."""
        return Counter(one.run for one in self._running)

    def is_at_work(self, run: RunId) -> bool:
        return bool(self._running.of(run))

    def withdraw(self, run: RunId) -> list[int]:
        """Take back what was not begun; which. What an earlier process may have begun is not among it."""
        held = self._unprovided.pop_all(run)
        waiting = [task for task in held if (run, task) not in self._restored]
        self._restored.difference_update((run, task) for task in held)
        return [*waiting, *self._drop_queue(run)]

    def _drop_queue(self, run: RunId) -> OrderedDict[int, Assignment]:
        queue = self._queues.pop(run, _NOTHING)
        if queue:
            del self._lanes[next(iter(queue.values())).language].order[run]
        return queue

    def cancel(self, run: RunId, task: int, grace: Instant) -> None:
        """Settles when the work agrees or the grace ends; at once when it has not begun."""
        key = (run, task)
        waiting = self._unprovided.pop(run, task) or self._unqueue(run, task)
        if waiting is not None:
            self._restored.discard(key)
            self._deliver(waiting, Cancelled("before it began"))
            return
        assignment = self._running.get(run, task)
        if assignment is None:
            return
        done = self._ending(assignment)
        due = self._clock.now() + grace
        self._graces[key] = self._clock.call_at(due, lambda: done(Cancelled("abandoned: the grace has ended")))
        self._hands.cancel(assignment)

    def _unqueue(self, run: RunId, task: int) -> Assignment | None:
        queue = self._queues.get(run, _NOTHING)
        found = queue.pop(task, None)
        if found is not None and not queue:
            del self._queues[run]
            del self._lanes[found.language].order[run]
        return found

    def forget(self, run: RunId) -> None:
        """The run is over or not ours any more: what it still has here is stopped, nobody is told."""
        self._drop_queue(run)
        self._restored.difference_update((run, task) for task in self._unprovided.pop_all(run))
        for task, assignment in self._running.pop_all(run).items():
            self._lanes[assignment.language].running -= 1
            grace = self._graces.pop((run, task), None)
            if grace is not None:
                grace.cancel()
            self._hands.cancel(assignment)

    def providers_changed(self) -> None:
        waiting, self._unprovided = self._unprovided, _Held()
        restored, self._restored = self._restored, set()
        for assignment in waiting:
            if (assignment.run, assignment.task) in restored:
                self.restore(assignment)
            else:
                self.add(assignment)
        self.fill()

    def waiting_for_provider(self, run: RunId) -> dict[int, str]:
        return {task: one.provider for task, one in self._unprovided.of(run).items()}

    async def close(self) -> None:
        self._closed = True
        for grace in self._graces.values():
            grace.cancel()
        for assignment in self._running:
            self._hands.cancel(assignment)
        await self._hands.close()
