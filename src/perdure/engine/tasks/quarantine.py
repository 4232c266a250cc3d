"""Tasks that are begun alone in this process: each was lost again as a suspect, and cannot be done in another process.

    waiting ──nothing else works here──▶ begin recorded ──▶ at work ──▶ ended ──▶ the next
       └─ others take too long to end: they go on for as long as they were held up, then it is tried again, longer;
          one that has outlived its time alone is from then on one of the others

While one is at work within its time, and while one waits for others to end, nothing else begins here.
Other processes are not affected.
"""

from collections import OrderedDict
from collections.abc import Callable

from perdure.engine.clock import Alarm, Clock
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.assignments import Assignment
from perdure.kernel.tasks.crash_attribution import FIRST_TIME_ALONE, time_alone

Key = tuple[RunId, int]


class Quarantine:
    def __init__(
        self,
        clock: Clock,
        is_empty: Callable[[], bool],
        begin: Callable[[Assignment], None],
        outlived: Callable[[Assignment, Callable[[], None]], None],
        proceed: Callable[[], None],
    ) -> None:
        """`is_empty`: no function works in this process. `begin` one, which says when it has `begun` and `ended`.

        `outlived` records that one has, and calls back once that is done; `proceed` hands out what was held up.
        """
        self._clock = clock
        self._is_empty = is_empty
        self._begin = begin
        self._outlived = outlived
        self._proceed = proceed
        self._waiting: OrderedDict[Key, Assignment] = OrderedDict()
        self.current: Assignment | None = None  # alone here, from before its begin is recorded until its end is
        self._time: Alarm | None = None  # when the current one has outlived its time
        self._turn: Alarm | None = None  # when others are let on, or held up again
        self._timeout: Instant = FIRST_TIME_ALONE
        self.holds_up = False  # whether nothing else may begin now

    def add(self, assignment: Assignment) -> None:
        self._waiting[(assignment.run, assignment.task)] = assignment

    def find(self, key: Key) -> Assignment | None:
        return self._waiting.get(key)

    def take_back(self, key: Key) -> Assignment | None:
        """One that was not begun is not wanted any more."""
        return self._waiting.pop(key, None)

    def take_all_back(self, run: RunId) -> list[int]:
        """The same for all of a run; which."""
        keys = [key for key in self._waiting if key[0] == run]
        for key in keys:
            del self._waiting[key]
        return [task for _, task in keys]

    def fill(self) -> None:
        """Begin the next one if that can be; else see that its turn comes."""
        if self.current is not None:
            return
        if not self._waiting:
            if self._turn is not None:
                self._stop_waiting()
        elif self._is_empty():
            self._stop_waiting()
            self.holds_up = True
            _, self.current = self._waiting.popitem(last=False)
            self._begin(self.current)
        elif self._turn is None:
            self._hold_up()

    def _stop_waiting(self) -> None:
        self._timeout = FIRST_TIME_ALONE
        self.holds_up = False
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _hold_up(self) -> None:
        self.holds_up = True
        self._turn = self._clock.call_at(self._clock.now() + self._timeout, self._let_on)

    def _let_on(self) -> None:
        """What is at work takes long to end; nobody else shall wait for it any longer."""
        self.holds_up = False
        self._turn = self._clock.call_at(self._clock.now() + self._timeout, self._try_again)
        self._timeout *= 2
        self._proceed()

    def _try_again(self) -> None:
        self._turn = None
        self.fill()

    def begun(self, assignment: Assignment) -> None:
        """Its begin is recorded, its function at work."""
        if self.current is assignment:
            due = self._clock.now() + time_alone(assignment.losses)
            self._time = self._clock.call_at(due, lambda: self._outlived(assignment, lambda: self._cleared(assignment)))

    def ended(self, assignment: Assignment) -> None:
        """Its end is recorded; or it is not ours any more."""
        if self.current is assignment:
            self._leave()
            self._proceed()

    def _cleared(self, assignment: Assignment) -> None:
        if self.current is assignment:
            self._leave()
            self._let_on()

    def _leave(self) -> None:
        self.stop()
        self.current = None
        self.holds_up = False

    def stop(self) -> None:
        """No alarm rings any more."""
        for alarm in (self._time, self._turn):
            if alarm is not None:
                alarm.cancel()
        self._time = self._turn = None
