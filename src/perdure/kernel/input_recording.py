"""Does this input still count? If so, it is recorded as a fact before any dialect sees it.

Results, timers and child ends are checked against what is open; signals, steering and reopening against their keys;
effects against the holder of the claim. An input that is too late changes nothing, and its sender is told so.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel import pause
from perdure.kernel.control_messages import kind_of, name_sender
from perdure.kernel.instants import format_instant
from perdure.kernel.outcomes import Cancelled, Code, Failed, Status
from perdure.kernel.state import OpenTask, content, settlement, steering
from perdure.kernel.tasks import effect_claims
from perdure.kernel.tasks.crash_attribution import StartPlace, attribute
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.kernel.execution import Execution

Keyed = i.Signal | i.Steer | i.Reopen | i.EffectSettle

DECLINED_LISTED = 100
DOCUMENT_CHANGE = "perdure.kernel.document_change"  # few runs are ever moved
CHANGED = "it has changed since its sender looked at it"

REOPENS_AT_FAILURE_SINCE = 5
"""The record version in which a run can be reopened at what failed."""


class UnfitMessage(str):
    """Why a control message cannot be accepted, ever: because of what it contains, not of what the run does."""

    __slots__ = ()


def record(turn: Turn) -> None:
    """Check the input against the state and record it as a fact, or answer that it came too late."""
    handler = _RECORDERS[type(turn.input)]
    handler(turn, turn.input)
    if turn.is_acknowledged and isinstance(turn.answer, i.Refused):
        _decline(turn, str(turn.answer.reason))


def _decline(turn: Turn, reason: str) -> None:
    """A sender whose control message was acknowledged finds in the history why it does not count (invariant 26).

    There is no older event for this: it is written even while some server may not be able to read it.
    """
    input, state = turn.input, turn.state
    kind = kind_of(input)
    message = kind, getattr(input, "key", ""), getattr(input, "by", ""), turn.arrived
    if not kind or message in state.declined_messages:  # it may be offered again, after a commit of unknown outcome
        return
    if state.declined < DECLINED_LISTED:
        name_sender(turn, input)
        turn.emit(e.InputDeclined(*message, reason))
    else:
        turn.emit(e.MoreInputsDeclined(state.declined + 1))


def _stale(turn: Turn, subject: str) -> None:
    turn.refuse(f"{subject} is not open (any more)")


def _current_task(turn: Turn, number: int, delivery: int) -> OpenTask | None:
    """The task, if this delivery of it is the current one; reports of an earlier holder no longer count."""
    task = turn.state.tasks.get(number)
    if task is None or task.delivery != delivery:
        _stale(turn, f"delivery {delivery} of task {number}")
        return None
    return task


def _start(turn: Turn, input: i.Start) -> None:
    if turn.state.seq:
        turn.refuse("the run has already started", conflict=input.key != turn.state.key)
        return
    turn.emit(
        e.RunStarted(
            input.language,
            input.program,
            input.name,
            input.input,
            input.options,
            input.seed,
            input.parent,
            input.labels,
            input.key,
            input.namespace,
            input.started_by,
            input.from_api,
        )
    )


def _task_result(turn: Turn, input: i.TaskResult) -> None:
    task = turn.state.tasks.get(input.task)
    if task is None or task.delivery != input.delivery:
        _stale(turn, f"delivery {input.delivery} of task {input.task}")
    elif task.attempt != input.attempt:
        _stale(turn, f"attempt {input.attempt} of task {input.task}")
    elif isinstance(input.outcome, Failed) and (effect := effect_claims.effect_to_hold(turn, task, input.outcome)):
        turn.emit(e.TaskHeld(input.task, effect))
        turn.changes_nothing = True  # for the program: the task is still open
    else:
        turn.emit(e.TaskEnded(input.task, input.outcome))


def _task_lost(turn: Turn, input: i.TaskLost) -> None:
    task = _current_task(turn, input.task, input.delivery)
    if task is None:
        return
    if task.cancelling:
        turn.emit(e.TaskEnded(input.task, Cancelled(input.reason)))
        return
    suspicion, charged = attribute(task, input.loss)
    if charged and task.charges + 1 == task.max_deliveries:
        times = "once" if task.max_deliveries == 1 else f"{task.max_deliveries} times"
        message = f"its process was lost {times} while nothing else was running there; the last time: {input.reason}"
        turn.emit(e.TaskEnded(input.task, Failed(Code.DELIVERIES_EXHAUSTED, message, retryable=False)))
    else:
        turn.emit(e.TaskRedelivered(input.task, input.delivery + 1, input.reason, suspicion, charged))


def _begin(turn: Turn, input: i.Begin) -> None:
    """The start of a suspect, before it happens."""
    task = _current_task(turn, input.task, input.delivery)
    if task is None:
        return
    if task.cancelling:
        turn.refuse(f"task {input.task} is asked to stop")
        return
    if task.place != input.place:
        turn.emit(e.TaskBegun(input.task, input.place, input.machine))
    turn.changes_nothing = True  # for the program: it makes no move


def _clear(turn: Turn, input: i.Clear) -> None:
    task = turn.state.tasks.get(input.task)
    is_current = task is not None and task.delivery == input.delivery and _is_alone(task, input)
    if task is not None and input.outlived and is_current:
        turn.emit(e.TaskCleared(input.task, task.suspicion - 1))
    elif task is not None and not input.outlived and is_current:
        turn.emit(e.TasksLaidDown([], [input.task]))
    elif task is not None and not input.outlived and task.charged_at == input.delivery:
        turn.emit(e.TaskCleared(input.task, task.suspicion - 1, uncharged=True))
    else:
        _stale(turn, f"delivery {input.delivery} of task {input.task}")
    turn.changes_nothing = True


def _is_alone(task: OpenTask, input: i.Clear) -> bool:
    """For a task of a pool the row of its lease decides: a report there that it survived its time is accepted."""
    return task.place == StartPlace.ALONE or bool(input.outlived and task.pool and task.suspicion)


def _task_report(turn: Turn, input: i.TaskReport) -> None:
    if _current_task(turn, input.task, input.delivery) is not None:
        turn.emit(e.TaskReported(input.task, input.body))


def _timer_due(turn: Turn, input: i.TimerDue) -> None:
    timer = turn.state.timers.get(input.timer)
    if timer is None:
        _stale(turn, f"timer {input.timer}")
    elif timer.child:
        _child_overdue(turn, input.timer, timer.child)
    else:
        turn.emit(e.TimerFired(input.timer))


def _child_overdue(turn: Turn, timer: int, child: int) -> None:
    """One grace after a child was asked to stop. Its own grace bounds its end, unless nothing moves it any more."""
    if turn.is_stranded(child):
        outcome = Cancelled("given up: it is stuck, or no live process is running it")
        turn.emit(e.TimerFired(timer))
        turn.emit(e.ChildEnded(child, Status.CANCELLED, outcome))
        turn.input = i.ChildResult(child, Status.CANCELLED, outcome)  # for the program it has ended
        return
    turn.emit(e.TimerFired(timer))
    turn.bound_child(child, turn.state.children[child].grace)
    turn.changes_nothing = True


def _child_result(turn: Turn, input: i.ChildResult) -> None:
    if input.child in turn.state.children:
        turn.emit(e.ChildEnded(input.child, input.status, input.outcome))
    else:
        _stale(turn, f"child {input.child}")


def _permit_grant(turn: Turn, input: i.PermitGrant) -> None:
    permit = turn.state.permits.get(input.permit)
    if permit is not None and not permit.granted:
        turn.emit(e.PermitGranted(input.permit))
    else:
        _stale(turn, f"permit {input.permit}")


def describe_end(execution: "Execution") -> str:
    """That a run has ended, and when."""
    state = execution.state
    return f"the run has already {state.status.done} (at {format_instant(state.ended_at or state.at)})"


def is_repeated(execution: "Execution", input: Keyed) -> bool:
    return bool(input.key) and execution.state.keys.get(input.key) == _content(input)


def why_refused(execution: "Execution", input: i.Input) -> str | None:
    """Why a control message would be refused in the current state; None when it would be accepted, or was before."""
    is_over = execution.state.status.is_final
    match input:
        case i.Cancel():
            if input.seen not in (0, execution.state.seq):
                return CHANGED
            return describe_end(execution) if is_over and not _is_cancelled(execution) else None
        case i.Migrate():
            return import_module(DOCUMENT_CHANGE).why_refused(execution, input)  # type: ignore[no-any-return]
        case i.Signal() | i.Steer() | i.Reopen() | i.EffectSettle():
            if is_repeated(execution, input):
                return None
            if input.key and input.key in execution.state.keys:
                return f"the key {input.key!r} was used before for something else; use another one"
            if isinstance(input, i.Steer | i.Reopen) and input.seen not in (0, execution.state.seq):
                return CHANGED
            if isinstance(input, i.Signal | i.EffectSettle) and is_over:
                return describe_end(execution)
            if isinstance(input, i.EffectSettle):
                return effect_claims.why_not_settled(execution.state, input)
            if isinstance(input, i.Reopen) and not is_over:
                return "only a run that has ended can be reopened"
            if isinstance(input, i.Steer) and pause.is_pause(input) and not execution.dialect.pauses_itself:
                return describe_end(execution) if is_over else pause.why_refused(execution, input)
            return execution.dialect.refusal(execution, input)
        case _:
            return None


def _content(input: Keyed) -> bytes:
    match input:
        case i.Signal(name, value):
            return content("signal", name, value)
        case i.Steer(verb, body):
            return steering(verb, body)
        case i.EffectSettle(effect, result):
            return settlement(effect, result)
        case _:
            return content("reopen", "", input.body)


def _is_cancelled(execution: "Execution") -> bool:
    """Whether another cancel changes nothing: it was requested before, or there is nothing left to stop."""
    dialect, state = execution.dialect, execution.state
    if state.status.is_final:
        is_forgiven = dialect.ignores_late_cancel
        return is_forgiven or (state.cancel_requested and state.status is Status.CANCELLED)
    return state.cancel_requested


def is_recorded_before(execution: "Execution", input: i.Input) -> bool:
    """Whether the control message changes nothing: the same was sent before, or nothing is left to be stopped."""
    if isinstance(input, i.Cancel):
        return _is_cancelled(execution)
    if isinstance(input, i.Migrate):
        return bool(import_module(DOCUMENT_CHANGE).is_done(execution, input))
    return isinstance(input, Keyed) and is_repeated(execution, input)


def _counts(turn: Turn, input: i.Cancel | Keyed) -> bool:
    """Whether a control message is to be recorded; if not, it was sent before, or is refused."""
    if is_recorded_before(turn.execution, input):
        turn.changes_nothing = True
    elif reason := why_refused(turn.execution, input):
        turn.refuse(reason, conflict=True)
    else:
        name_sender(turn, input)
    return not turn.changes_nothing


def _cancel(turn: Turn, input: i.Cancel) -> None:
    if _counts(turn, input):
        pause.end_for_cancel(turn, input.by)
        turn.emit(e.CancelRequested(input.reason, input.by))


def _signal(turn: Turn, input: i.Signal) -> None:
    if _counts(turn, input):
        turn.emit(e.SignalReceived(input.name, input.value, input.key, input.by))


def _steer(turn: Turn, input: i.Steer) -> None:
    if pause.is_pause(input) and turn.record_version < pause.PAUSES_SINCE and not turn.execution.dialect.pauses_itself:
        turn.refuse("a live server of an older version cannot read a pause; upgrade every server first")
    elif _counts(turn, input):
        turn.emit(e.Steered(input.verb, input.body, input.key, input.by))
        if pause.is_pause(input) and turn.record_version >= pause.PAUSES_SINCE:
            pause.record(turn, input)


def _reopen(turn: Turn, input: i.Reopen) -> None:
    keeps_effects = turn.execution.dialect.reopens_at_failure
    if keeps_effects and turn.record_version < REOPENS_AT_FAILURE_SINCE:
        turn.refuse("a live server of an older version cannot read what a redrive records; upgrade every server first")
    elif _counts(turn, input):
        turn.emit(e.RunReopened(turn.state.incarnation + 1, input.body, input.key, input.by, keeps_effects))


def _effect_claim(turn: Turn, input: i.EffectClaim) -> None:
    task = _current_task(turn, input.task, input.delivery)
    if task is not None:
        effect_claims.claim(turn, input, task)


def _effect_end(turn: Turn, input: effect_claims.Ending) -> None:
    task = _current_task(turn, input.task, input.delivery)
    if task is not None:
        effect_claims.end(turn, input, task)


def _effect_settle(turn: Turn, input: i.EffectSettle) -> None:
    if _counts(turn, input):
        effect_claims.settle(turn, input)


def _fork(turn: Turn, input: i.Fork) -> None:
    turn.emit(e.RunForked(input.source, input.seq, input.program, input.input, input.from_api))


def _lay_down(turn: Turn, input: i.LayDown) -> None:
    tasks = [number for number in input.tasks if _is_laid_down(turn, number) is False]
    begun = [number for number in input.begun if number in turn.state.tasks]
    if tasks or begun:
        turn.emit(e.TasksLaidDown(tasks, begun))
    turn.changes_nothing = True  # for the program: it makes no move


def _take_up(turn: Turn, input: i.TakeUp) -> None:
    tasks = [number for number in input.tasks if _is_laid_down(turn, number)]
    if tasks and not turn.state.is_held:
        turn.emit(e.TasksTakenUp(tasks))
    turn.changes_nothing = True


def _is_laid_down(turn: Turn, number: int) -> bool | None:
    """None for a task that is not open, is held, or is about to be stopped."""
    task = turn.state.tasks.get(number)
    return None if task is None or task.cancelling or task.held else task.laid_down


def _disown(turn: Turn, input: i.Disown) -> None:
    """The program sees an ordinary cancel."""
    if turn.state.disowned:
        turn.changes_nothing = True
        return
    turn.emit(e.RunDisowned())
    if turn.state.status.is_final:  # it ended in this same decision: there is nothing to stop
        turn.changes_nothing = True
        return
    turn.input = i.Cancel("the parent started over", by="parent")
    _cancel(turn, turn.input)


def _nothing(turn: Turn, input: i.Proceed | i.Wake) -> None:
    """Records no fact of its own: the moves decide what follows from it."""


_RECORDERS: dict[type[i.Input], Any] = {
    i.Start: _start,
    i.TaskResult: _task_result,
    i.PipelineResult: _task_result,
    i.TaskLost: _task_lost,
    i.TaskReport: _task_report,
    i.TimerDue: _timer_due,
    i.Signal: _signal,
    i.Cancel: _cancel,
    i.ChildResult: _child_result,
    i.PermitGrant: _permit_grant,
    i.EffectClaim: _effect_claim,
    i.EffectDone: _effect_end,
    i.EffectUnfit: _effect_end,
    i.EffectRelease: _effect_end,
    i.EffectSettle: _effect_settle,
    i.Steer: _steer,
    i.Reopen: _reopen,
    i.Proceed: _nothing,
    i.Fork: _fork,
    i.Wake: _nothing,
    i.LayDown: _lay_down,
    i.TakeUp: _take_up,
    i.Disown: _disown,
    i.Begin: _begin,
    i.Migrate: lambda turn, input: import_module(DOCUMENT_CHANGE).record(turn, input),
    i.Clear: _clear,
}
