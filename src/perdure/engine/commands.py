"""What recorded events ask of this process. Carried out only after their commit, in the order they were recorded."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from perdure.engine.context import EngineContext
from perdure.engine.slot import Mail, Slot
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution
from perdure.kernel.ids import family_of
from perdure.kernel.json_values.values import Instant, Payload, RunId
from perdure.kernel.tasks.assignments import Assignment
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler


def lost(assignment: Assignment, now: Instant, loss: LossKind = LossKind.PROCESS, reason: str | None = None) -> Mail:
    return Mail(
        now, 0, i.TaskLost(assignment.task, assignment.delivery, reason or "its process ended before it did", loss)
    )


LARGE_IN_HAND = 64 << 20
"""Bytes of large arguments and inputs that tasks of one family of runs have in memory; the others wait for these."""

FAMILIES_KEPT = 64  # at least, before those are looked for that have left memory without an end


class LargeTasks:
    """Tasks of a family whose arguments are large: those that have them in memory, and those that wait for room."""

    def __init__(self, slots: Mapping[RunId, Slot]) -> None:
        self._slots = slots
        self._bytes = 0
        self._sizes: dict[tuple[RunId, int], int] = {}
        self._waiting: deque[tuple[RunId, int]] = deque()

    def admit(self, run: RunId, number: int, size: int) -> bool:
        """Whether it may read its arguments now; else it waits. One that is handed out again has its room."""
        if (run, number) not in self._sizes and (self._waiting or not self._has_room(size)):
            self._waiting.append((run, number))
            return False
        self._take(run, number, size)
        return True

    def _has_room(self, size: int) -> bool:
        return not self._sizes or self._bytes + size <= LARGE_IN_HAND

    def _take(self, run: RunId, number: int, size: int) -> None:
        self._bytes += size - self._sizes.get((run, number), 0)
        self._sizes[run, number] = size

    def next(self) -> tuple[Slot, int] | None:
        """Forget those that have ended, and say who may read its arguments now."""
        for key in [key for key in self._sizes if self._size(*key) is None]:
            self._bytes -= self._sizes.pop(key)
        while self._waiting:
            run, number = self._waiting[0]
            size, slot = self._size(run, number), self._slots.get(run)
            if size is None or slot is None or number not in slot.fetching or (run, number) in self._sizes:
                self._waiting.popleft()  # it is not wanted any more, or its run was loaded anew
                if slot is not None and size is None:
                    slot.fetching.discard(number)
            elif self._has_room(size):
                self._waiting.popleft()
                self._take(run, number, size)
                return slot, number
            else:
                break
        return None

    def _size(self, run: RunId, number: int) -> int | None:
        slot = self._slots.get(run)
        task = None if slot is None or slot.execution is None else slot.execution.state.tasks.get(number)
        if task is None or ((run, number) not in self._sizes and (task.cancelling or task.laid_down)):
            return None
        return _size(task.arguments) + _size(task.input)

    def withdraw(self, slot: Slot) -> list[int]:
        """The tasks of this run that wait, which do so no more."""
        numbers = [number for run, number in self._waiting if run == slot.id]
        self._waiting = deque(key for key in self._waiting if key[0] != slot.id)
        slot.fetching.difference_update(numbers)
        return numbers

    @property
    def is_empty(self) -> bool:
        return not self._sizes and not self._waiting


def _size(payload: Payload) -> int:
    return len(payload) if isinstance(payload, bytes) else payload.size


class Commands:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._tasks = context.tasks
        self._clock = context.clock
        self._scheduler = scheduler
        self._dispatcher = scheduler.dispatcher
        self._waiters = scheduler.waiters
        self._slots = context.slots
        self._large: dict[str, LargeTasks] = {}  # by family
        self._most_families = FAMILIES_KEPT

    def carry_out(self, slot: Slot, events: list[e.Event]) -> None:
        execution, command_of = slot.execution, _COMMANDS.get
        assert execution is not None
        for event in events:
            if (command := command_of(type(event))) is not None:
                command(self, slot, execution, event)
        if self._large:
            self._read_large(family_of(slot.id))

    def _hand_out(self, slot: Slot, execution: Execution, event: e.TaskScheduled | e.TaskRedelivered) -> None:
        self.hand_out(slot, execution, event.task)

    def _hand_out_all(self, slot: Slot, execution: Execution, event: e.TasksTakenUp) -> None:
        for number in event.tasks:
            self.hand_out(slot, execution, number)

    def _return_unstarted(self, slot: Slot, execution: Execution, event: e.TasksLaidDown) -> None:
        slot.returning.difference_update(event.tasks)
        if event.tasks and not slot.is_leaving and not execution.state.is_held:  # it stays after all
            slot.mailbox.append(Mail(self._clock.now(), 0, i.TakeUp(event.tasks)))

    def hand_out(self, slot: Slot, execution: Execution, number: int) -> None:
        task = execution.state.tasks.get(number)
        if task is None or task.pool or task.cancelling or task.laid_down:
            return
        if slot.is_leaving:
            slot.unstarted.append(number)
        elif isinstance(task.arguments, bytes) and isinstance(task.input, bytes):
            self._dispatcher.add(execution.assignment(number, task.arguments, task.input))
        else:
            slot.fetching.add(number)
            if self._large_tasks(family_of(slot.id)).admit(slot.id, number, _size(task.arguments) + _size(task.input)):
                self._tasks.spawn(self._hand_out_large(slot, execution, number))

    def _large_tasks(self, family: str) -> LargeTasks:
        tasks = self._large.get(family)
        if tasks is None:
            if len(self._large) >= self._most_families:
                for other in list(self._large):
                    self._read_large(other)
                self._most_families = max(FAMILIES_KEPT, 2 * len(self._large))
            tasks = self._large[family] = LargeTasks(self._slots)
        return tasks

    def _read_large(self, family: str) -> None:
        """Some of its tasks have ended: others may read their arguments."""
        tasks = self._large.get(family)
        if tasks is None:
            return
        while (allowed := tasks.next()) is not None:
            slot, number = allowed
            assert slot.execution is not None
            self._tasks.spawn(self._hand_out_large(slot, slot.execution, number))
        if tasks.is_empty:
            del self._large[family]

    def withdraw_large(self, slot: Slot) -> list[int]:
        """Take back the tasks that wait to read their arguments."""
        tasks = self._large.get(family_of(slot.id))
        return [] if tasks is None else tasks.withdraw(slot)

    def assign_tasks(self, slot: Slot, execution: Execution) -> None:
        """Open tasks that nobody here has: an earlier process had them, or laid them down before they began."""
        if slot.is_leaving:
            return
        laid_down: list[int] = []
        orphans: list[Assignment] = []
        not_begun: list[int] = []
        is_held = execution.state.is_held
        machines: dict[int, str] = {}
        in_hand = slot.fetching | slot.returning
        for number, task in execution.state.tasks.items():
            if task.pool or task.held or number in in_hand or self._dispatcher.holds(slot.id, number, task.delivery):
                continue
            arguments = task.arguments if isinstance(task.arguments, bytes) else b""
            orphan = execution.assignment(number, arguments, b"")
            if task.place == StartPlace.ALONE and task.machine:
                machines[number] = task.machine
            if task.cancelling:
                slot.mailbox.append(lost(orphan, self._clock.now()))
            elif task.laid_down:
                if not is_held and not self._dispatcher.puts_aside(orphan, LossKind.STOPPED):
                    laid_down.append(number)
            elif task.suspicion and task.place == StartPlace.UNKNOWN:
                not_begun.append(number)
            else:
                orphans.append(orphan)
        if laid_down:
            slot.mailbox.append(Mail(self._clock.now(), 0, i.TakeUp(laid_down)))
        if orphans:
            self._restore(slot, orphans, machines)
        if not_begun and is_held:
            slot.mailbox.append(Mail(self._clock.now(), 0, i.LayDown(not_begun)))
        elif not_begun:  # the begin of a suspect is recorded: nobody had these
            for number in not_begun:
                self.hand_out(slot, execution, number)
            self._dispatcher.fill()

    def _restore(self, slot: Slot, orphans: list[Assignment], machines: dict[int, str]) -> None:
        """Hand out again what an earlier process may have begun, with what is known of its end.

        In `machines` are those that were begun alone, and where.
        """
        loss = self._store.loss_of(slot.id)
        let_go = self._scheduler.recorder.given_up.pop(slot.id, set())
        apart = {orphan.task for orphan in orphans if self._dispatcher.keeps_apart(orphan)}
        if loss is LossKind.ONLY and len(orphans) - len(apart) > 1:
            loss = LossKind.PROCESS
        for orphan in orphans:
            is_blameless = orphan.task in apart or (orphan.task, orphan.delivery) in let_go
            if is_blameless:
                self._dispatcher.restore(orphan, LossKind.STOPPED)
            elif loss is LossKind.PROCESS and orphan.task in machines:
                self._dispatcher.restore(orphan, self._store.loss_on(machines[orphan.task]))
            else:
                self._dispatcher.restore(orphan, loss)

    async def _hand_out_large(self, slot: Slot, execution: Execution, number: int) -> None:
        task = execution.state.tasks.get(number)
        if task is None:
            slot.fetching.discard(number)
            return
        arguments = await self._scheduler.text(execution.id, task.arguments)
        input = await self._scheduler.text(execution.id, task.input)
        slot.fetching.discard(number)
        if slot.is_gone or slot.execution is None or number not in slot.execution.state.tasks:
            return
        if slot.is_leaving:
            slot.unstarted.append(number)
            self._scheduler.handover.look_at(slot)
        else:
            self._dispatcher.add(slot.execution.assignment(number, arguments, input))
            self._dispatcher.fill()

    def _call_back(self, slot: Slot, execution: Execution, event: e.TaskCancelRequested) -> None:
        task = execution.state.tasks.get(event.task)
        if task is None or (task.pool and not task.laid_down):
            return
        if self._dispatcher.holds(slot.id, event.task, task.delivery):
            self._dispatcher.cancel(slot.id, event.task, task.grace)
        else:
            never_begun = i.TaskLost(event.task, task.delivery, "cancelled before it was handed out")
            slot.mailbox.append(Mail(self._clock.now(), 0, never_begun))

    def _continue(self, slot: Slot, execution: Execution, event: e.Sliced) -> None:
        if event.more and execution.state.sliced:
            slot.mailbox.append(Mail(self._clock.now(), 0, i.Proceed()))

    def _announce_end(self, slot: Slot, execution: Execution, event: e.RunEnded) -> None:
        self._dispatcher.forget(slot.id)
        self._waiters.settle(slot.id, (event.status, event.outcome))

    def _issue_anew(self, slot: Slot, execution: Execution, event: e.RunForked) -> None:
        for number, task in execution.state.tasks.items():
            if task.cancelling:  # nobody has it who could agree
                slot.mailbox.append(lost(execution.assignment(number, b"", b""), self._clock.now()))
            else:
                self.hand_out(slot, execution, number)


_COMMANDS: dict[type[e.Event], Callable[[Commands, Slot, Execution, Any], None]] = {
    e.TaskScheduled: Commands._hand_out,
    e.TaskRedelivered: Commands._hand_out,
    e.TasksLaidDown: Commands._return_unstarted,
    e.TasksTakenUp: Commands._hand_out_all,
    e.TaskCancelRequested: Commands._call_back,
    e.Sliced: Commands._continue,
    e.RunEnded: Commands._announce_end,
    e.RunForked: Commands._issue_anew,
}
