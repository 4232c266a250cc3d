"""The history of a run in the language's own words (STY-264): a view of what the kernel recorded, nothing stored twice.

Every phase change of the run and its steps, every decision, retry, signal, effect and redrive, with actor and time;
beside them the original's diagnostic events under their own names (STY-261).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.state import events as s
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.values import Instant, Payload

Told = tuple[str, dict[str, Any]]
"""An event's name and what it says."""

ENGINE = "engine"


def history(run: str, turns: Iterable[tuple[Instant, list[e.Event]]]) -> Iterator[dict[str, Any]]:
    seq = 0
    paths: dict[int, str] = {}  # tasks by the step they are of
    for at, recorded in turns:
        for event in recorded:
            if isinstance(event, e.TaskScheduled):
                paths[event.task] = event.path
            for name, said in _tell(event, paths):
                seq += 1
                step = said.pop("step", None)
                actor = said.pop("actor", None) or ENGINE
                item: dict[str, Any] = {"seq": seq, "event_type": name, "timestamp": timestamp(at), "actor": actor}
                if step:
                    item["step"] = step
                yield {**item, "payload": said}


def _tell(event: e.Event, paths: dict[int, str]) -> Iterator[Told]:
    if isinstance(event, e.TaskEnded):
        yield "execution.ended", {"step": paths.get(event.task, ""), "task": event.task, **_outcome(event.outcome)}
    elif isinstance(event, e.TaskRedelivered):
        said = {"step": paths.get(event.task, ""), "task": event.task, "delivery": event.delivery}
        yield "execution.restarted", {**said, "reason": event.reason}
    elif isinstance(event, e.TaskCancelRequested):
        yield "execution.cancelRequested", {"step": paths.get(event.task, ""), "reason": event.reason}
    else:
        teller = _TELLERS.get(type(event))
        if teller is not None:
            yield from teller(event)


def _outcome(outcome: Any) -> dict[str, Any]:
    match outcome:
        case Succeeded():
            return {"outcome": "succeeded"}
        case Failed(code, message):
            return {"outcome": "failed", "code": code, "message": message}
        case Cancelled(reason):
            return {"outcome": "canceled", "reason": reason}
    raise AssertionError(outcome)


def _value(payload: Payload | None) -> Any:
    if payload is None:
        return None
    if isinstance(payload, bytes):
        return jsontext.decode(payload)
    return {"$large": payload.digest.hex(), "bytes": payload.size}


def _started(event: s.StoryStarted) -> Iterator[Told]:
    name = {"name": event.name, "namespace": event.namespace}
    yield "storyrun.created", {**name, "inputs": _value(event.inputs)}
    if not event.is_refused:
        yield "storyrun.phase", {"phase": "Running", "reason": "StartingExecution"}


def _skipped(event: s.StepsSkipped) -> Iterator[Told]:
    for step in event.steps:
        yield "step.phase", {"step": step, "phase": "Skipped", "reason": "Skipped", "message": event.message}


def _queued(event: s.StepQueued) -> Iterator[Told]:
    yield "step.phase", {"step": event.step, "phase": "Pending", "reason": "Pending", "message": event.message}


def _blocked(event: s.StepBlocked) -> Iterator[Told]:
    yield "step.phase", {"step": event.step, "phase": "Blocked", "reason": event.reason, "message": event.message}


def _step_started(event: s.StepStarted) -> Iterator[Told]:
    said: dict[str, Any] = {"step": event.step, "phase": event.phase, "message": event.message}
    if event.due is not None:
        said["due"] = timestamp(event.due)
    if event.sub_run:
        said["subStoryRunName"] = event.sub_run
    yield "step.phase", said


def _created(event: s.StepRunCreated | s.StepLaunched) -> Iterator[Told]:
    said = {"step": event.step, "idempotencyKey": event.key, "engram": event.engram, "template": event.template}
    yield "steprun.created", said
    yield "step.phase", {"step": event.step, "phase": "Pending", "reason": "Pending"}


