"""`sleep`: Paused until its deadline, which is stored once (STY-083, STY-084)."""

from perdure.dialects.story import events as s
from perdure.dialects.story.body import StepState
from perdure.dialects.story.durations import BadDuration, read_positive, write_duration
from perdure.dialects.story.ending import end_step, said
from perdure.dialects.story.helping import INPUTS
from perdure.dialects.story.phases import Phase, Reason
from perdure.dialects.story.program import Step
from perdure.dialects.story.rendering import Scope
from perdure.dialects.story.verifying import succeed
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

    def ring(self, turn: Turn, step: Step, state: StepState) -> None:
        succeed(turn, step, COMPLETED)
