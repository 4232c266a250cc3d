"""The history of a run in Story's event names (STY-264), computed from what the kernel recorded.

Every phase change of the run and its steps, every decision, retry, signal, effect and redrive, with actor and time;
in addition the original's diagnostic events with their own names (STY-261). Where an entry of ours tells the same, the
name is its `reason`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.dialects.story.resources.timestamps import fine_timestamp
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state import stream_events
from perdure.dialects.story.state.body import METADATA
from perdure.kernel import events as e
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded

HistoryEntry = tuple[str, dict[str, Any]]
"""An event's name and its payload."""

ENGINE = "engine"


def history(run: str, turns: Iterable[tuple[Instant, list[e.Event]]]) -> Iterator[dict[str, Any]]:
    tell = history_teller(run)
    for at, recorded in turns:
        for event in recorded:
            yield from tell(at, event)


def history_teller(run: str) -> Callable[[Instant, e.Event], Iterator[dict[str, Any]]]:
    describe = describer()

    def tell(at: Instant, event: e.Event) -> Iterator[dict[str, Any]]:
        first, entries = describe(event)
        for seq, (name, payload) in enumerate(entries, first):
            step = payload.pop("step", None)
            actor = payload.pop("actor", None) or ENGINE
            item: dict[str, Any] = {"seq": seq, "event_type": name, "timestamp": fine_timestamp(at), "actor": actor}
            if step:
                item["step"] = step
            yield {**item, "payload": payload}

    return tell


def describer() -> Callable[[e.Event], tuple[int, list[HistoryEntry]]]:
    """For one event after the other: the number of its first entry, and its entries."""
    first = 1
    paths: dict[int, str] = {}  # the step of each task

    def describe(event: e.Event) -> tuple[int, list[HistoryEntry]]:
        nonlocal first
        if isinstance(event, e.TaskScheduled):
            paths[event.task] = event.path
        entries = list(_describe(event, paths))
        first += len(entries)
        return first - len(entries), entries

    return describe


def _describe(event: e.Event, paths: dict[int, str]) -> Iterator[HistoryEntry]:
    if isinstance(event, e.TaskEnded):
        payload = {"step": paths.get(event.task, ""), "task": event.task, **_outcome(event.outcome)}
        yield "execution.ended", {**payload, "reason": "JobCompleted"} if payload["outcome"] == "succeeded" else payload
    elif isinstance(event, e.TaskRedelivered):
        payload = {"step": paths.get(event.task, ""), "task": event.task, "delivery": event.delivery}
        yield "execution.restarted", {**payload, "reason": event.reason}
    elif isinstance(event, e.TaskCancelRequested):
        yield "execution.cancelRequested", {"step": paths.get(event.task, ""), "reason": event.reason}
    else:
        describe = _DESCRIBERS.get(type(event))
        if describe is not None:
            yield from describe(event)


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


def _started(event: s.StoryStarted) -> Iterator[HistoryEntry]:
    name = {"name": event.name, "namespace": event.namespace}
    yield "storyrun.created", {**name, "inputs": _value(event.inputs)}
    if not event.is_refused:
        yield "storyrun.phase", {"phase": "Running", "reason": "StartingExecution"}


def _skipped(event: s.StepsSkipped) -> Iterator[HistoryEntry]:
    for step in event.steps:
        yield "step.phase", {"step": step, "phase": "Skipped", "reason": "Skipped", "message": event.message}


def _queued(event: s.StepQueued) -> Iterator[HistoryEntry]:
    yield "step.phase", {"step": event.step, "phase": "Pending", "reason": "Pending", "message": event.message}


def _blocked(event: s.StepBlocked) -> Iterator[HistoryEntry]:
    yield "step.phase", {"step": event.step, "phase": "Blocked", "reason": event.reason, "message": event.message}


def _step_started(event: s.StepStarted) -> Iterator[HistoryEntry]:
    payload: dict[str, Any] = {"step": event.step, "phase": event.phase, "message": event.message}
    if event.due is not None:
        payload["due"] = fine_timestamp(event.due)
    if event.sub_run:
        payload["subStoryRunName"] = event.sub_run
    yield "step.phase", payload


def _created(event: s.StepRunCreated | s.StepLaunched) -> Iterator[HistoryEntry]:
    payload = {"step": event.step, "idempotencyKey": event.key, "engram": event.engram, "template": event.template}
    yield "steprun.created", {**payload, "reason": "ChildStepRunCreated"}
    yield "step.phase", {"step": event.step, "phase": "Pending", "reason": "Pending"}


