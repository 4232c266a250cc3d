"""The tail of a Step that succeeded: what it hands on, and what it binds."""

from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.events import Bindings
from perdure.dialects.flow.state.values import RISING, Carried, Result


def tail(move: Move, step: Step, result: Result) -> tuple[Carried | None, Bindings]:
    """`output` and `assign` of a Call, evaluated with its Result in sight; raises their `Fault`."""
    program = move.step_program(step)
    if program.output is None and not program.assign:
        return RISING, {}
    scope = move.step_scope(step, move.now, result)
    output = RISING if program.output is None else scope.carried(program.output)
    return output, scope.bindings(program.assign)
