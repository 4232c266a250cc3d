"""The roots that expressions read: `step`, `call`, `middleware` and the others, as plain data (section 5 of MWL).

Exactly the members that the language lists; a member that is not available at a site is absent.
"""

from typing import TYPE_CHECKING, Any

from perdure.dialects.flow.plan.instants import write_timestamp
from perdure.dialects.flow.state.body import SINGLE, Call, FanOut, Frame, Kind, MiddlewareScope, Step
from perdure.dialects.flow.state.failures import SKIPPED
from perdure.dialects.flow.state.values import Result
from perdure.kernel.json_values.large_values import check_size
from perdure.kernel.json_values.values import Instant
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.flow.steps.protocol import Action

Record = dict[str, Any]


def execution_record(turn: Turn) -> Record:
    entered = write_timestamp(turn.state.started_at)
    return {"id": turn.execution.id, "metadata": {"enteredAt": entered}, "platform": {}}


def frame_record(turn: Turn, frame: Frame) -> Record:
    return {"input": frame.input.read(turn), "metadata": {"enteredAt": write_timestamp(frame.at)}}


def step_record(
    turn: Turn, step: Step, action: "Action", exited: Instant | None = None, result: Result | None = None
) -> Record:
    """`exited` is set from the Step's tail on; only then are its Results available."""
    metadata: Record = {"enteredAt": write_timestamp(step.at)}
    if exited is not None:
        metadata["exitedAt"] = write_timestamp(exited)
    if step.fan is not None:
        metadata["dispatchCount"] = step.fan.total
    record: Record = {
        "name": step.name,
        "id": f"{turn.execution.id}/{step.number}",
        "action": action.name,
        "input": step.input.read(turn),
        "metadata": metadata,
    }
    return record if exited is None else record | action.show_results(turn, step, result)


def results_of(turn: Turn, fan: FanOut) -> list[Any]:
    """One Result per dispatch, in dispatch order (MWL-326)."""
    check_size(sum(call.result.cell.size for call in fan.calls.values() if call.result is not None))
    results = []
    for index in range(fan.total):
        call = fan.calls.get(index)
        results.append(SKIPPED if call is None or call.result is None else call.result.read(turn))
    return results


def match_record(turn: Turn, step: Step, exited: Instant | None = None) -> Record:
    metadata = {"enteredAt": write_timestamp(step.at)}
    if exited is not None:
        metadata["exitedAt"] = write_timestamp(exited)
    return {"input": (step.shaped or step.input).read(turn), "metadata": metadata}


def entry_record(turn: Turn, entry: MiddlewareScope, at: Instant, result: Result | None = None) -> Record:
    metadata = entry.metadata.read(turn) or {}
    record = {"input": entry.input.read(turn), "metadata": {**metadata, "enteredAt": write_timestamp(at)}}
    if result is not None:
        record["result"] = result.read(turn)
    return record


def call_record(received: Any, index: int, at: Instant) -> Record:
    record = {"input": received, "metadata": {"enteredAt": write_timestamp(at)}}
    if index != SINGLE:
        record["index"] = index
    return record


def settled_call_record(turn: Turn, frame: Frame, call: Call) -> Record:
    assert call.result is not None and call.accepted is not None
    record = call_record(received_by(turn, frame, call), call.index, call.at)
    accepted = write_timestamp(call.accepted)
    record["metadata"] |= {"dispatchedAt": write_timestamp(call.at), "acceptedAt": accepted, "exitedAt": accepted}
    record["result"] = call.result.read(turn)
    return record


def window_record(turn: Turn, frame: Frame, call: Call) -> Record:
    """The `flow` or `provider` window of a settled call (MWL-157, MWL-158)."""
    assert call.result is not None
    result = call.result.read(turn)
    if call.kind is Kind.FRAME:
        window = call.window
        assert window is not None
        metadata = {"enteredAt": write_timestamp(window.at), "exitedAt": write_timestamp(window.exited)}
        vars = window.vars.read(turn)
        return {"input": window.input.read(turn), "result": result, "vars": vars, "metadata": metadata}
    input = received_by(turn, frame, call) if call.given is None else call.given.read(turn)
    metadata = {} if call.metadata is None else call.metadata.read(turn)
    return {"input": input, "result": result, "metadata": metadata}


def received_by(turn: Turn, frame: Frame, call: Call) -> Any:
    if call.received is not None:
        return call.received.read(turn)
    return element(turn, frame, call.index)


def element(turn: Turn, frame: Frame, index: int) -> Any:
    """What dispatch `index` receives: an element of the collection, or what the Step received."""
    step = frame.step
    assert step is not None and step.fan is not None
    if step.fan.elements is None:
        return step.input.read(turn)
    return step.fan.elements.element(turn, index)
