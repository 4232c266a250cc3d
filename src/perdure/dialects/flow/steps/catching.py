"""A Step that resolved to a failure: its catch clauses in order, the first match wins (MWL-505)."""

from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault, matches
from perdure.dialects.flow.state.values import FAILURE, Result


def catch(move: Move, step: Step) -> None:
    assert step.failed is not None and step.exited is not None
    clauses = move.step_program(step).catch
    envelope = step.failed.head(move.turn) if clauses else {}
    for index, clause in enumerate(clauses):
        if not matches(clause.match or {}, envelope):
            continue
        scope = move.step_scope(step, step.exited, Result(False, step.failed))
        try:
            output, bound = scope.carried(clause.output), scope.bindings(clause.assign)
        except Fault as fault:
            # A new failure over the one being handled; this Step's clauses do not see it (O-09).
            move.emit(f.StepEnded(move.number, False, move.following(fault.envelope, "failure")))
        else:
            move.turn.caught += 1
            move.emit(f.StepCaught(move.number, index, clause.next, move.now, move.next_step, output, bound))
        return
    move.emit(f.StepEnded(move.number, False, FAILURE))
