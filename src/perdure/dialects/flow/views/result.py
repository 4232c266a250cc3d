"""A run as data: its Result exactly as the language defines it, or its progress while it has none."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.flow.plan.instants import write_timestamp
from perdure.dialects.flow.state.body import Body, Call, Frame, MiddlewareScope, Step
from perdure.dialects.flow.state.failure_chains import FailureChain, join_links
from perdure.dialects.flow.state.values import Cell, GrowingValue
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Cancelled, Failed
from perdure.kernel.turn import MissingValues

SHOWN = 100
"""Frames of a live run that are shown; a wide Gather has thousands that look alike."""


def show(execution: Execution, texts: Mapping[bytes, bytes]) -> Any:
    body: Body = execution.body
    if body.result is not None:
        content = _read(body.result.cell, texts)
        return {"type": "success", "value": content} if body.result.ok else content
    state = execution.state
    match state.outcome:
        case Cancelled(reason):
            return {"type": "cancellation", "code": "System.Cancelled", "message": reason}
        case Failed(code, message):
            return {"type": "error", "code": code, "message": message}
        case _:
            pass
    frames = list(body.frames.items())[:SHOWN]
    return {
        "type": state.activity.value,
        "frames": [_frame(number, frame) for number, frame in frames],
        "further_frames": len(body.frames) - len(frames),
        "open": {
            "tasks": {str(number): task.provider for number, task in list(state.tasks.items())[:SHOWN]},
            "timers": {str(number): write_timestamp(timer.due) for number, timer in list(state.timers.items())[:SHOWN]},
            "children": [execution.child_id(number) for number in list(state.children)[:SHOWN]],
        },
    }


def _frame(number: int, frame: Frame) -> dict[str, Any]:
    record: dict[str, Any] = {"frame": number, "flow": frame.flow or "/", "enteredAt": write_timestamp(frame.at)}
    if frame.owner >= 0:
        record["calledBy"] = frame.owner
    if frame.interrupted is not None:
        record["interrupted"] = True
    record["inside"] = [_scope(scope) for scope in frame.stack]
    return record


def _scope(scope: Step | MiddlewareScope | Call) -> str:
    match scope:
        case Step(name=name, fan=fan) if fan is not None:
            return f"Step {name}: {fan.resolved} of {fan.total} dispatches resolved"
        case Step(name=name):
            return f"Step {name}"
        case MiddlewareScope(site=site, position=position):
            return f"middleware {site}: {position.name.lower()}"
        case Call(site=site):
            return f"call {site}"


def _read(cell: Cell, texts: Mapping[bytes, bytes]) -> Any:
    if isinstance(cell, GrowingValue):
        return jsontext.decode(cell.text(lambda pieces: _texts(pieces, texts)))
    if isinstance(cell, FailureChain):
        return join_links([*map(jsontext.decode, _texts([link.payload for link in cell.links], texts))], cell.is_cut)
    payload = cell.payload
    if isinstance(payload, bytes):
        return jsontext.decode(payload)
    text = texts.get(payload.digest)
    if text is None:
        raise MissingValues((payload.digest,))
    return jsontext.decode(text)


def _texts(pieces: list[Payload], texts: Mapping[bytes, bytes]) -> list[bytes]:
    missing = [piece.digest for piece in pieces if not isinstance(piece, bytes) and piece.digest not in texts]
    if missing:
        raise MissingValues(tuple(missing))
    return [piece if isinstance(piece, bytes) else texts[piece.digest] for piece in pieces]
