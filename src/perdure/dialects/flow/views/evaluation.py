"""Expressions that somebody asks about: evaluated against the roots at a Step of a run; nothing is recorded.

It also says what a start may contain, and what a Step passes to its call as it is written.
"""

from collections.abc import Callable
from typing import Any

from perdure.dialects.flow.plan.program import AMBIENT, Field, Program
from perdure.dialects.flow.run.expression_roots import (
    call_record,
    received_by,
    settled_call_record,
    step_record,
    window_record,
)
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.run.scope import RootBuilder, Scope
from perdure.dialects.flow.state.body import Body, Call, Kind, MiddlewareScope, Step
from perdure.dialects.flow.state.failures import Fault
from perdure.kernel.errors import ExpressionFailed
from perdure.kernel.execution import Execution
from perdure.kernel.turn import Turn


def has_scope(execution: Execution, step: str) -> bool:
    return _frame_in(execution.body, step) is not None


def _frame_in(body: Body, step: str) -> int | None:
    """The frame that is in this Step; of several the one that was opened last."""
    return next(
        (number for number, frame in reversed(body.frames.items()) if frame.step and frame.step.name == step), None
    )


def evaluate(turn: Turn, step: str, expression: str, hide: Callable[[Any], Any]) -> Any:
    number = _frame_in(turn.body, step)
    assert number is not None, "asked only where the Step is open"
    move = Move(turn, number)
    makers = _roots(move)
    text = expression if expression.strip().startswith("{{") else f"{{{{ {expression} }}}}"
    scope = Scope(turn, move.frame, move.frame.entered.at, makers)
    try:
        return hide(scope.value(Field(text, AMBIENT.union(makers), "/expression")))
    except Fault as fault:
        envelope = fault.envelope
        raise ExpressionFailed(f"{envelope['code']}: {envelope.get('message', '')}") from None


def _roots(move: Move) -> dict[str, RootBuilder]:
    """What expressions at the top of the frame's stack can read: of the Step, its middleware and its call."""
    turn, frame, step = move.turn, move.frame, move.frame.entered
    makers = move.enclosing_roots()
    if frame.rising is not None and isinstance(move.top, Step):
        action, result = move.step_program(step).action, frame.rising
        makers["step"] = lambda: step_record(turn, step, action, turn.now, result)
    for scope in reversed(frame.stack):
        if isinstance(scope, MiddlewareScope):
            makers.setdefault("middleware", move.middleware_root(scope, scope.at, scope.pending))
            break
    if isinstance(call := move.top, Call):
        makers |= _roots_of_call(move, call)
    return makers


def _roots_of_call(move: Move, call: Call) -> dict[str, RootBuilder]:
    turn, frame = move.turn, move.frame
    if call.result is None or call.accepted is None:
        return {"call": lambda: call_record(received_by(turn, frame, call), call.index, call.at)}
    window = "flow" if call.kind is Kind.FRAME else "provider"
    return {
        "call": lambda: settled_call_record(turn, frame, call),
        window: lambda: window_record(turn, frame, call),
    }


def schemas(program: Program) -> dict[str, Any]:
    return {"arguments": program.root.parameters.schema}


def written_arguments(program: Program, step: str) -> Any:
    for flow in program.flows.values():
        if (planned := flow.steps.get(step)) is not None:
            calls = planned.action.calls(planned.fields)
            field = calls[0].arguments if len(calls) == 1 else None
            return None if field is None else field.template.document
    return None
