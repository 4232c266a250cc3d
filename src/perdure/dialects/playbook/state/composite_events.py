"""Events that stand for several, told as those: the same history, and the same state, one fact at a time."""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.dialects.playbook.plan.program import Directive
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.kernel.events import Event
from perdure.kernel.values import Instant


def unfolded(event: Event) -> tuple[Event, ...]:
    unfold = _UNFOLD.get(type(event))
    return (event,) if unfold is None else unfold(event)


def _started(event: p.WorkflowStarted) -> tuple[Event, ...]:
    if not event.entry.run:
        return (event,)
    return (msgspec.structs.replace(event, entry=_waiting(event.entry)), _start(event.entry, event.at))


def _next(event: p.NextEvaluated) -> tuple[Event, ...]:
    if not any(new.run for new in event.tokens):
        return (event,)
    made = msgspec.structs.replace(event, tokens=tuple(map(_waiting, event.tokens)))
    return (made, *(_start(new, event.at) for new in event.tokens))


def _waiting(new: p.NewToken) -> p.NewToken:
    return msgspec.structs.replace(new, run=0, tasks=0)


def _start(new: p.NewToken, at: Instant) -> p.StepStarted:
    return p.StepStarted(new.run, new.token, new.tasks, at)


def _attempt_ended(event: p.AttemptEnded) -> tuple[Event, ...]:
    if not event.label:
        return (event,)
    began = p.AttemptStarted(event.thread, event.label, event.kind, 0, event.at)
    return (began, msgspec.structs.replace(event, label="", kind=""))


def _task_passed(event: p.TaskPassed) -> tuple[Event, ...]:
    return _passed(event.thread, event.label, event.at, event.to, event.is_last)


def _step_passed(event: p.StepPassed) -> tuple[Event, ...]:
    passed = _passed(event.thread, event.label, event.at, event.to, is_last=True)
    return (*passed, p.StepEnded(event.run, "step.done", event.at, uri=event.uri, keeps=event.keeps))


def _passed(thread: int, label: str, at: Instant, to: int, is_last: bool) -> tuple[Event, ...]:
    fate = "done" if is_last else "ready"
    judged = p.OutcomeJudged(thread, label, b.NO_RULE, Directive.CONTINUE, fate, to, is_visit=True)
    return (p.AttemptEnded(thread, at, source="landed"), judged)


_UNFOLD: dict[type[Event], Callable[[Any], tuple[Event, ...]]] = {
    p.WorkflowStarted: _started,
    p.NextEvaluated: _next,
    p.AttemptEnded: _attempt_ended,
    p.TaskPassed: _task_passed,
    p.StepPassed: _step_passed,
}
