"""MWL as a dialect: ties document, program, state and moves together. `language` is the door in front of it."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.flow.document.reader import read
from perdure.dialects.flow.plan.compiler import compile_program
from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.plan.provider_catalog import Catalog
from perdure.dialects.flow.run import calls, deadlines, moves
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state.body import Body, freeze, thaw
from perdure.dialects.flow.state.events import OWN_EVENTS
from perdure.dialects.flow.state.failures import cancellation
from perdure.dialects.flow.state.folding import evolve
from perdure.dialects.flow.views import graph, result
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.execution import Execution
from perdure.kernel.graph import Graph
from perdure.kernel.problems import Problem
from perdure.kernel.turn import Turn

_ENDS = (e.TaskEnded, e.TimerFired, e.ChildEnded)


class FlowDialect:
    events = OWN_EVENTS

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    # Documents.

    def parse(self, text: bytes) -> tuple[Program | None, list[Problem]]:
        return read(text, self.catalog)

    def load(self, text: bytes) -> Program:
        return compile_program(jsontext.decode(text), self.catalog)

    def graph(self, program: Program) -> Graph:
        return graph.draw(program)

    # Runs.

    def begin(self, program: Program) -> Body:
        return Body(program)

    def accept(self, turn: Turn, given: i.Input) -> None:
        match given:
            case i.Cancel(reason):
                moves.interrupt_root(turn, cancellation(message=reason) if reason else cancellation())
            case i.TaskResult() | i.TaskLost() | i.TimerDue() | i.ChildResult():
                self._land(turn)
            case i.TaskReport():
                turn.answer = i.Accepted(b"null")

    def _land(self, turn: Turn) -> None:
        """React to what the kernel has just recorded as the end of a task, a timer or a child run."""
        landed = turn.body.landed
        if not turn.events or type(turn.events[-1]) not in _ENDS:
            return  # a task was handed out again: not an attempt, nothing for us (MWL-709)
        if landed is None:
            return  # the end of a sleep or a gap: its frame is awake
        if landed.is_bound:
            deadlines.reach(turn, landed.frame, landed.index)
        else:
            calls.settle(Move(turn, landed.frame), landed.index, landed.outcome, landed.status, turn.arrived)

    def exhausted(self, turn: Turn, reason: str, count: int) -> None:
        did = "caught" if reason == "failures" else "made"
        message = f"the run {did} {count} {reason} without anything from outside"
        details = {"reason": reason, "limit": count}
        envelope = cancellation(message=message, details=details)
        body: Body = turn.body
        root = body.frames.get(moves.ROOT)
        if root is not None and root.interrupted is not None:
            turn.end(*moves.ending(envelope))  # it does not even come to an end when it is told to
        else:
            moves.interrupt_root(turn, envelope)

    advance = staticmethod(moves.advance)
    evolve = staticmethod(evolve)
    freeze = staticmethod(freeze)
    thaw = staticmethod(thaw)

    def show(self, execution: Execution, texts: Mapping[bytes, bytes]) -> Any:
        return result.show(execution, texts)
