"""How events change the kernel's part of a run's state: one function per event, live and in a fold."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.kernel import events as e
from perdure.kernel.outcomes import Cancelled, Status
from perdure.kernel.state import (
    DocumentBefore,
    OpenChild,
    OpenTask,
    OpenTimer,
    Pause,
    Permit,
    State,
    content,
    migration,
    settlement,
    steering,
)
from perdure.kernel.tasks import effects
from perdure.kernel.tasks.crash_attribution import StartPlace

GRACE_RANK = 1  # a bound: whatever happens at the same instant comes first

Change = Callable[[State, Any], None]


BodyChange = Callable[[Any, Any], None]


class EventChanges(dict[type[e.Event], tuple[Change | None, BodyChange | None]]):
    """What each type of event changes, in the kernel's state and in the body of a dialect: one look for both."""

    __slots__ = ("_find", "counts")

    def __init__(self, find: Callable[[type[e.Event]], BodyChange | None], *, counts: bool = False) -> None:
        self._find = find
        self.counts = counts

    def __missing__(self, kind: type[e.Event]) -> tuple[Change | None, BodyChange | None]:
        self[kind] = changes = (CHANGES.get(kind), self._find(kind))
        return changes


class ChangeTable(dict[type[e.Event], BodyChange]):
    """`evolve` of a dialect that is nothing but a table: what each type of event changes in the body, if anything.

    With `counts`, the body counts all events, in `seq`.
    """

    __slots__ = ("changes",)

    def __init__(self, table: Mapping[type[e.Event], BodyChange], *, counts: bool = False) -> None:
        super().__init__(table)
        self.changes = EventChanges(self.get, counts=counts)

    def __call__(self, body: Any, event: e.Event) -> None:
        if self.changes.counts:
            body.seq += 1
        change = self.get(type(event))
        if change is not None:
            change(body, event)


def event_changes(evolve: BodyChange) -> EventChanges:
    """What the events of a dialect change. Where `evolve` is a table, all runs share this one."""
    return evolve.changes if isinstance(evolve, ChangeTable) else EventChanges(lambda kind: evolve)


def _run_started(state: State, event: e.RunStarted) -> None:
    state.language = event.language
    state.name = event.name
    state.program = event.program
    state.input = event.input
    state.options = event.options
    state.seed = event.seed
    state.parent = event.parent
    state.labels = event.labels
    state.key = event.key
    state.namespace = event.namespace
    state.started_by = event.started_by
    state.from_api = event.from_api
    state.started_at = state.at


def _task_scheduled(state: State, event: e.TaskScheduled) -> None:
    state.issued = event.task
    state.tasks_scheduled += 1
    if not event.pool:
        state.local_tasks += 1
    state.tasks[event.task] = OpenTask(
        event.provider,
        event.path,
        event.arguments,
        event.input,
        event.attempt,
        1,
        event.pool,
        event.deadline,
        event.max_deliveries,
        event.grace,
        event.hold_effects_in_doubt,
        sealed=event.sealed,
        key=event.key,
        laid_down=state.pause is not None and state.pause.holds,
    )
    if state.suspects and event.path in state.suspects:
        task = state.tasks[event.task]
        task.suspicion, task.losses = state.suspects.pop(event.path)


def _task_redelivered(state: State, event: e.TaskRedelivered) -> None:
    task = state.tasks[event.task]
    if event.charged:
        task.charges += 1
        task.charged_at = task.delivery
    if event.suspicion > task.suspicion:
        task.losses += 1
    task.suspicion = event.suspicion
    task.delivery = event.delivery
    task.place, task.machine = StartPlace.UNKNOWN, ""
    task.laid_down = state.is_held


def _task_begun(state: State, event: e.TaskBegun) -> None:
    task = state.tasks[event.task]
    task.place, task.machine = event.place, event.machine


def _task_cleared(state: State, event: e.TaskCleared) -> None:
    task = state.tasks[event.task]
    task.suspicion = event.suspicion
    if event.uncharged:
        task.charges -= 1
        task.charged_at = 0
    elif task.place == StartPlace.ALONE:
        task.place = StartPlace.BESIDE_OTHERS


