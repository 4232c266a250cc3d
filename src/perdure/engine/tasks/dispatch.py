"""Hands tasks out to the executor of this process, fairly.

Runs take turns: one run with ten thousand ready tasks, or with tasks that never end, does not starve the others.
Each language has a queue of its own: one whose tasks wait at the worker for a place does not block the others.
A task whose provider is not loaded waits, visibly, until it is.
The start of a suspect is recorded first; one that must not run beside others is started apart, or alone (invariant 27).
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from perdure.engine.clock import Alarm, Clock
from perdure.engine.tasks.quarantine import Quarantine
from perdure.engine.tasks.task_queues import NOTHING, HeldTasks, TaskQueue, TimeSlice, UnrecordedResults
from perdure.kernel.json_values.large_values import INLINE_BYTES, LargeValues
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Cancelled, Code, Failed, Outcome, Succeeded
from perdure.kernel.tasks.assignments import NOT_IMPORTED, Assignment, RunPort
from perdure.kernel.tasks.crash_attribution import ALONE_FROM, LossKind, StartPlace, pace

if TYPE_CHECKING:
    from perdure.engine.tasks.executor import Executor

Key = tuple[RunId, int]

LONG = 10 * SECOND
"""How long others wait for a place before those who have had theirs all the while do not count any more."""


class Recorder(Protocol):
    """Who has it recorded what happens to tasks."""

    def port_for(self, assignment: Assignment) -> RunPort: ...

    def extract_in_thread(self, outcome: Outcome, then: Callable[[Outcome, LargeValues], None]) -> bool:
        """Put its value aside, elsewhere than on the event loop; False if that is not worth it."""

    def task_done(
        self,
        assignment: Assignment,
        outcome: Outcome,
        recorded: Callable[[], None] | None = None,
        values: LargeValues = (),
    ) -> None:
        """It has ended so. `recorded` is called once that is durable, or concerns nobody any more."""

    def offer_result(self, assignment: Assignment, outcome: Outcome) -> None:
        """As `task_done`, of an outcome without a large value, whose record nobody waits for."""

    def unrecorded_bytes(self, run: RunId) -> int:
        """Of large results of its tasks that are not in the store yet."""

    def task_lost(self, assignment: Assignment, loss: LossKind, reason: str | None = None) -> None:
        """Whoever had it is gone: it is to be handed out again."""

    def task_begins(self, assignment: Assignment, place: StartPlace, recorded: Callable[[bool], None]) -> None:
        """A suspect is to begin here. Called back once that is durable (True), or it may not (False)."""

    def task_outlived(self, assignment: Assignment, recorded: Callable[[], None]) -> None:
        """It was alone here for its whole time, and nothing happened."""


class Dispatcher:
    def __init__(
        self,
        executor: "Executor",
        clock: Clock,
        most_in_flight: int,
        recorder: Recorder,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._recorder = recorder
        self._may_begin = may_begin
        self._queues: dict[RunId, OrderedDict[int, Assignment]] = {}  # by task: a cancel takes one out of the middle
        self._unrecorded = UnrecordedResults(recorder.unrecorded_bytes)
        new_queue = partial(TaskQueue, most_in_flight, self._unrecorded)
        self._task_queues: dict[str, TaskQueue] = defaultdict(new_queue)  # by language
        self._running = HeldTasks()
        self._beginning = HeldTasks()  # suspects whose begin is being recorded
        self._apart = HeldTasks()  # suspects to be begun in a process of their own
        self._not_importable: set[str] = set()  # providers that another process has failed to import
        self._quarantine = Quarantine(clock, self._is_empty, self._begin_alone, recorder.task_outlived, self.fill)
        self._slice = TimeSlice(clock, self.fill)
        self._graces: dict[Key, Alarm] = {}
        self._unprovided = HeldTasks()
        self._restored: dict[Key, LossKind] = {}  # those of them that an earlier process may have begun, and its end
        self._has_suspects = False  # or has had: most processes never see one
        self._filling = False
        self._closed = False

    def add(self, assignment: Assignment) -> None:
        if not self._executor.can_perform(assignment.provider):
            self._unprovided.add(assignment)
            return
        if assignment.suspicion and self._is_set_apart(assignment):
            return
        queue = self._queues.get(assignment.run)
        if queue is None:
            queue = self._queues[assignment.run] = OrderedDict()
            self._task_queues[assignment.language].order[assignment.run] = None
        queue[assignment.task] = assignment

    def _is_set_apart(self, assignment: Assignment) -> bool:
        """Whether it does not wait with the others: it works in another process, or must not work beside them."""
        self._give_up(assignment.run, assignment.task)  # an earlier delivery, whose result counts no more
        self._has_suspects = True
        if self._executor.keeps_apart(assignment):
            self._apart.add(assignment)
        elif assignment.suspicion < ALONE_FROM:
            return False
        elif assignment.provider not in self._not_importable and self._executor.can_keep_apart(assignment):
            self._apart.add(replace(assignment, apart=True))
        else:
            self._quarantine.add(assignment)
        return True

    def restore(self, assignment: Assignment, loss: LossKind) -> None:
        """A task of an earlier process. It is handed out again once that is recorded, and its provider is here."""
        if not self.puts_aside(assignment, loss):
            self._recorder.task_lost(assignment, loss)

    def puts_aside(self, assignment: Assignment, loss: LossKind) -> bool:
        """Whether a task of an earlier process has to wait for its provider; then it does."""
        if self._executor.can_perform(assignment.provider):
            return False
        self._unprovided.add(assignment)
        self._restored[(assignment.run, assignment.task)] = loss
        return True

    def keeps_apart(self, assignment: Assignment) -> bool:
        """Whether its function works in a process of its own."""
        return assignment.apart or (
            self._executor.can_perform(assignment.provider) and self._executor.keeps_apart(assignment)
        )

    def fill(self) -> None:
        """Hand out as many tasks as there are places. Called after additions and after each end."""
        if not self._queues and not self._has_suspects:
            return
        if self._filling or self._closed or not self._may_begin():
            return  # an inline provider ended while we were handing out: the loop below goes on anyway
        self._filling = True
        self._slice.begin()
        try:
            if self._has_suspects:
                self._begin_suspects()
            while self._queues and any(self._fill_from(queue) for queue in list(self._task_queues.values())):
                pass  # an inline task that ended at once may have made a task of another queue ready
            if self._has_suspects:
                self._quarantine.fill()
        finally:
            self._filling = False

    def _begin_suspects(self) -> None:
        for assignment in list(self._apart):
            self._apart.pop(assignment.run, assignment.task)
            self._record_begin(assignment, StartPlace.APART)
        self._quarantine.fill()

    def _fill_from(self, tasks: TaskQueue) -> bool:
        order, running = tasks.order, self._running
        has_begun = False
        while order and not self._quarantine.holds_up and (run := tasks.next_run()) is not None:
            if self._slice.is_over:
                break
            has_begun = True
            queue = self._queues[run]
            _, assignment = queue.popitem(last=False)
            if queue:
                order.move_to_end(run)
            else:
                del order[run]
                del self._queues[run]
            if assignment.suspicion:
                self._record_begin(assignment, StartPlace.BESIDE_OTHERS)
                continue
            running.add(assignment)
            tasks.enter(assignment)
            self._executor.perform(assignment, self._recorder.port_for(assignment), partial(self._ended, assignment))
        if order and tasks.is_full and tasks.alarm is None:
            working = [running_task for running_task in running if self._task_queues[running_task.language] is tasks]
            tasks.alarm = self._clock.call_at(self._clock.now() + LONG, lambda: self._make_room(tasks, working))
        return has_begun

    def _make_room(self, tasks: TaskQueue, working: list[Assignment]) -> None:
        """Others have waited for long: whoever has worked all the while keeps them out no more."""
        tasks.alarm = None
        started = [
            assignment
            for assignment in (*self._running, *self._beginning)
            if self._task_queues[assignment.language] is tasks
        ]
        tasks.make_room(
            [assignment for assignment in working if self._running.get(assignment.run, assignment.task) is assignment],
            started,
        )
        self.fill()

    def _begin_alone(self, assignment: Assignment) -> None:
        self._record_begin(assignment, StartPlace.ALONE)

    def _is_empty(self) -> bool:
        """Whether no function works in this process."""
        return all(self.keeps_apart(assignment) for assignment in (*self._running, *self._beginning))

    def _record_begin(self, assignment: Assignment, place: StartPlace) -> None:
        run, task = assignment.run, assignment.task
        self._beginning.add(assignment)
        self._task_queues[assignment.language].enter(assignment)

        def recorded(may_begin: bool) -> None:
            if self._closed or self._beginning.get(run, task) is not assignment:
                return
            self._beginning.pop(run, task)
            if not may_begin or not self._may_begin():  # it is somebody else's now, or asked to stop
                self._task_queues[assignment.language].leave(assignment)
                self._quarantine.ended(assignment)
                self.fill()
                return
            self._running.add(assignment)
            self._quarantine.begun(assignment)
            self._executor.perform(assignment, self._recorder.port_for(assignment), partial(self._ended, assignment))

        self._recorder.task_begins(assignment, place, recorded)

    def _ended(self, assignment: Assignment, outcome: Outcome) -> None:
        is_small = type(outcome) is Succeeded and type(outcome.value) is bytes and len(outcome.value) <= INLINE_BYTES
        if is_small and not (self._has_suspects or self._graces or self._closed):  # nearly always
            if self._running.remove(assignment):
                self._task_queues[assignment.language].leave(assignment)
                self._recorder.offer_result(assignment, outcome)
                if self._queues:
                    self.fill()
        elif not is_small and self._recorder.extract_in_thread(outcome, partial(self.done, assignment)):
            return
        elif assignment.apart:
            self._end_paced(assignment, outcome)
        else:
            self.done(assignment, outcome)

    def _end_paced(self, assignment: Assignment, outcome: Outcome) -> None:
        """That the process is gone which this had to itself is told after a while, longer with each loss."""
        has_died = isinstance(outcome, Failed) and outcome.code == Code.WORKER_DIED
        if has_died and not self._closed and (wait := pace(assignment.losses)):
            self._clock.call_at(self._clock.now() + wait, lambda: self.done(assignment, outcome))
        else:
            self.done(assignment, outcome)

    def done(self, assignment: Assignment, outcome: Outcome, values: LargeValues = ()) -> None:
        if self._closed or not self._running.remove(assignment):
            return  # given up meanwhile: a late result is nobody's
        self._task_queues[assignment.language].leave(assignment)
        if self._graces and (grace := self._graces.pop((assignment.run, assignment.task), None)) is not None:
            grace.cancel()
        if assignment.apart and isinstance(outcome, Failed) and outcome.code == Code.WORKER_DIED:
            self._recorder.task_lost(assignment, LossKind.ALONE, outcome.message)
        elif assignment.apart and isinstance(outcome, Failed) and outcome.code == NOT_IMPORTED:
            self._not_importable.add(assignment.provider)  # it has not begun, so it begins alone
            self._quarantine.add(replace(assignment, apart=False))
        elif self._quarantine.current is assignment:  # until its end is recorded, nobody may be lost beside it
            self._recorder.task_done(assignment, outcome, lambda: self._quarantine.ended(assignment), values)
        else:
            self._recorder.task_done(assignment, outcome, None, values)
        if self._queues or self._has_suspects:
            self.fill()

    def has_large_result(self, run: RunId) -> None:
        """Some of its results are large: while many wait to be recorded, its family gets no more tasks."""
        self._unrecorded.add(run)

    def holds(self, run: RunId, task: int, delivery: int) -> bool:
        """Whether this delivery is queued, waiting for its provider, or at work here."""
        assignment = self._running.get(run, task) or self._unprovided.get(run, task)
        assignment = assignment or self._queues.get(run, NOTHING).get(task)
        assignment = (
            assignment
            or self._beginning.get(run, task)
            or self._apart.get(run, task)
            or self._quarantine.find((run, task))
        )
        return assignment is not None and assignment.delivery == delivery

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def running(self) -> Counter[RunId]:
        """How many tasks of each run are at work here."""
        return Counter(assignment.run for assignment in (*self._running, *self._beginning))

    def is_at_work(self, run: RunId) -> bool:
        return bool(self._running.of(run) or self._beginning.of(run))

    def at_work(self, run: RunId) -> list[Assignment]:
        """Its tasks that have begun here."""
        return list(self._running.of(run).values())

    def is_alone(self, assignment: Assignment) -> bool:
        """Whether it has begun alone in this process, and is still within its time."""
        return self._quarantine.current is assignment

    def withdraw(self, run: RunId) -> list[int]:
        """Take back what was not begun; which. What an earlier process may have begun is not among it."""
        assignments = self._unprovided.pop_all(run)
        waiting = [task for task in assignments if self._restored.pop((run, task), None) is None]
        return [*waiting, *self._drop_queue(run), *self._apart.pop_all(run), *self._quarantine.take_all_back(run)]

    def _drop_queue(self, run: RunId) -> OrderedDict[int, Assignment]:
        queue = self._queues.pop(run, NOTHING)
        if queue:
            del self._task_queues[next(iter(queue.values())).language].order[run]
        return queue

    def cancel(self, run: RunId, task: int, grace: Instant) -> None:
        """Settles when the work agrees or the grace ends; at once when it has not begun."""
        key = (run, task)
        waiting = self._unprovided.pop(run, task) or self._unqueue(run, task)
        waiting = waiting or self._apart.pop(run, task) or self._quarantine.take_back(key)
        waiting = waiting or self._take_back_begin(run, task)
        if waiting is not None:
            self._restored.pop(key, None)
            self._recorder.task_done(waiting, Cancelled("before it began"))
            return
        assignment = self._running.get(run, task)
        if assignment is None:
            return
        given_up = partial(self._ended, assignment, Cancelled("abandoned: the grace has ended"))
        self._graces[key] = self._clock.call_at(self._clock.now() + grace, given_up)
        self._executor.cancel(assignment)

    def _unqueue(self, run: RunId, task: int) -> Assignment | None:
        queue = self._queues.get(run, NOTHING)
        assignment = queue.pop(task, None)
        if assignment is not None and not queue:
            del self._queues[run]
            del self._task_queues[assignment.language].order[run]
        return assignment

    def _take_back_begin(self, run: RunId, task: int) -> Assignment | None:
        """Not begun after all, whatever is recorded of it."""
        assignment = self._beginning.pop(run, task)
        if assignment is not None:
            self._task_queues[assignment.language].leave(assignment)
            self._quarantine.ended(assignment)
        return assignment

    def forget(self, run: RunId) -> None:
        """The run is over or not ours any more: what it still has here is stopped, nobody is told."""
        self.withdraw(run)
        for task in list(self._beginning.of(run)):
            self._take_back_begin(run, task)
        for task in list(self._running.of(run)):
            self._give_up(run, task)

    def _give_up(self, run: RunId, task: int) -> None:
        """What it still does is stopped, and concerns nobody."""
        assignment = self._running.pop(run, task)
        if assignment is None:
            return
        self._task_queues[assignment.language].leave(assignment)
        grace = self._graces.pop((run, task), None)
        if grace is not None:
            grace.cancel()
        self._quarantine.ended(assignment)
        self._executor.cancel(assignment)

    def providers_changed(self) -> None:
        waiting, self._unprovided = self._unprovided, HeldTasks()
        restored, self._restored = self._restored, {}
        for assignment in waiting:
            loss = restored.get((assignment.run, assignment.task))
            if loss is not None:
                self.restore(assignment, loss)
            else:
                self.add(assignment)
        self.fill()

    def waiting_for_provider(self, run: RunId) -> dict[int, str]:
        return {task: assignment.provider for task, assignment in self._unprovided.of(run).items()}

    def runs_without_provider(self) -> set[RunId]:
        return {assignment.run for assignment in self._unprovided}

    async def close(self) -> None:
        self._closed = True
        self._quarantine.stop()
        for queue in self._task_queues.values():
            if queue.alarm is not None:
                queue.alarm.cancel()
        for grace in self._graces.values():
            grace.cancel()
        for assignment in self._running:
            self._executor.cancel(assignment)
        await self._executor.close()
