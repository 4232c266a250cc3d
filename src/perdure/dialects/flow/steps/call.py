"""Call: dispatches one call object through the Step's middleware and routes on the Result (MWL-200 to MWL-203)."""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.plan.program import AMBIENT, Field, MiddlewareEntry, PlannedCall, pointer
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run import calls, middleware_phases
from perdure.dialects.flow.run.calls import evaluate_tail
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault
from perdure.dialects.flow.state.values import Result
from perdure.dialects.flow.steps.protocol import Action
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet


class CallFields(msgspec.Struct, frozen=True):
    input: Field | None
    outermost: MiddlewareEntry | None
    call: PlannedCall

    def all_fields(self) -> Any:
        return self.input


class CallAction(Action):
    name = "Call"
    text = "Calls a provider or a Flow, and continues with its result (MWL-200 to MWL-203)."

    members: ClassVar = {
        "call": parts.call,
        "input": parts.anything,
        "output": parts.anything,
        "assign": parts.assign,
        "middleware": parts.step_stack,
        "catch": parts.catch,
        "next": parts.next_step,
    }
    required = ("call", "next")
    results = ("result",)

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> CallFields:
        roots = AMBIENT | {"step"}
        call = compiler.call(raw["call"], pointer(site, "call"), roots, lexical)
        stack = compiler.stack(raw.get("middleware", []), pointer(site, "middleware"), roots, lexical, call)
        return CallFields(compiler.field(raw, "input", roots, site), stack, call)

    def advance(self, move: Move, step: Step) -> None:
        fields: CallFields = move.step_program(step).fields
        if fields.input is not None and step.shaped is None:
            try:
                shaped = move.step_scope(step).evaluate_to_carry(fields.input)
            except Fault as fault:
                move.resolve_failed(fault.envelope)
            else:
                move.emit(f.StepShaped(move.number, shaped))
        elif fields.outermost is not None:
            middleware_phases.open_entry(move, fields.outermost)
        else:
            calls.enter(move, fields.call)

    def resolve(self, move: Move, step: Step) -> None:
        """The outermost entry, or the call itself, has emitted `step.result`."""
        result = move.frame.rising
        assert result is not None
        if not result.ok:
            move.resolve_failed(result.cell.read(move.turn))
            return
        program = move.step_program(step)
        try:
            output, bound = evaluate_tail(move, step, program, result)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            move.emit(f.StepLeft(move.number, program.next, move.now, move.next_step, output, bound))

    def show_results(self, turn: Turn, step: Step, result: Result | None) -> dict[str, Any]:
        return {} if result is None else {"result": result.read(turn)}

    def calls(self, fields: CallFields) -> tuple[PlannedCall, ...]:
        return (fields.call,)

    def stack(self, fields: CallFields) -> MiddlewareEntry | None:
        return fields.outermost

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        fields: CallFields = step.fields
        part = net.step_part(step)
        begin = net.net.place()
        net.go(part, "", at, begin)
        if not net.is_literal(fields.input):
            net.fail(step, begin, net.unknown)
        ends = net.stack(fields.outermost, begin, part, lambda inner: net.call(fields.call, inner, part))
        net.next(step, ends.ok, "")
        for failure, place in ends.failures.items():
            net.fail(step, place, failure, "")


ACTION = CallAction()
