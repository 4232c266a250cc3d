"""Signals, effects, decisions of operators, and checked waits."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import EVENTS_KEPT, Body, EffectRecord, Gate, SignalEvent, SignalsAndEffects
from perdure.kernel.events import Event
from perdure.kernel.json_values.values import NULL


def _signal(body: Body, event: s.SignalRecorded) -> None:
    reported = body.signals_and_effects.setdefault(event.step, SignalsAndEffects())
    reported.signal_seq = max(reported.signal_seq, event.seq)
    if event.value == NULL:
        reported.signals.pop(event.key, None)
    else:
        reported.signals[event.key] = event.value
    reported.signal_events.append(SignalEvent(event.seq, event.key, event.at, event.payload))
    if len(reported.signal_events) > EVENTS_KEPT:
        del reported.signal_events[0]
    for waiting in body.waits:
        body.stale[waiting] = None


def _effect(body: Body, event: s.EffectRecorded) -> None:
    reported = body.signals_and_effects.setdefault(event.step, SignalsAndEffects())
    reported.effect_seq = max(reported.effect_seq, event.seq)
    reported.effects.append(EffectRecord(event.seq, event.key, event.status, event.at, event.details))
    if len(reported.effects) > EVENTS_KEPT:
        reported.effects.remove(min(reported.effects, key=lambda record: record.seq))


def _gate(body: Body, event: s.GateDecided) -> None:
    body.gates[event.step] = Gate(event.state, event.message, event.at, event.by)
    if event.step in body.steps:
        body.enqueue(event.step)


def _wait_checked(body: Body, event: s.WaitChecked) -> None:
    body.stale.pop(event.step, None)
    body.agenda.pop(event.step, None)
    if event.poll:
        body.steps[event.step].poll = event.poll
        body.timers[event.poll] = event.step


def _noted(body: Body, event: s.Noted) -> None:
    run = body.steps[event.step].run if event.step in body.steps else None
    if event.kind == "JobRestarted" and run is not None:
        run.restarted_at = event.at


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    s.SignalRecorded: _signal,
    s.EffectRecorded: _effect,
    s.GateDecided: _gate,
    s.WaitChecked: _wait_checked,
    s.Noted: _noted,
}
