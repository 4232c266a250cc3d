"""`sleep`: Paused until its deadline, which is stored once (STY-083, STY-084)."""

from perdure.dialects.story.plan.helper_steps import INPUTS
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.resources.durations import BadDuration, read_positive, write_duration
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, said
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import TemplateError
from perdure.kernel.turn import Turn

COMPLETED = "Sleep completed."


class Sleep:
    def start(self, turn: Turn, step: Step) -> None:
        try:
            written = Scope(turn, step).render(step.given.get("duration"), INPUTS[step.kind])
        except TemplateError as problem:
            end_step(turn, step.name, Phase.FAILED, said(problem), reason=Reason.EXPRESSION_FAILED)
            return
        if written is None or (isinstance(written, str) and not written.strip()):
            succeed(turn, step, COMPLETED)
            return
        try:
            span = read_positive(written)
        except BadDuration as problem:
            message = f"step '{step.name}' has invalid sleep duration: {problem}"
            end_step(turn, step.name, Phase.FAILED, message, reason=Reason.INVALID_CONFIGURATION)
            return
        due = turn.now + span
        timer = turn.set_timer(due)
        message = f"Sleeping for {write_duration(span)}."
        turn.emit(s.StepStarted(step.name, Phase.PAUSED, message, turn.now, timer, due))

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """It waits for its deadline only."""

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        succeed(turn, step, COMPLETED)
