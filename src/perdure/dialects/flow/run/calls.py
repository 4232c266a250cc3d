"""Call executions: a call object is evaluated, its target started, its Result handled by one arm (section 8 of MWL).

entered ──▶ target started ──▶ settled ──▶ arm ──▶ left          a fault before the target: no arm
                 └── interrupted ──▶ settled ──▶ dropped          no arm either
"""

from typing import Any

from perdure.dialects.flow.plan.instants import clamp
from perdure.dialects.flow.plan.program import Flow
from perdure.dialects.flow.plan.program import PlannedCall as CallProgram
from perdure.dialects.flow.plan.program import Step as StepProgram
from perdure.dialects.flow.run import subrun
from perdure.dialects.flow.run.expression_roots import call_record, element, settled_call_record, window_record
from perdure.dialects.flow.run.interruption import boundary_of
from perdure.dialects.flow.run.mock import MockResult, mock_result
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import SINGLE, Call, Kind, Step, find_call
from perdure.dialects.flow.state.events import Bindings
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.flow.state.values import ARRIVAL, RISING, Carried, Result
from perdure.kernel.documents import subruns
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import NULL, SECOND, Instant, Payload
from perdure.kernel.outcomes import Outcome, Status, Succeeded
from perdure.kernel.secrets.sealed_arguments import seal_by_place

_TASK = Kind.TASK  # looking up a member of an enumeration is slow, and every step needs it

# The tail of a Step that succeeded: its output, and the variables it binds.


def evaluate_tail(move: Move, step: Step, program: StepProgram, result: Result) -> tuple[Carried | None, Bindings]:
    """`output` and `assign` of a Call, evaluated with its Result in scope; raises their `Fault`."""
    if program.output is None and not program.assign:
        return RISING, {}
    scope = move.step_scope(step, move.now, result)
    output = RISING if program.output is None else scope.evaluate_to_carry(program.output)
    return output, scope.bindings(program.assign)


GRACE: Instant = 10 * SECOND  # as for tasks: between the request to stop and the end


def enter(move: Move, call: CallProgram, index: int = SINGLE) -> None:
    """Evaluate the call's fields, validate its arguments and start its target."""
    dispatch = _Dispatch(move, call, index)
    try:
        arguments = dispatch.evaluate()
    except Fault as fault:
        move.emit(f.CallFaulted(move.number, index, call.site, move.now, move.encode(fault.envelope)))
        return
    if call.flow is not None:
        dispatch.to_flow(call.flow, arguments)
    elif call.provider is None or not call.provider.name:
        dispatch.to_mock(mock_result(arguments))
    elif call.provider.name == subrun.NAME:
        dispatch.to_run(arguments)
    else:
        dispatch.to_task(call.provider.name, arguments)


class _Dispatch:
    """Starts the target of an evaluated call. `input` is None if the call passes on what it received."""

    __slots__ = ("call", "index", "input", "move")

    def __init__(self, move: Move, call: CallProgram, index: int) -> None:
        self.move = move
        self.call = call
        self.index = index
        self.input: Carried | None = None

    def evaluate(self) -> dict[str, Any]:
        """The validated arguments; arguments without expressions are validated once for all runs."""
        move, call = self.move, self.call
        if call.fixed is None:
            scope = move.call_scope(move.now, {"call": lambda: call_record(self.received(), self.index, move.now)})
            self.input = scope.evaluate_to_carry(call.input)
            arguments = scope.arguments(call.arguments)
        else:
            arguments = call.fixed
            if call.input is not None:
                self.input = move.turn.keep(call.input.text or NULL)
        if call.provider is not None and not call.is_proven:
            call.provider.parameters.validate(arguments, call.provider.uri)
            call.is_proven = call.fixed is not None
        return arguments

    def received(self) -> Any:
        turn, frame = self.move.turn, self.move.frame
        return frame.value.read(turn) if self.index == SINGLE else element(turn, frame, self.index)

    @property
    def is_element(self) -> bool:
        """Whether it received an element of the Gather's collection."""
        step = None if self.index == SINGLE else self.move.frame.step
        return step is not None and step.fan is not None and step.fan.elements is not None

    def to_flow(self, flow: Flow, arguments: dict[str, Any]) -> None:
        move = self.move
        if self.is_element and self.input is None:
            self.input = move.encode(self.received())
        target = move.body.opened + 1
        bound, failure = bind_parameters(move, flow, arguments)
        path = self._path
        self._entered(Kind.FRAME, target)
        move.emit(f.FrameOpened(target, flow.site, move.now, path, move.number, self.index, bound, failure))

    def to_mock(self, result: MockResult) -> None:
        move = self.move
        content: Carried | None = None
        if result.failure is not None:
            content = move.encode(result.failure)
        elif result.has_value:
            content = move.encode(result.value)
        elif self.is_element and self.input is None:
            content = move.encode(self.received())
        metadata = move.encode(result.metadata) if result.metadata else None
        timer = move.turn.set_timer(clamp(move.now + result.delay)) if result.delay > 0 else 0
        self._entered(Kind.MOCK, timer, result.failure is None, content, metadata)

    def to_task(self, provider: str, arguments: dict[str, Any]) -> None:
        turn = self.move.turn
        field = self.call.arguments
        if field is not None and field.text is not None:
            text = field.text
        else:
            text = jsontext.encode(arguments) if arguments else b"{}"
        holds_effects, secrets = self.call.holds_effects, self.call.secrets
        if secrets:
            text = seal_by_place(arguments, secrets)
        task = turn.schedule_task(
            provider, self._path, text, self._payload(), hold_effects_in_doubt=holds_effects, sealed=bool(secrets)
        )
        self._entered(_TASK, task)

    def to_run(self, arguments: dict[str, Any]) -> None:
        turn = self.move.turn
        try:
            callee = subrun.callee(turn, arguments)
        except subrun.CannotRun as problem:
            self.to_mock(MockResult(problem.envelope, False, None, 0, {}))
            return
        name = arguments.get("name") or arguments.get("path") or self.call.site.rsplit("/", 2)[-2]
        options = subruns.options_for(turn, callee, {"args": arguments.get("arguments", {})})
        child = turn.start_child(callee.language, callee.text, name, self._payload(), options, from_api=callee.from_api)
        self._entered(Kind.CHILD, child)

    def _payload(self) -> Payload:
        frame = self.move.frame
        if self.input is not None:
            return self.move.body.cell(frame, self.input).to_payload(self.move.turn)
        if self.index == SINGLE:
            return frame.value.to_payload(self.move.turn)
        if self.is_element:
            return jsontext.encode_finite(self.received())
        return frame.entered.input.to_payload(self.move.turn)

    @property
    def _path(self) -> str:
        dispatch = "" if self.index == SINGLE else f"[{self.index}]"
        return f"{self.move.path}{dispatch}{self.call.mark}"

    def _entered(
        self, kind: Kind, target: int, ok: bool = True, content: Carried | None = None, metadata: Payload | None = None
    ) -> None:
        move = self.move
        move.emit(
            f.CallEntered(
                move.number, self.index, self.call.site, move.now, self.input, kind, target, ok, content, metadata
            )
        )


