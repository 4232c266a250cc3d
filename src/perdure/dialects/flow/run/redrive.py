"""Redrive: a Flow that has ended goes on at the step that failed, or where it was stopped.

The frames are put back by folding (`state/folding/checkpoints.py`). What is decided here is what begins anew around
them: bounds with their whole time, retries with all their attempts.
"""

from collections.abc import Iterator

from perdure.dialects.flow.middleware.protocol import MiddlewareDirective, SetBound
from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.run import middleware_phases
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Body, Call, Frame, MiddlewareScope, ScopePosition, Step
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import describe_end
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Status


def why_not_reopened(execution: Execution, message: i.Reopen) -> str | None:
    body: Body = execution.body
    document = jsontext.decode(message.body) if isinstance(message.body, bytes) else None
    if isinstance(document, dict) and document.get("step"):
        return "a Flow is redriven at the step that failed; a step can be chosen only for a Story"
    if execution.state.status is Status.SUCCEEDED:
        return f"{describe_end(execution)}; there is nothing to redrive"
    if body.opened and body.fallen is None:
        return "nothing of the run can be done again: its arguments were refused, or it made too many moves to end"
    return None


def missing_places(execution: Execution) -> list[str]:
    """What a newer document lacks of the places where the run would go on."""
    body: Body = execution.body
    return [] if body.fallen is None else list(dict.fromkeys(_missing(execution.program, body.fallen)))


def _missing(program: Program, frame: Frame) -> Iterator[str]:
    flow = program.flows.get(frame.flow)
    if flow is None:
        yield f"the Flow {frame.flow or '/'}"
        return
    for scope in frame.stack:
        match scope:
            case Step():
                step = flow.steps.get(scope.name)
                if step is None:
                    yield f"the Step {scope.name!r} of the Flow {frame.flow or '/'}"
                elif scope.fan is not None and not step.action.fans_out:
                    yield f"a Gather as Step {scope.name!r} of the Flow {frame.flow or '/'}"
                for call in () if scope.fan is None else scope.fan.calls.values():
                    yield from _missing_of_call(program, call)
            case MiddlewareScope(site=site):
                if site not in program.entries:
                    yield f"the middleware {site}"
            case Call():
                yield from _missing_of_call(program, scope)


def _missing_of_call(program: Program, call: Call) -> Iterator[str]:
    if call.site not in program.calls:
        yield f"the call {call.site}"
    if call.fallen is not None:
        yield from _missing(program, call.fallen)


def renew(move: Move) -> None:
    """A frame that was put back. All is evaluated before anything is emitted."""
    directives = [
        (depth, directive)
        for depth, scope in enumerate(move.frame.stack)
        if isinstance(scope, MiddlewareScope) and scope.position in (ScopePosition.INSIDE, ScopePosition.WAITING)
        if (directive := middleware_phases.begin_anew(move, scope)) is not None
    ]
    move.emit(f.FrameRenewed(move.number, [_renewed(move, depth, directive) for depth, directive in directives]))


def _renewed(move: Move, depth: int, directive: MiddlewareDirective) -> f.RenewedEntry:
    memory = None if directive.memory is None else jsontext.encode(directive.memory)
    if not isinstance(directive, SetBound):
        return f.RenewedEntry(depth, 0, memory)
    timer = move.turn.set_timer(directive.deadline, middleware_phases.bound_rank(move.frame, depth))
    return f.RenewedEntry(depth, timer, memory, jsontext.encode(dict(directive.reveals)))
