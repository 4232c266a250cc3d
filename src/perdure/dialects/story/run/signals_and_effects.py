"""What steps say while they work: signals, and effects that were performed (sections 9 and 10)."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, SignalsAndEffects
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.secret_masking import cut
from perdure.kernel.turn import Turn
from perdure.kernel.values import NULL

LARGEST = 8_192  # bytes of a signal's payload, or of an effect's details (STY-165, STY-175)
LONGEST_SAMPLE = 2_048
LONGEST_KEY = 256

_KINDS = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


def summary(value: Any, text: bytes, **more: Any) -> dict[str, Any]:
    """What is told of a value that is not kept itself (STY-174)."""
    found: dict[str, Any] = {
        "sizeBytes": len(text),
        "sha256": sha256(text).hexdigest(),
        "type": _KINDS.get(type(value), "null"),
        **more,
    }
    if isinstance(value, str | list | dict):
        found["details"] = {"len": len(value)}
    return found


def signal(turn: Turn, step: str, key: str, value: Any, seq: int = 0) -> None:
    """STY-173 to STY-176."""
    body: Body = turn.body
    program: Program = turn.program
    told = body.told.get(step) or SignalsAndEffects()
    if seq and any(event.seq == seq for event in told.signal_events):
        return  # told before
    text = jsontext.encode(value)
    if value is None:
        kept: Any = None
    elif not program.settings.stores_signal_values and not _is_envelope(value):
        kept = summary(value, text, redacted=True)
    elif len(text) <= LARGEST:
        kept = value
    else:
        kept = summary(value, text, truncated=True)
        if isinstance(value, str):
            kept["sample"] = cut(value, LONGEST_SAMPLE)
    shown = jsontext.encode(kept)
    number = seq or told.signal_seq + 1
    turn.emit(s.SignalRecorded(step, number, key, NULL if value is None else shown, shown, turn.now))


def _is_envelope(value: Any) -> bool:
    """An explicit summary of what is meant, made by the Engram itself."""
    return isinstance(value, dict) and isinstance(value.get("meta"), dict) and set(value) <= {"meta", "sample"}


def effect(turn: Turn, step: str, key: str, status: str, details: Any, seq: int = 0) -> None:
    """STY-164, STY-165."""
    body: Body = turn.body
    told = body.told.get(step) or SignalsAndEffects()
    if seq and any(one.seq == seq for one in told.effects):
        return
    if not seq and any(one.key == key for one in told.effects):
        return
    text = jsontext.encode(details)
    if len(text) > LARGEST:
        text = jsontext.encode(summary(details, text, truncated=True))
    turn.emit(s.EffectRecorded(step, seq or told.effect_seq + 1, key, status, text, turn.now))


def performed(turn: Turn, given: i.EffectDone | i.EffectUnfit) -> None:
    """An effect that was claimed and completed: the kernel holds the lock, this is its mirror (STY-167, STY-169)."""
    step = turn.body.tasks.get(given.task)
    if step is not None and turn.events:
        details = unfit(given.reason) if isinstance(given, i.EffectUnfit) else jsontext.decode(turn.text(given.result))
        effect(turn, step, given.key.strip(), "succeeded", details)


def unfit(reason: str) -> dict[str, str]:
    """What is told of a result that has no JSON form (STY-282)."""
    return {"unfit": reason}


def settled(turn: Turn, given: i.EffectSettle) -> None:
    """An operator has said that an effect in doubt was performed: it stands in the ledger like any other."""
    step, _, key = given.effect.partition("#")
    if given.result is not None and turn.events and step in turn.program.steps:
        effect(turn, step, key.strip(), "succeeded", jsontext.decode(turn.text(given.result)))


def report(turn: Turn, given: i.TaskReport) -> None:
    """A word of the worker, in the form of `engram_contract`."""
    body: Body = turn.body
    step = body.tasks.get(given.task)
    said = jsontext.decode(turn.text(given.body))
    answer: Any = None
    if step is None or not isinstance(said, dict):
        turn.answer = i.Accepted(NULL)
        return
    if isinstance(told := said.get("signal"), dict) and (key := _key(told)):
        signal(turn, step, key, told.get("value"), _seq(told))
    elif isinstance(told := said.get("effect"), dict) and (key := _key(told)):
        effect(turn, step, key, str(told.get("status") or "succeeded"), told.get("details"), _seq(told))
    elif isinstance(told := said.get("log"), list) and told:
        run = body.steps[step].run
        turn.emit(s.LogKept(step, 0 if run is None else run.attempt, len(told), given.body, turn.now))
    elif isinstance(told := said.get("replaySignals"), dict):
        answer = replay(turn, str(told.get("step") or step), told.get("sinceSeq") or 0)
    turn.answer = i.Accepted(jsontext.encode(answer))


def _key(told: Mapping[str, Any]) -> str:
    key = told.get("key")
    return key.strip()[:LONGEST_KEY] if isinstance(key, str) else ""


def _seq(told: Mapping[str, Any]) -> int:
    seq = told.get("seq")
    return seq if isinstance(seq, int) and not isinstance(seq, bool) and seq > 0 else 0


def replay(turn: Turn, wanted: str, since: int) -> dict[str, Any]:
    """Signals after a number, and where the retained ones begin, so that a gap can be seen (STY-178)."""
    body: Body = turn.body
    names = {step_run_name(body, name): name for name in body.told}
    events = shown_signals(body.told.get(names.get(wanted, wanted)) or SignalsAndEffects())
    return {
        "events": [event for event in events if event["seq"] > since],
        "firstRetainedSeq": events[0]["seq"] if events else 0,
    }


def shown_signals(told: SignalsAndEffects) -> list[dict[str, Any]]:
    """In order of their numbers."""
    return [
        {"seq": one.seq, "key": one.key, "emittedAt": timestamp(one.at), "payload": jsontext.decode(one.payload)}
        for one in sorted(told.signal_events, key=lambda one: one.seq)
    ]


def from_outside(turn: Turn, given: i.Signal) -> None:
    """A signal by name: of the task that emits it, or `<step>.<key>` from anybody else."""
    value = jsontext.decode(turn.text(given.value))
    step = step_of_task(turn.program, given.by)
    if step is None:
        step, _, key = given.name.partition(".")
    else:
        key = given.name
    signal(turn, step, key.strip()[:LONGEST_KEY], value)


def step_of_task(program: Program, by: str) -> str | None:
    name = by.removeprefix("task ")
    return name if by.startswith("task ") and name in program.steps else None