def _task_ended(state: State, event: e.TaskEnded) -> None:
    state.tasks_ended += 1
    task = state.tasks.pop(event.task)
    if task.suspicion and isinstance(event.outcome, Cancelled):
        state.suspects[task.path] = (task.suspicion, task.losses)
    if task.held:
        state.held_tasks -= 1
    elif not task.pool:
        state.local_tasks -= 1
    if task.timer:
        state.timers.pop(task.timer, None)


def _task_cancel_requested(state: State, event: e.TaskCancelRequested) -> None:
    state.tasks[event.task].cancelling = True


def _timer_set(state: State, event: e.TimerSet) -> None:
    state.issued = event.timer
    state.timers[event.timer] = OpenTimer(event.due, event.rank)
    if event.task:
        state.tasks[event.task].timer = event.timer


def _timer_gone(state: State, event: e.TimerFired | e.TimerDropped) -> None:
    del state.timers[event.timer]


def _child_started(state: State, event: e.ChildStarted) -> None:
    state.issued = event.child
    if event.awaited:
        state.children[event.child] = OpenChild(event)


def _child_ended(state: State, event: e.ChildEnded) -> None:
    timer = state.children.pop(event.child).timer
    if timer:
        state.timers.pop(timer, None)


def _child_cancel_requested(state: State, event: e.ChildCancelRequested) -> None:
    state.children[event.child].cancelling = True


def _child_bounded(state: State, event: e.ChildBounded) -> None:
    state.issued = event.timer
    state.timers[event.timer] = OpenTimer(event.due, GRACE_RANK, event.child)
    child = state.children[event.child]
    child.timer, child.grace = event.timer, event.grace


def _signal_received(state: State, event: e.SignalReceived) -> None:
    if event.key:
        state.keys[event.key] = content("signal", event.name, event.value)


def _steered(state: State, event: e.Steered) -> None:
    if event.key:
        state.keys[event.key] = steering(event.verb, event.body)


def _cancel_requested(state: State, event: e.CancelRequested) -> None:
    state.cancel_requested = True


def _permit_requested(state: State, event: e.PermitRequested) -> None:
    state.issued = event.permit
    state.permits[event.permit] = Permit(event.scope, False, event.priority, event.limit, event.ageing)


def _permit_granted(state: State, event: e.PermitGranted) -> None:
    state.permits[event.permit].granted = True


def _permit_released(state: State, event: e.PermitReleased) -> None:
    del state.permits[event.permit]


def _effect_settled(state: State, event: e.EffectSettled) -> None:
    effects.CHANGES[e.EffectSettled](state, event)
    if event.key:
        state.keys[event.key] = settlement(event.effect, event.result)


def _sliced(state: State, event: e.Sliced) -> None:
    state.moves = event.moves
    state.sliced = event.more


def _run_ended(state: State, event: e.RunEnded) -> None:
    state.status = event.status
    state.outcome = event.outcome
    state.ended_at = state.at
    state.sliced = False
    state.pause = None
    state.tasks.clear()
    state.local_tasks = state.held_tasks = 0
    state.timers.clear()
    state.children.clear()
    state.permits.clear()


def _run_reopened(state: State, event: e.RunReopened) -> None:
    state.incarnation = event.incarnation
    state.status = Status.RUNNING
    state.outcome = None
    state.ended_at = None
    state.cancel_requested = False
    if event.keeps_effects:
        state.doubts |= {effect.path: effect.incarnation for effect in state.effects.values() if effect.is_open}
    else:
        state.effects = {}  # a new life performs its effects anew, under keys of its own
    if event.key:
        state.keys[event.key] = content("reopen", "", event.body)


