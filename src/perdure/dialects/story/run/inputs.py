"""How a Story reacts to what arrives: ends of tasks and child runs, timers, signals, messages of operators."""

from perdure.dialects.story.run import attempts, control, interruption, signals_and_effects
from perdure.dialects.story.run.run_end import end_run
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.steps import STEP_KINDS
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn


def accept(turn: Turn, given: i.Input) -> None:
    match given:
        case i.TaskResult() | i.TaskLost() | i.ChildResult():
            _on_end(turn)
        case i.TimerDue():
            _on_timer(turn)
        case i.Signal():
            signals_and_effects.from_outside(turn, given)
        case i.TaskReport():
            signals_and_effects.report(turn, given)
        case i.EffectDone() | i.EffectUnfit():
            signals_and_effects.performed(turn, given)
        case i.EffectSettle():
            signals_and_effects.settled(turn, given)
        case i.Cancel():
            interruption.cancel(turn)
        case i.Steer(verb, body, _, by):
            control.steer(turn, verb, jsontext.decode(turn.text(body)), by)
        case i.Reopen(body, _, by):
            control.reopen(turn, jsontext.decode(turn.text(body)), by)


def end_exhausted(turn: Turn, reason: str, count: int) -> None:
    """A graph without cycles cannot spin; should it seem to, the run ends."""
    end_run(turn, Phase.FAILED, Reason.EXECUTION_FAILED, "the run moved too long without anything from outside")


def _on_end(turn: Turn) -> None:
    body: Body = turn.body
    match turn.events[-1] if turn.events else None:
        case e.TaskEnded() as ended if ended.task in body.tasks:
            attempts.on_result(turn, body.tasks[ended.task], ended)
        case e.ChildEnded() as ended if ended.child in body.tasks:
            name = body.tasks[ended.child]
            step = turn.program.steps[name]
            STEP_KINDS[step.kind].on_child_end(turn, step, body.steps[name], ended)
        case e.TaskRedelivered(task, delivery, reason) if task in body.tasks:
            message = f"execution {delivery} begins: {reason}"
            turn.emit(s.Noted(body.tasks[task], "JobRestarted", message, turn.now))


def _on_timer(turn: Turn) -> None:
    """A deadline has passed, or a wait between two attempts or looks is over."""
    body: Body = turn.body
    name, is_deadline = body.rang
    if name:
        step, state = turn.program.step(name), body.steps[name]
        if is_deadline:
            STEP_KINDS[step.kind].on_timer(turn, step, state)
    elif is_deadline:
        interruption.time_out(turn)
