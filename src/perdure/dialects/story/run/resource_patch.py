"""Changes of a StoryRun as a resource, translated into inputs of the run (STY-049, STY-105, STY-183, STY-184,
STY-186).

spec.cancelRequested: true                      cancel; an ended run stays as it is (STY-188)
metadata.annotations redrive-token, …           start over, once per value
metadata.labels, metadata.annotations           recorded with the run, also after its end; null removes (SRV-074)
status.gates.<step>: {state, message}           decide a gate, reached or not
"""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.story.resources.labels import REDRIVE, REDRIVE_FROM
from perdure.dialects.story.state.body import METADATA, Body
from perdure.dialects.story.steps.gate import DECISIONS
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution
from perdure.kernel.ids import reserved_label
from perdure.kernel.json_values import jsontext

LARGEST_METADATA = 32 * 1024  # bytes: it is folded with every event of its run


def patched(execution: Execution, kind: str, patch: dict[str, Any]) -> list[i.Input]:
    if kind != "StoryRun":
        raise ValueError(f"a {kind} is managed by the engine; change its StoryRun")
    return list(_inputs(execution, patch))


def _inputs(execution: Execution, patch: dict[str, Any]) -> Iterator[i.Input]:
    for part, changes in patch.items():
        match part, changes:
            case "spec", {"cancelRequested": True, **more} if not more:
                if not execution.state.status.is_final:
                    yield i.Cancel("spec.cancelRequested was set")
            case "spec", _:
                raise ValueError("spec is immutable, except that cancelRequested may be set to true")
            case "metadata", dict() if changes.keys() <= {"labels", "annotations"}:
                yield from _metadata(execution, changes)
            case "status", {"gates": dict(gates), **more} if not more:
                for step, decision in gates.items():
                    yield _decision(step, decision)
            case "apiVersion" | "kind", _:
                pass
            case _:
                raise ValueError(
                    "only spec.cancelRequested, labels, annotations and status.gates of a StoryRun can change"
                )


def _metadata(execution: Execution, parts: dict[str, Any]) -> Iterator[i.Input]:
    kept: dict[str, dict[str, Any]] = {}
    for part, members in parts.items():
        if not isinstance(members, dict) or not all(isinstance(value, str | None) for value in members.values()):
            raise ValueError(f"metadata.{part} must be an object of strings")
        kept[part] = {name: value for name, value in members.items() if name not in (REDRIVE, REDRIVE_FROM)}
        if reserved := reserved_label(kept[part]):
            raise ValueError(f"metadata.{part}: {reserved!r} is reserved for the engine")
    if any(kept.values()):
        text = jsontext.encode({part: members for part, members in kept.items() if members})
        if len(text) > LARGEST_METADATA:
            raise ValueError(f"labels and annotations must have at most {LARGEST_METADATA} bytes")
        yield i.Steer(METADATA, text)
    for name, value in (parts.get("annotations") or {}).items():
        if name in (REDRIVE, REDRIVE_FROM) and value is not None:
            yield from _redrive(execution, name, value)


def _redrive(execution: Execution, name: str, value: Any) -> Iterator[i.Input]:
    if not isinstance(value, str) or not value:
        raise ValueError(f"the annotation {name!r} must be a non-empty string")
    step, colon, token = value.partition(":") if name == REDRIVE_FROM else ("", ":", value)
    if not (colon and token) or (name == REDRIVE_FROM and not step):
        raise ValueError(f"{name} must be <step>:<token>, not {value!r}")
    body: Body = execution.body
    if (step, token) in map(tuple, body.redriven):
        return  # already done for this value
    arguments = jsontext.encode({"step": step, "token": token})
    key = f"redrive:{execution.state.incarnation}:{value}"
    if execution.state.status.is_final:
        yield i.Reopen(arguments, key)
    else:
        yield i.Steer("redrive", arguments, key)


def _decision(step: str, decision: Any) -> i.Input:
    if not isinstance(decision, dict) or not set(decision) <= {"state", "message", "updatedBy", "updatedAt"}:
        raise ValueError(f"status.gates.{step} is {{state?, message?, updatedBy?}}")
    if decision.get("state") not in (None, *DECISIONS):
        raise ValueError(f"a gate's state is {', '.join(DECISIONS)}, not {decision['state']!r}")
    names = {"state": "state", "message": "message", "updatedBy": "by"}
    members = {names[name]: value for name, value in decision.items() if name in names}
    return i.Steer("gate", jsontext.encode({"step": step, **members}))