def _launched(event: s.StepLaunched) -> Iterator[HistoryEntry]:
    yield from _created(event)
    yield from _attempt(event)


def _attempt(event: s.AttemptStarted | s.StepLaunched) -> Iterator[HistoryEntry]:
    yield "step.phase", {"step": event.step, "phase": "Running", "reason": "Running", "task": event.task}


def _log(event: s.LogKept) -> Iterator[HistoryEntry]:
    report = _value(event.body)
    payload = {"step": event.step, "attempt": event.attempt, "lines": event.lines}
    yield "step.logged", {**payload, "log": report.get("log", report)}


def _retry(event: s.RetryScheduled) -> Iterator[HistoryEntry]:
    payload = {"step": event.step, "phase": "Pending", "reason": "RetryScheduled", "message": event.message}
    yield (
        "step.phase",
        {**payload, "failure": event.failure, "exitClass": event.exit_class, "due": fine_timestamp(event.due)},
    )
    yield "JobRetryScheduled", {"step": event.step, "message": event.message, "retries": event.retries}


def _step_ended(event: s.StepEnded) -> Iterator[HistoryEntry]:
    payload: dict[str, Any] = {"step": event.step, "phase": event.phase, "reason": event.reason}
    payload["message"] = event.message
    if event.source == "given":
        payload["output"] = _value(event.output)
    if event.error is not None:
        payload["error"] = jsontext.decode(event.error)
    yield "step.phase", payload


def _expired(event: s.StepExpired) -> Iterator[HistoryEntry]:
    yield "step.expired", {"step": event.step}


def _gate(event: s.GateDecided) -> Iterator[HistoryEntry]:
    payload = {"step": event.step, "actor": event.by, "state": event.state, "message": event.message}
    yield "gate.decided", payload


def _signal(event: s.SignalRecorded) -> Iterator[HistoryEntry]:
    payload = {"step": event.step, "number": event.seq, "key": event.key, "payload": jsontext.decode(event.payload)}
    yield "signal.emitted", payload


def _effect(event: s.EffectRecorded) -> Iterator[HistoryEntry]:
    payload = {"step": event.step, "number": event.seq, "key": event.key, "status": event.status}
    yield "effect.recorded", {**payload, "details": jsontext.decode(event.details)}


def _noted(event: s.Noted) -> Iterator[HistoryEntry]:
    yield event.kind, {"step": event.step, "message": event.message}


def _interrupted(event: s.Interrupted) -> Iterator[HistoryEntry]:
    yield "storyrun.interrupted", {"step": event.step, "cause": event.cause, "message": event.message}


def _late(event: s.TimeRanOut) -> Iterator[HistoryEntry]:
    yield "storyrun.timeout", {}


def _block(event: s.BlockEntered) -> Iterator[HistoryEntry]:
    yield "storyrun.block", {"block": event.block}


def _ended(event: s.StoryEnded) -> Iterator[HistoryEntry]:
    payload: dict[str, Any] = {"phase": event.phase, "reason": event.reason, "message": event.message}
    if event.output is not None:
        payload["output"] = _value(event.output)
    if event.error is not None:
        payload["error"] = jsontext.decode(event.error)
    yield "storyrun.phase", payload


def _redriven(event: s.Redriven) -> Iterator[HistoryEntry]:
    payload = {"from": event.step or None, "token": event.token, "reset": list(event.steps), "actor": event.by}
    yield "storyrun.redriven", payload
    if event.step:
        yield "storyrun.phase", {"phase": "Running", "reason": "StartingExecution"}


def _cleaned(event: s.ChildrenCleaned) -> Iterator[HistoryEntry]:
    yield "storyrun.childrenCleaned", {}


def _redrive_asked(event: s.RedriveAsked) -> Iterator[HistoryEntry]:
    yield "storyrun.redriveRequested", {"from": event.step or None, "token": event.token, "actor": event.by}


def _hastened(event: s.RetryHastened) -> Iterator[HistoryEntry]:
    yield "step.retryRequested", {"step": event.step, "actor": event.by}


def _found(event: s.ResourceFound) -> Iterator[HistoryEntry]:
    yield "resource.found", {"kind": event.kind, "namespace": event.namespace, "name": event.name}


def _cache(event: s.CacheNoted) -> Iterator[HistoryEntry]:
    yield "cache." + event.status, {"step": event.step, "entry": event.entry, "mode": event.mode}


def _cancel(event: e.CancelRequested) -> Iterator[HistoryEntry]:
    yield "storyrun.cancelRequested", {"reason": event.reason, "actor": event.by}