def _launched(event: s.StepLaunched) -> Iterator[Told]:
    yield from _created(event)
    yield from _attempt(event)


def _attempt(event: s.AttemptStarted | s.StepLaunched) -> Iterator[Told]:
    yield "step.phase", {"step": event.step, "phase": "Running", "reason": "Running", "task": event.task}


def _log(event: s.LogKept) -> Iterator[Told]:
    kept = _value(event.body)
    said = {"step": event.step, "attempt": event.attempt, "lines": event.lines}
    yield "step.logged", {**said, "log": kept.get("log", kept)}


def _retry(event: s.RetryScheduled) -> Iterator[Told]:
    said = {"step": event.step, "phase": "Pending", "reason": "RetryScheduled", "message": event.message}
    yield "step.phase", {**said, "failure": event.failure, "exitClass": event.exit_class, "due": timestamp(event.due)}
    yield "JobRetryScheduled", {"step": event.step, "message": event.message, "retries": event.retries}


def _step_ended(event: s.StepEnded) -> Iterator[Told]:
    said: dict[str, Any] = {"step": event.step, "phase": event.phase, "reason": event.reason}
    said["message"] = event.message
    if event.source == "given":
        said["output"] = _value(event.output)
    if event.error is not None:
        said["error"] = jsontext.decode(event.error)
    yield "step.phase", said


def _expired(event: s.StepExpired) -> Iterator[Told]:
    yield "step.expired", {"step": event.step}


def _gate(event: s.GateDecided) -> Iterator[Told]:
    said = {"step": event.step, "actor": event.by, "state": event.state, "message": event.message}
    yield "gate.decided", said


def _signal(event: s.SignalRecorded) -> Iterator[Told]:
    said = {"step": event.step, "number": event.seq, "key": event.key, "payload": jsontext.decode(event.payload)}
    yield "signal.emitted", said


def _effect(event: s.EffectRecorded) -> Iterator[Told]:
    said = {"step": event.step, "number": event.seq, "key": event.key, "status": event.status}
    yield "effect.recorded", {**said, "details": jsontext.decode(event.details)}


def _noted(event: s.Noted) -> Iterator[Told]:
    yield event.kind, {"step": event.step, "message": event.message}


def _interrupted(event: s.Interrupted) -> Iterator[Told]:
    yield "storyrun.interrupted", {"step": event.step, "cause": event.cause, "message": event.message}


def _late(event: s.TimeRanOut) -> Iterator[Told]:
    yield "storyrun.timeout", {}


def _block(event: s.BlockEntered) -> Iterator[Told]:
    yield "storyrun.block", {"block": event.block}


def _ended(event: s.StoryEnded) -> Iterator[Told]:
    said: dict[str, Any] = {"phase": event.phase, "reason": event.reason, "message": event.message}
    if event.output is not None:
        said["output"] = _value(event.output)
    if event.error is not None:
        said["error"] = jsontext.decode(event.error)
    yield "storyrun.phase", said


def _redriven(event: s.Redriven) -> Iterator[Told]:
    said = {"from": event.step or None, "token": event.token, "reset": list(event.steps), "actor": event.by}
    yield "storyrun.redriven", said
    if event.step:
        yield "storyrun.phase", {"phase": "Running", "reason": "StartingExecution"}


def _cleaned(event: s.ChildrenCleaned) -> Iterator[Told]:
    yield "storyrun.childrenCleaned", {}


def _redrive_asked(event: s.RedriveAsked) -> Iterator[Told]:
    yield "storyrun.redriveRequested", {"from": event.step or None, "token": event.token, "actor": event.by}


def _hastened(event: s.RetryHastened) -> Iterator[Told]:
    yield "step.retryRequested", {"step": event.step, "actor": event.by}


