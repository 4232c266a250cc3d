"""What steps report while they work: signals and performed effects (sections 9 and 10)."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, SignalsAndEffects
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import NULL
from perdure.kernel.secrets.secret_masking import cut
from perdure.kernel.turn import Turn

LARGEST = 8_192  # bytes of a signal's payload, or of an effect's details (STY-165, STY-175)
LONGEST_SAMPLE = 2_048
LONGEST_KEY = 256

_KINDS = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


def summary(value: Any, text: bytes, **more: Any) -> dict[str, Any]:
    """The summary of a value that is not stored itself (STY-174)."""
    facts: dict[str, Any] = {
        "sizeBytes": len(text),
        "sha256": sha256(text).hexdigest(),
        "type": _KINDS.get(type(value), "null"),
        **more,
    }
    if isinstance(value, str | list | dict):
        facts["details"] = {"len": len(value)}
    return facts


def signal(turn: Turn, step: str, key: str, value: Any, seq: int = 0) -> None:
    """Record a signal of a step (STY-173 to STY-176)."""
    body: Body = turn.body
    program: Program = turn.program
    reported = body.signals_and_effects.get(step) or SignalsAndEffects()
    if seq and any(event.seq == seq for event in reported.signal_events):
        return  # reported before
    text = jsontext.encode(value)
    if value is None:
        stored: Any = None
    elif not program.settings.stores_signal_values and not _is_envelope(value):
        stored = summary(value, text, redacted=True)
    elif len(text) <= LARGEST:
        stored = value
    else:
        stored = summary(value, text, truncated=True)
        if isinstance(value, str):
            stored["sample"] = cut(value, LONGEST_SAMPLE)
    payload = jsontext.encode(stored)
    number = seq or reported.signal_seq + 1
    turn.emit(s.SignalRecorded(step, number, key, NULL if value is None else payload, payload, turn.now))


def _is_envelope(value: Any) -> bool:
    """Whether the value is an explicit summary that the Engram made itself."""
    return isinstance(value, dict) and isinstance(value.get("meta"), dict) and set(value) <= {"meta", "sample"}


def effect(turn: Turn, step: str, key: str, status: str, details: Any, seq: int = 0) -> None:
    """Record a performed effect of a step (STY-164, STY-165)."""
    body: Body = turn.body
    reported = body.signals_and_effects.get(step) or SignalsAndEffects()
    if seq and any(record.seq == seq for record in reported.effects):
        return
    if not seq and any(record.key == key for record in reported.effects):
        return
    text = jsontext.encode(details)
    if len(text) > LARGEST:
        text = jsontext.encode(summary(details, text, truncated=True))
    turn.emit(s.EffectRecorded(step, seq or reported.effect_seq + 1, key, status, text, turn.now))


def performed(turn: Turn, result: i.EffectDone | i.EffectUnfit) -> None:
    """Record an effect that was claimed and completed. The kernel has the lock; this mirrors it (STY-167, STY-169)."""
    topology = turn.body.topology
    key = result.key.strip()
    if topology is not None and topology.task == result.task:
        step, _, key = key.partition("/")  # a worker of a topology names its step first
    else:
        step = turn.body.tasks.get(result.task)
    if step is not None and turn.events:
        details = (
            unfit(result.reason) if isinstance(result, i.EffectUnfit) else jsontext.decode(turn.text(result.result))
        )
        effect(turn, step, key, "succeeded", details)


def unfit(reason: str) -> dict[str, str]:
    """The details of a result that is not valid JSON (STY-282)."""
    return {"unfit": reason}


def settled(turn: Turn, decision: i.EffectSettle) -> None:
    """Record an effect in doubt that an operator confirmed; it is listed like any other."""
    step, _, key = decision.effect.partition("#")
    if decision.result is not None and turn.events and step in turn.program.steps:
        effect(turn, step, key.strip(), "succeeded", jsontext.decode(turn.text(decision.result)))


def report(turn: Turn, task_report: i.TaskReport) -> None:
    """Handle a report of the worker, in the form of `engram_contract`."""
    body: Body = turn.body
    step = body.tasks.get(task_report.task)
    if body.topology is not None and body.topology.task == task_report.task:
        _topology_report(turn, jsontext.decode(turn.text(task_report.body)))
        return
    content = jsontext.decode(turn.text(task_report.body))
    answer: Any = None
    if step is None or not isinstance(content, dict):
        turn.answer = i.Accepted(NULL)
        return
    if isinstance(part := content.get("signal"), dict) and (key := _key(part)):
        signal(turn, step, key, part.get("value"), _seq(part))
    elif isinstance(part := content.get("effect"), dict) and (key := _key(part)):
        effect(turn, step, key, str(part.get("status") or "succeeded"), part.get("details"), _seq(part))
    elif isinstance(part := content.get("log"), list) and part:
        run = body.steps[step].run
        turn.emit(s.LogKept(step, 0 if run is None else run.attempt, len(part), task_report.body, turn.now))
    elif isinstance(part := content.get("replaySignals"), dict):
        answer = replay(turn, str(part.get("step") or step), _seq(part, "sinceSeq"))
    turn.answer = i.Accepted(jsontext.encode(answer))


def _topology_report(turn: Turn, content: Any) -> None:
    """A report of a topology: about itself, or about one of its steps, in the form that batch steps have."""
    from perdure.dialects.story.run import topology

    answer: Any = None
    step = content.get("step")
    if isinstance(part := content.get("stream"), dict):
        answer = topology.report(turn, part)
    elif isinstance(part := content.get("signal"), dict) and step and (key := _key(part)):
        signal(turn, step, key, part.get("value"))
    elif isinstance(part := content.get("effect"), dict) and step and (key := _key(part)):
        effect(turn, step, key, str(part.get("status") or "succeeded"), part.get("details"))
    elif isinstance(part := content.get("log"), list) and part and step:
        kept = {name: content[name] for name in ("log", "dropped") if name in content}
        turn.emit(s.LogKept(step, 1, len(part), turn.keep(jsontext.encode(kept)), turn.now))
    elif isinstance(part := content.get("replaySignals"), dict) and part.get("step"):
        answer = replay(turn, str(part["step"]), _seq(part, "sinceSeq"))
    turn.answer = i.Accepted(jsontext.encode(answer))


def _key(part: Mapping[str, Any]) -> str:
    key = part.get("key")
    return key.strip()[:LONGEST_KEY] if isinstance(key, str) else ""


def _seq(part: Mapping[str, Any], name: str = "seq") -> int:
    seq = part.get(name)
    return seq if isinstance(seq, int) and not isinstance(seq, bool) and seq > 0 else 0


def replay(turn: Turn, step: str, since: int) -> dict[str, Any]:
    """Signals after a number, and the first number still retained, so that a gap can be detected (STY-178)."""
    body: Body = turn.body
    names = {step_run_name(body, name): name for name in body.signals_and_effects}
    events = shown_signals(body.signals_and_effects.get(names.get(step, step)) or SignalsAndEffects())
    return {
        "events": [event for event in events if event["seq"] > since],
        "firstRetainedSeq": events[0]["seq"] if events else 0,
    }


def shown_signals(reported: SignalsAndEffects) -> list[dict[str, Any]]:
    """The retained signals, ordered by number."""
    return [
        {
            "seq": event.seq,
            "key": event.key,
            "emittedAt": timestamp(event.at),
            "payload": jsontext.decode(event.payload),
        }
        for event in sorted(reported.signal_events, key=lambda event: event.seq)
    ]


def from_outside(turn: Turn, message: i.Signal) -> None:
    """Record a signal: from the task that emits it, or named `<step>.<key>` from anyone else."""
    value = jsontext.decode(turn.text(message.value))
    step = step_of_task(turn.program, message.by)
    if step is None:
        step, _, key = message.name.partition(".")
        if key == "packet" and turn.program.streams("steps"):
            from perdure.dialects.story.run import topology

            topology.deliver(turn, step, value)
            return
    else:
        key = message.name
    signal(turn, step, key.strip()[:LONGEST_KEY], value)


def step_of_task(program: Program, by: str) -> str | None:
    name = by.removeprefix("task ")
    return name if by.startswith("task ") and name in program.steps else None