def _declined(event: e.InputDeclined) -> Iterator[HistoryEntry]:
    payload = {"kind": event.kind, "key": event.key, "arrived": fine_timestamp(event.arrived), "reason": event.reason}
    yield "input.declined", {**payload, "actor": event.by}


def _migrated(event: e.RunMigrated) -> Iterator[HistoryEntry]:
    payload = {"document": event.program.hex(), "before": event.before.hex(), "mapping": event.mapping}
    yield "storyrun.migrated", {**payload, "undoes": event.undoes, "actor": event.by}


def _held(event: e.TaskHeld) -> Iterator[HistoryEntry]:
    step, _, key = event.effect.partition("#")
    yield "step.held", {"step": step, "key": key}


def _settled(event: e.EffectSettled) -> Iterator[HistoryEntry]:
    step, _, key = event.effect.partition("#")
    yield "effect.settled", {"step": step, "key": key, "done": event.result is not None, "actor": event.by}


def _help(event: s.HelpWanted) -> Iterator[HistoryEntry]:
    payload: dict[str, Any] = {"step": event.target, "purpose": event.purpose, "materialize": event.step}
    yield "step.offloadedData", {**payload, "message": event.message}


def _fan(event: s.FanBegan) -> Iterator[HistoryEntry]:
    yield "step.phase", {"step": event.step, "phase": "Running", "reason": "Running", "items": event.total}


def _fan_child(event: s.FanChildStarted) -> Iterator[HistoryEntry]:
    yield "map.itemStarted", {"step": event.step, "index": event.index, "storyRun": event.sub_run}


def _fan_child_ended(event: s.FanChildEnded) -> Iterator[HistoryEntry]:
    payload = {"step": event.step, "index": event.index, "phase": event.phase, "message": event.message}
    yield "map.itemEnded", payload


def _child(event: e.ChildStarted) -> Iterator[HistoryEntry]:
    yield "storyrun.childStarted", {"story": event.name, "awaited": event.awaited, "child": event.child}


def _disowned(event: e.ChildrenDisowned) -> Iterator[HistoryEntry]:
    yield "storyrun.childrenDeleted", {"children": event.children}


def _child_ended(event: e.ChildEnded) -> Iterator[HistoryEntry]:
    yield "storyrun.childEnded", {"child": event.child, **_outcome(event.outcome)}


def _paused(event: e.RunPaused) -> Iterator[HistoryEntry]:
    yield "storyrun.paused", {"actor": event.by, "reason": event.reason}


def _unpaused(event: e.RunUnpaused) -> Iterator[HistoryEntry]:
    yield "storyrun.unpaused", {"actor": event.by, "reason": event.reason}


def _topology(event: stream_events.TopologyStarted) -> Iterator[HistoryEntry]:
    yield "topology.started", {"task": event.task}


def _stream(event: stream_events.StreamChanged) -> Iterator[HistoryEntry]:
    phase = "Running" if event.state == "ready" else "Paused"
    yield "stream.state", {"step": event.step, "state": event.state, "phase": phase, "message": event.message}


def _hook(event: stream_events.HookSent) -> Iterator[HistoryEntry]:
    about = {"step": event.step} if event.step else {}
    yield "stream.hook", {**about, "hook": event.hook, "targets": list(event.targets)}


def _stream_numbers(event: stream_events.StreamReported) -> Iterator[HistoryEntry]:
    yield "stream.closed", {"step": event.step, "stream": jsontext.decode(event.body)}


def _packet_run(event: stream_events.PacketRunStarted) -> Iterator[HistoryEntry]:
    yield "SubStoryRunCreated", {"step": event.step, "packet": event.key, "message": event.sub_run}


def _metadata(event: e.Steered) -> Iterator[HistoryEntry]:
    if event.verb == METADATA:
        yield "storyrun.metadata", {"actor": event.by, **_value(event.body)}


_DESCRIBERS: dict[type[e.Event], Callable[[Any], Iterator[HistoryEntry]]] = {
    s.StoryStarted: _started,
    e.InputDeclined: _declined,
    e.TaskHeld: _held,
    e.RunMigrated: _migrated,
    e.RunPaused: _paused,
    e.RunUnpaused: _unpaused,
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
    stream_events.TopologyStarted: _topology,
    stream_events.StreamChanged: _stream,
    stream_events.HookSent: _hook,
    stream_events.StreamReported: _stream_numbers,
    stream_events.PacketRunStarted: _packet_run,
    e.CancelRequested: _cancel,
    e.Steered: _metadata,
    e.ChildStarted: _child,
    e.ChildEnded: _child_ended,
    e.ChildrenDisowned: _disowned,
}
