"""What a decision asks of the store: the rows that must be written together with its events."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from perdure.engine.slot import Slot
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import encode_snapshot, encode_turns
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.kernel.randomness import child_seed
from perdure.kernel.tasks.assignments import (
    AssignmentMessage,
    OfferedPipeline,
    encode_assignment,
    encode_pipeline,
    short_name,
)
from perdure.kernel.trace_context import TRACEPARENT
from perdure.kernel.turn_budget import pay
from perdure.stores.commit_types import (
    Message,
    RequestedPermit,
    RunSummary,
    TaskAnswer,
    TaskOffer,
    Transition,
    append_to,
)
from perdure.stores.pool_tasks import ANSWERS_KEPT, report_name

_RUNNING, _PAUSED = Status.RUNNING, Status.PAUSED  # members of an enumeration are found slowly, and every step asks
_BYTES_PER_WORK = 8  # of a snapshot, as far as its size is known before it is made


def transition(slot: Slot, snapshot_bytes: int, recall_grace: float = 0.0) -> Transition | None:
    """The transition of everything the slot has just decided; None when nothing needs to be written."""
    execution, was = slot.execution, slot.summary
    assert execution is not None
    consumes: list[int] = []
    if len(slot.taken) == 1:  # nearly always
        turn, mail = slot.turns[0], slot.taken[0]
        events = turn.events
        turns = [(turn.now, events)] if events else []
        brings_more = turn.brings_more or mail.values or mail.borrowed or mail.act is not None  # than events
        if mail.position is not None:
            consumes.append(mail.position)
    else:
        turns = [(turn.now, turn.events) for turn in slot.turns if turn.events]
        events = [event for _, of_turn in turns for event in of_turn]
        consumes += [mail.position for mail in slot.taken if mail.position is not None]
        brings_more = any(turn.brings_more for turn in slot.turns) or any(
            mail.values or mail.borrowed or mail.act is not None for mail in slot.taken
        )
    if not turns and not consumes:
        return None
    seq = execution.state.seq
    change = Transition(slot.id, slot.partition, seq)
    if turns:
        change.row = row = encode_turns(turns)
        if slot.creation is None:
            change.base = seq - len(events)
        tail = slot.tail_bytes + len(row)
        if (tail <= snapshot_bytes or tail <= slot.snapshot_bytes) and not (brings_more and _is_moved(events)):
            slot.tail_bytes = tail
        else:
            pay((tail + slot.snapshot_bytes) // _BYTES_PER_WORK)
            change.snapshot = encode_snapshot(execution)
            slot.snapshot_bytes = len(change.snapshot)
            slot.tail_bytes = 0
        shown = execution.dialect.shown_events
        if shown and not shown.isdisjoint(map(type, events)):
            change.is_shown = True
        asks_of = _ASKS.get
        for event in events:
            if (asks := asks_of(type(event))) is not None:
                asks(change, slot, execution, event)
    if change.recalled:
        change.recalled_until = execution.state.at + int(recall_grace * SECOND)
    if brings_more or consumes or change.withdrawn:
        _add_more(change, slot, execution, consumes)
    if slot.creation is not None:
        change.create = slot.creation
        change.programs = append_to(change.programs, slot.programs)
        change.inherited_log = append_to(change.inherited_log, slot.lived)
    if (summary := _summary(slot, execution)) is not None:
        change.summary = summary
    elif change.labels is not None or change.program is not None:
        change.summary = was  # one statement writes both
    if was is not None:
        change.was = was.status
    if slot.failures:
        change.stuck = ""
    return change


def _is_moved(events: list[e.Event]) -> bool:
    """Whether the run goes on with another document: from its snapshot on it needs no former one to be folded."""
    return any(type(event) is e.RunMigrated for event in events)


def _add_more(change: Transition, slot: Slot, execution: Execution, consumes: list[int]) -> None:
    """What few transitions have beside the events of their turns."""
    _add_values(change, slot)
    if consumes:
        change.consumes = consumes
        _withdraw_ended(change, slot, execution)
    _pass_leases_on(change, slot, execution)
    if change.withdrawn:
        _keep_answers(change, slot)


def _add_values(change: Transition, slot: Slot) -> None:
    """What lies beside the events of its turns, and what came with its mail."""
    for turn in slot.turns:
        if turn.values:
            change.values = append_to(change.values, turn.values.items())
        if turn.programs:
            pinned = [(name, language, text) for name, (language, text) in turn.programs.items()]
            change.programs = append_to(change.programs, pinned)
        if turn.claims:
            change.name_claims = append_to(change.name_claims, turn.claims.items())
        if turn.cache_writes:
            change.memories = append_to(change.memories, turn.cache_writes.items())
    for turn, mail in zip(slot.turns, slot.taken, strict=True):
        if mail.act is not None and not isinstance(turn.answer, i.Refused):
            change.acts = append_to(change.acts, [mail.act.record()])
        if mail.values:
            change.values = append_to(change.values, mail.values)
        if mail.borrowed:
            change.borrowed_values = append_to(change.borrowed_values, mail.borrowed)


def _withdraw_ended(change: Transition, slot: Slot, execution: Execution) -> None:
    """A lease ended while the answer of its worker was on its way, and that counted: nobody needs its row any more."""
    for mail in slot.taken:
        input = mail.input
        if type(input) is i.TaskLost and mail.position is not None and input.task not in execution.state.tasks:
            change.withdrawn = append_to(change.withdrawn, [input.task])


def _pass_leases_on(change: Transition, slot: Slot, execution: Execution) -> None:
    """Whoever has reported an outcome goes on with the next task of its pipeline; where there is none, its lease ends.

    The outcome counts as the answer then, and its digest is kept as long as that of any answer.
    """
    reports: dict[int, i.PipelineResult] = {}
    offered: dict[int, OfferedPipeline] = {}
    for turn, mail in zip(slot.turns, slot.taken, strict=True):
        offered |= turn.pipelines
        if isinstance(mail.input, i.PipelineResult) and not isinstance(turn.answer, i.Refused):
            reports[mail.input.pipeline] = mail.input
    if not offered and not reports:
        return
    offers = []
    for offer in change.offers:
        pipeline = offered.get(offer.task)
        if pipeline is not None:
            offer = replace(offer, pipeline=encode_pipeline(pipeline))
            report = reports.pop(pipeline.number, None)
            if report is not None:
                name = report_name(report.number, report.digest)
                offer = replace(offer, follows=report.lease, number=report.number + 1, reported=name)
        offers.append(offer)
    change.offers = offers
    until = execution.state.at + ANSWERS_KEPT
    for report in reports.values():
        answer = TaskAnswer(report.task, report.lease, report_name(report.number, report.digest), until)
        change.answers = append_to(change.answers, [answer])


def _keep_answers(change: Transition, slot: Slot) -> None:
    for turn, mail in zip(slot.turns, slot.taken, strict=True):
        if mail.lease_answer is not None and not isinstance(turn.answer, i.Refused):
            change.answers = append_to(change.answers, [mail.lease_answer])


def _summary(slot: Slot, execution: Execution) -> RunSummary | None:
    """The run's row as it must be from now on; None while it may stay as it is.

    A run at work is not rewritten at every step: its row says that there is work, and before when nothing is due.
    Whoever finds the run without an owner looks no further until then: an earlier due time is written, a later one not.
    """
    state = execution.state
    if state.status.is_final:
        summary = RunSummary(state.status, False, None, state.ended_at)
    elif state.local_tasks or state.sliced:
        status = _RUNNING if state.pause is None else _PAUSED
        was = slot.summary
        if was is not None and not (was.has_work and was.status is status):
            was = None
        if was is not None and not (slot.waits or slot.calendar) and slot.has_no_timer_before(was.due):
            return None
        due, on_wall = slot.due_times()
        if was is not None and not (_is_earlier(due, was.due) or _is_earlier(on_wall, was.on_wall)):
            return None
        summary = RunSummary(status, True, due, None, on_wall)
    else:
        due, on_wall = slot.due_times()
        summary = RunSummary(state.activity, False, due, None, on_wall)
    return None if summary == slot.summary else summary


def _is_earlier(due: Instant | None, than: Instant | None) -> bool:
    return due is not None and (than is None or due < than)


def child_start(execution: Execution, event: e.ChildStarted) -> Message:
    start = i.Start(
        event.language,
        event.program,
        event.name,
        event.input,
        event.options,
        child_seed(execution.state.seed, event.child),
        (execution.id, event.child) if event.awaited else (execution.id, 0),
        event.labels | {name: text for name, text in execution.state.labels.items() if name == TRACEPARENT},
        namespace=execution.namespace,
        from_api=execution.state.from_api or event.from_api,
    )
    return Message(execution.child_id(event.child), execution.state.at, i.encode(start))


def _message(change: Transition, to: RunId, execution: Execution, input: i.Input) -> None:
    change.messages = append_to(change.messages, [Message(to, execution.state.at, i.encode(input))])


def _task_scheduled(change: Transition, slot: Slot, execution: Execution, event: e.TaskScheduled) -> None:
    if event.pool:
        _offer(change, slot, execution, event.task)


def _offer(change: Transition, slot: Slot, execution: Execution, number: int) -> None:
    task = execution.state.tasks.get(number)
    if task is None:
        return  # scheduled and settled in one decision
    if task.laid_down:
        if number in slot.pooled:
            slot.pooled.discard(number)
            change.withdrawn = append_to(change.withdrawn, [number])
        return
    slot.pooled.add(number)
    body = encode_assignment(AssignmentMessage(execution.assignment(number, b"", b""), task.arguments, task.input))
    language = execution.dialect.name
    opener = language if task.sealed else ""
    about = (task.delivery, task.pool, short_name(task.provider, language), body, execution.namespace)
    change.offers = append_to(change.offers, [TaskOffer(number, *about, execution.state.at, opener)])


def _task_redelivered(change: Transition, slot: Slot, execution: Execution, event: e.TaskRedelivered) -> None:
    if event.task in slot.pooled:
        _offer(change, slot, execution, event.task)


def _task_held(change: Transition, slot: Slot, execution: Execution, event: e.TaskHeld) -> None:
    if event.task in slot.pooled:
        slot.pooled.discard(event.task)
        change.withdrawn = append_to(change.withdrawn, [event.task])


def _tasks_taken_up(change: Transition, slot: Slot, execution: Execution, event: e.TasksTakenUp) -> None:
    for number in event.tasks:
        task = execution.state.tasks.get(number)
        if task is not None and task.pool:
            _offer(change, slot, execution, number)


def _task_ended(change: Transition, slot: Slot, execution: Execution, event: e.TaskEnded) -> None:
    if event.task in slot.pooled:
        slot.pooled.discard(event.task)
        change.withdrawn = append_to(change.withdrawn, [event.task])


def _task_cancel_requested(change: Transition, slot: Slot, execution: Execution, event: e.TaskCancelRequested) -> None:
    if event.task in slot.pooled:
        change.recalled = append_to(change.recalled, [event.task])


def _timer_set(change: Transition, slot: Slot, execution: Execution, event: e.TimerSet) -> None:
    if (timer := execution.state.timers.get(event.timer)) is not None:
        slot.set_timer(timer, event.timer)


def _child_bounded(change: Transition, slot: Slot, execution: Execution, event: e.ChildBounded) -> None:
    if (timer := execution.state.timers.get(event.timer)) is not None:
        slot.set_timer(timer, event.timer)


def _child_started(change: Transition, slot: Slot, execution: Execution, event: e.ChildStarted) -> None:
    change.messages = append_to(change.messages, [child_start(execution, event)])


def _child_cancel_requested(
    change: Transition, slot: Slot, execution: Execution, event: e.ChildCancelRequested
) -> None:
    _message(change, execution.child_id(event.child), execution, i.Cancel(event.reason, by="parent"))


def _children_disowned(change: Transition, slot: Slot, execution: Execution, event: e.ChildrenDisowned) -> None:
    for child in event.children:
        _message(change, execution.child_id(child), execution, i.Disown())
    change.disowned = append_to(change.disowned, [execution.child_id(child) for child in event.children])


def _permit_requested(change: Transition, slot: Slot, execution: Execution, event: e.PermitRequested) -> None:
    request = RequestedPermit(event.scope, event.permit, event.priority, event.limit, execution.state.at, event.ageing)
    change.permits_asked = append_to(change.permits_asked, [request])


def _permit_released(change: Transition, slot: Slot, execution: Execution, event: e.PermitReleased) -> None:
    change.permits_released = append_to(change.permits_released, [event.permit])


def _run_ended(change: Transition, slot: Slot, execution: Execution, event: e.RunEnded) -> None:
    change.ended = True
    change.recalled = append_to(change.recalled, sorted(slot.pooled))
    slot.pooled.clear()
    parent = execution.state.parent
    # Who was told of an end is not told again: a reopened child ends for itself.
    if parent is not None and parent[1] and execution.state.incarnation == 1:
        _message(change, parent[0], execution, i.ChildResult(parent[1], event.status, event.outcome))
    if execution.state.disowned:  # now it may be removed
        _message(change, execution.id, execution, i.Disown())


def _run_disowned(change: Transition, slot: Slot, execution: Execution, event: e.RunDisowned) -> None:
    if execution.state.status.is_final and not any(message.to == execution.id for message in change.messages):
        _message(change, execution.id, execution, i.Disown())


def _steered(change: Transition, slot: Slot, execution: Execution, event: e.Steered) -> None:
    """Labels are looked for in the rows of runs."""
    if event.verb == execution.dialect.label_verb and isinstance(event.body, bytes):
        labels = jsontext.decode(event.body).get("labels")
        change.labels = {**(change.labels or {}), **labels} if labels else change.labels


def _run_forked(change: Transition, slot: Slot, execution: Execution, event: e.RunForked) -> None:
    """What was open is issued anew, in this run's name."""
    state = execution.state
    for number, child in state.children.items():
        change.messages = append_to(change.messages, [child_start(execution, child.start)])
        if child.cancelling:
            _message(change, execution.child_id(number), execution, i.Cancel("its parent was forked", by="parent"))
    for number, permit in state.permits.items():
        request = RequestedPermit(permit.scope, number, permit.priority, permit.limit, state.at, permit.ageing)
        change.permits_asked = append_to(change.permits_asked, [request])
    for number, task in state.tasks.items():
        if task.pool and not task.cancelling:
            _offer(change, slot, execution, number)


_ASKS: dict[type[e.Event], Callable[[Transition, Slot, Execution, Any], None]] = {
    e.TaskScheduled: _task_scheduled,
    e.TaskRedelivered: _task_redelivered,
    e.TasksTakenUp: _tasks_taken_up,
    e.TaskEnded: _task_ended,
    e.TaskHeld: _task_held,
    e.TaskCancelRequested: _task_cancel_requested,
    e.TimerSet: _timer_set,
    e.ChildStarted: _child_started,
    e.ChildCancelRequested: _child_cancel_requested,
    e.ChildBounded: _child_bounded,
    e.ChildrenDisowned: _children_disowned,
    e.PermitRequested: _permit_requested,
    e.PermitReleased: _permit_released,
    e.RunEnded: _run_ended,
    e.RunDisowned: _run_disowned,
    e.Steered: _steered,
    e.RunForked: _run_forked,
    e.RunMigrated: lambda change, slot, execution, event: setattr(change, "program", event.program),
}
