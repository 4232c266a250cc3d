"""How a Story reacts to inputs: ends of tasks and child runs, timers, signals, control messages."""

from perdure.dialects.story.run import attempts, control, interruption, signals_and_effects, topology
from perdure.dialects.story.run.story_end import end_run
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn


def accept(turn: Turn, input: i.Input) -> None:
    if type(input) is i.TaskResult:  # nearly always
        _on_end(turn)
        return
    match input:
        case i.TaskResult() | i.TaskLost() | i.ChildResult():
            _on_end(turn)
        case i.TimerDue():
            _on_timer(turn)
        case i.Signal():
            signals_and_effects.from_outside(turn, input)
        case i.TaskReport():
            signals_and_effects.report(turn, input)
        case i.EffectDone() | i.EffectUnfit():
            signals_and_effects.performed(turn, input)
        case i.EffectSettle():
            signals_and_effects.settled(turn, input)
        case i.Cancel():
            interruption.cancel(turn)
        case i.Steer(verb, body, _, by):
            control.steer(turn, verb, jsontext.decode(turn.text(body)), by)
        case i.Reopen(body, _, by):
            control.reopen(turn, jsontext.decode(turn.text(body)), by)


def end_exhausted(turn: Turn, reason: str, count: int) -> None:
    """End the run. A graph without cycles cannot loop: moves are counted as a safeguard."""
    message = "the run made too many internal moves without an input"
    if reason == "bytes":
        message = f"the run uses values of {count} bytes at once"
    end_run(turn, StoryPhase.FAILED, Reason.EXECUTION_FAILED, message)


def _on_end(turn: Turn) -> None:
    body: Body = turn.body
    last = turn.events[-1] if turn.events else None
    if type(last) is e.TaskEnded and body.topology is None:  # nearly always
        if last.task in body.tasks:
            attempts.on_result(turn, body.tasks[last.task], last)
        return
    match last:
        case e.TaskEnded() as end if topology.is_task(body, end.task):
            topology.on_end(turn, end)
        case e.ChildEnded() as end if body.topology is not None and end.child in body.topology.children:
            topology.on_child_end(turn, end)
        case e.TaskRedelivered(task, delivery, reason) if topology.is_task(body, task):
            turn.emit(s.Noted("", "TopologyRestarted", f"execution {delivery} begins: {reason}", turn.now))
        case e.TaskEnded() as end if end.task in body.tasks:
            attempts.on_result(turn, body.tasks[end.task], end)
        case e.ChildEnded() as end if end.child in body.tasks:
            name = body.tasks[end.child]
            step = turn.program.steps[name]
            STEP_KINDS[step.kind].on_child_end(turn, step, body.steps[name], end)
        case e.TaskRedelivered(task, delivery, reason) if task in body.tasks:
            message = f"execution {delivery} begins: {reason}"
            turn.emit(s.Noted(body.tasks[task], "JobRestarted", message, turn.now))


def _on_timer(turn: Turn) -> None:
    """Handle a timer: a deadline has passed, or the delay before the next attempt or check is over."""
    body: Body = turn.body
    name, is_deadline = body.fired_timer
    if name:
        step, state = turn.program.step(name), body.steps[name]
        if is_deadline:
            STEP_KINDS[step.kind].on_timer(turn, step, state)
    elif is_deadline:
        interruption.time_out(turn)