def _found(event: s.ResourceFound) -> Iterator[Told]:
    yield "resource.found", {"kind": event.kind, "namespace": event.namespace, "name": event.name}


def _cache(event: s.CacheNoted) -> Iterator[Told]:
    yield "cache." + event.status, {"step": event.step, "entry": event.entry, "mode": event.mode}


def _cancel(event: e.CancelRequested) -> Iterator[Told]:
    yield "storyrun.cancelRequested", {"reason": event.reason, "actor": event.by}


def _declined(event: e.InputDeclined) -> Iterator[Told]:
    said = {"kind": event.kind, "key": event.key, "arrived": timestamp(event.arrived), "reason": event.reason}
    yield "input.declined", {**said, "actor": event.by}


def _held(event: e.TaskHeld) -> Iterator[Told]:
    step, _, key = event.effect.partition("#")
    yield "step.held", {"step": step, "key": key}


def _settled(event: e.EffectSettled) -> Iterator[Told]:
    step, _, key = event.effect.partition("#")
    yield "effect.settled", {"step": step, "key": key, "done": event.result is not None, "actor": event.by}


def _help(event: s.HelpWanted) -> Iterator[Told]:
    said: dict[str, Any] = {"step": event.target, "purpose": event.purpose, "materialize": event.step}
    yield "step.offloadedData", {**said, "message": event.message}


def _fan(event: s.FanBegan) -> Iterator[Told]:
    yield "step.phase", {"step": event.step, "phase": "Running", "reason": "Running", "items": event.total}


def _fan_child(event: s.FanChildStarted) -> Iterator[Told]:
    yield "map.itemStarted", {"step": event.step, "index": event.index, "storyRun": event.sub_run}


def _fan_child_ended(event: s.FanChildEnded) -> Iterator[Told]:
    said = {"step": event.step, "index": event.index, "phase": event.phase, "message": event.message}
    yield "map.itemEnded", said


def _child(event: e.ChildStarted) -> Iterator[Told]:
    yield "storyrun.childStarted", {"story": event.name, "awaited": event.awaited, "child": event.child}


def _disowned(event: e.ChildrenDisowned) -> Iterator[Told]:
    yield "storyrun.childrenDeleted", {"children": event.children}


def _child_ended(event: e.ChildEnded) -> Iterator[Told]:
    yield "storyrun.childEnded", {"child": event.child, **_outcome(event.outcome)}


_TELLERS: dict[type[e.Event], Callable[[Any], Iterator[Told]]] = {
    s.StoryStarted: _started,
    e.InputDeclined: _declined,
    e.TaskHeld: _held,
    e.EffectSettled: _settled,
    s.StepsSkipped: _skipped,
    s.StepQueued: _queued,
    s.StepBlocked: _blocked,
    s.StepStarted: _step_started,
    s.StepRunCreated: _created,
    s.StepLaunched: _launched,
    s.AttemptStarted: _attempt,
    s.LogKept: _log,
    s.RetryScheduled: _retry,
    s.StepEnded: _step_ended,
    s.StepExpired: _expired,
    s.GateDecided: _gate,
    s.SignalRecorded: _signal,
    s.EffectRecorded: _effect,
    s.Noted: _noted,
    s.Interrupted: _interrupted,
    s.TimeRanOut: _late,
    s.BlockEntered: _block,
    s.StoryEnded: _ended,
    s.Redriven: _redriven,
    s.RedriveAsked: _redrive_asked,
    s.RetryHastened: _hastened,
    s.ChildrenCleaned: _cleaned,
    s.ResourceFound: _found,
    s.CacheNoted: _cache,
    s.HelpWanted: _help,
    s.FanBegan: _fan,
    s.FanChildStarted: _fan_child,
    s.FanChildEnded: _fan_child_ended,
    e.CancelRequested: _cancel,
    e.ChildStarted: _child,
    e.ChildEnded: _child_ended,
    e.ChildrenDisowned: _disowned,
}
