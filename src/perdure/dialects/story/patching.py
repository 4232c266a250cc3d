"""Changes of a StoryRun as people make them to the resource, and what they ask of the run.

spec.cancelRequested: true                                        STY-049, STY-186
status.gates.<step>: {state, message?, updatedBy?}                STY-105
metadata.annotations: storyrun.bubustack.io/redrive-token         STY-183
                      storyrun.bubustack.io/redrive-from-step     STY-184
"""

from typing import Any

from perdure.dialects.story.labels import REDRIVE, REDRIVE_FROM
from perdure.kernel import inputs as i
from perdure.kernel import jsontext

CANCEL_REASON = "spec.cancelRequested was set"


def inputs_of(kind: str, patch: dict[str, Any]) -> list[i.Input]:
    """Raises ValueError for everything else."""
    if kind != "StoryRun":
        raise ValueError(f"a {kind} is written by the engine alone")
    told: list[i.Input] = []
    for part, value in patch.items():
        match part, value:
            case "spec", {"cancelRequested": True, **rest} if not rest:
                told.append(i.Cancel(CANCEL_REASON))
            case "spec", _:
                raise ValueError("spec is immutable, except that cancelRequested may be set to true")
            case "status", {"gates": dict(gates), **rest} if not rest and gates:
                told += [_decision(step, decision) for step, decision in gates.items()]
            case "status", _:
                raise ValueError("of the status only gates may be written")
            case "metadata", {"annotations": dict(notes), **rest} if not rest and notes:
                told += [_redrive(name, note) for name, note in notes.items()]
            case _:
                raise ValueError(f"{part} may not be changed so")
    return told


def _decision(step: str, decision: Any) -> i.Input:
    known = {"state", "message", "updatedBy", "updatedAt"}
    if not isinstance(decision, dict) or not set(decision) <= known:
        raise ValueError(f"a decision of gate {step!r} has the members {', '.join(sorted(known))}")
    said = {"step": step, "state": decision.get("state"), "message": decision.get("message") or ""}
    return i.Steer("gate", jsontext.encode({**said, "by": decision.get("updatedBy") or ""}))


def _redrive(name: str, note: Any) -> i.Input:
    if not isinstance(note, str) or not note.strip():
        raise ValueError(f"{name} must be a text")
    if name == REDRIVE:
        return i.Steer("redrive", jsontext.encode({"token": note}), f"redrive {note}")
    if name == REDRIVE_FROM:
        step, colon, token = note.partition(":")
        if not colon or not step or not token:
            raise ValueError(f"{REDRIVE_FROM} is written <step>:<token>, not {note!r}")
        return i.Steer("redrive", jsontext.encode({"step": step, "token": token}), f"redrive {note}")
    raise ValueError(f"the annotation {name!r} asks nothing of a run")