def _run_forked(state: State, event: e.RunForked) -> None:
    state.parent = None  # nobody waits for a fork
    state.forked_from.append(event.source)
    state.program = event.program or state.program
    state.from_api |= event.from_api  # the stricter of both
    if event.input is not None:
        state.input = event.input
    state.pause = None
    for task in state.tasks.values():
        task.delivery = 1
        _take_up(state, task)
        task.suspicion = task.losses = task.charges = task.charged_at = 0
    # Claims that were not completed belonged to the other run; completed ones are facts here too.
    state.effects = {key: effect for key, effect in state.effects.items() if effect.is_completed}
    for permit in state.permits.values():
        permit.granted = False


def _run_migrated(state: State, event: e.RunMigrated) -> None:
    state.program = event.program
    state.from_api = state.from_api or event.from_api
    state.moves_made += 1
    if event.undoes:
        state.documents_before.pop()
    else:
        before = DocumentBefore(event.before, event.language, event.document, event.mapping, state.at)
        state.documents_before.append(before)
    if event.key:
        state.keys[event.key] = migration(event.program, event.mapping, event.undoes)


def _tasks_laid_down(state: State, event: e.TasksLaidDown) -> None:
    for task in event.tasks:
        state.tasks[task].laid_down = True
    for task in event.begun:
        state.tasks[task].place = StartPlace.LET_GO


def _tasks_taken_up(state: State, event: e.TasksTakenUp) -> None:
    for task in event.tasks:
        _take_up(state, state.tasks[task])


def _take_up(state: State, task: OpenTask) -> None:
    task.laid_down = state.is_held
    task.place = StartPlace.UNKNOWN
    if task.held:
        task.held = ""
        state.held_tasks -= 1
        if not task.pool:
            state.local_tasks += 1


def _run_paused(state: State, event: e.RunPaused) -> None:
    state.pause = Pause(state.at, event.by, event.reason, event.holds)


def _run_unpaused(state: State, event: e.RunUnpaused) -> None:
    state.pause = None


def _run_disowned(state: State, event: e.RunDisowned) -> None:
    state.disowned = True


def _work_counted(state: State, event: e.WorkCounted) -> None:
    state.enumerated = event.enumerated
    state.caught = event.caught


def _input_declined(state: State, event: e.InputDeclined) -> None:
    state.declined += 1
    state.declined_messages.append((event.kind, event.key, event.by, event.arrived))


def _more_inputs_declined(state: State, event: e.MoreInputsDeclined) -> None:
    state.declined = event.total


def _ignored(state: State, event: e.Event) -> None:
    """Handled by the dialect, or only for the history."""


CHANGES: dict[type[e.Event], Change] = {
    e.RunStarted: _run_started,
    e.TaskScheduled: _task_scheduled,
    e.TaskRedelivered: _task_redelivered,
    e.TaskEnded: _task_ended,
    e.TaskCancelRequested: _task_cancel_requested,
    e.TaskReported: _ignored,
    e.TimerSet: _timer_set,
    e.TimerFired: _timer_gone,
    e.TimerDropped: _timer_gone,
    e.ChildStarted: _child_started,
    e.ChildEnded: _child_ended,
    e.ChildCancelRequested: _child_cancel_requested,
    e.ChildBounded: _child_bounded,
    e.MessageSent: _ignored,
    e.SignalReceived: _signal_received,
    e.CancelRequested: _cancel_requested,
    e.Steered: _steered,
    e.PermitRequested: _permit_requested,
    e.PermitGranted: _permit_granted,
    e.PermitReleased: _permit_released,
    **effects.CHANGES,
    e.EffectSettled: _effect_settled,
    e.Sliced: _sliced,
    e.RunEnded: _run_ended,
    e.RunReopened: _run_reopened,
    e.RunForked: _run_forked,
    e.RunMigrated: _run_migrated,
    e.TasksLaidDown: _tasks_laid_down,
    e.TasksTakenUp: _tasks_taken_up,
    e.ChildrenDisowned: _ignored,
    e.RunDisowned: _run_disowned,
    e.WorkCounted: _work_counted,
    e.TaskBegun: _task_begun,
    e.TaskCleared: _task_cleared,
    e.InputDeclined: _input_declined,
    e.MoreInputsDeclined: _more_inputs_declined,
    e.RunPaused: _run_paused,
    e.RunUnpaused: _run_unpaused,
}