def bind_parameters(move: Move, flow: Flow, arguments: Any) -> tuple[dict[str, Payload], Payload | None]:
    """The variables that a frame starts with, or the failure that keeps it from starting (MWL-073, MWL-171)."""
    try:
        flow.parameters.validate(arguments, f"arguments of the Flow {flow.site or '/'}")
    except Fault as fault:
        return {}, move.encode(fault.envelope)
    bound = {**flow.parameters.defaults, **arguments}
    return {name: move.encode(value) for name, value in bound.items()}, None


def leave(move: Move, call: Call) -> None:
    """The target has settled: run the arm for its Result."""
    move.emit(_arm(move, call))


def _arm(move: Move, call: Call) -> f.CallLeft:
    assert call.result is not None
    program = move.program.calls[call.site]
    arm = program.arm(call.result.ok)
    if arm is None or not call.settled:
        return f.CallLeft(move.number, call.index)
    turn, frame, result = move.turn, move.frame, call.result
    window = "flow" if call.kind is Kind.FRAME else "provider"
    makers = {
        "call": lambda: settled_call_record(turn, frame, call),
        window: lambda: window_record(turn, frame, call),
    }
    scope = move.call_scope(call.at, makers)
    try:
        value = scope.evaluate_to_carry(arm.value) if result.ok else None
        return f.CallLeft(move.number, call.index, True, value, scope.bindings(arm.assign))
    except Fault as fault:
        return f.CallLeft(move.number, call.index, False, move.supersede(fault.envelope, result))


def on_result(move: Move, index: int, outcome: Outcome | None, status: Status | None, accepted: Instant) -> None:
    """What a call waited for has ended: a delay, a task or a child run."""
    call = find_call(move.frame, index)
    ok = True
    content: Carried | None = None
    if call.imposed is not None:
        # It was interrupted: its answer is in the history, its Result is the cancellation (MWL-708).
        ok, content = False, call.imposed.to_payload(move.turn)
    elif isinstance(outcome, Succeeded):
        content = ARRIVAL
    elif outcome is not None:
        ok, content = False, move.encode(subrun.envelope_of(outcome, status))
    elif call.prepared is not None:
        ok = call.prepared.ok
    is_left = _has_no_arm(move, call, ok)
    if not (is_left and content is ARRIVAL and _leave_with_step(move, accepted)):
        move.emit(f.CallSettled(move.number, index, accepted, ok, content, is_left))


def _leave_with_step(move: Move, accepted: Instant) -> bool:
    """Leave the Step together with its call, if nothing is between them and its tail does not fail."""
    step = move.frame.stack[-2]
    if not isinstance(step, Step):
        return False
    program = move.step_program(step)
    try:
        output, bound = evaluate_tail(move, step, program, Result(True, move.body.cell(move.frame, ARRIVAL)))
    except Fault:
        return False  # reported by the Step, once the Result has risen to it
    move.emit(f.StepAnswered(move.number, accepted, program.next, move.now, move.next_step, output, bound))
    return True


def _has_no_arm(move: Move, call: Call, ok: bool) -> bool:
    """Whether the Result of the call can rise at once. A call that is being unwound is left in another way."""
    if call.index != SINGLE or call.imposed is not None or boundary_of(move.frame) is not None:
        return False
    return move.program.calls[call.site].arm(ok) is None


def interrupt(move: Move, call: Call, imposed: Carried) -> None:
    """Ask the call's target to stop; the call is settled once it has stopped."""
    turn = move.turn
    payload = move.body.cell(move.frame, imposed).to_payload(move.turn)
    move.emit(f.CallInterrupted(move.number, call.index, imposed))
    match call.kind:
        case Kind.MOCK:
            turn.drop_timer(call.target)
            move.emit(f.CallSettled(move.number, call.index, move.now, False, payload))
        case Kind.TASK if call.target in turn.state.tasks:
            turn.cancel_task(call.target, "interrupted")
        case Kind.CHILD if call.target in turn.state.children:
            turn.cancel_child(call.target, "interrupted", grace=GRACE)
        case Kind.FRAME:
            turn.emit(f.FrameInterrupted(call.target, payload))
        case _:  # it has just ended, with more than the run could accept
            move.emit(f.CallSettled(move.number, call.index, move.now, False, payload))
