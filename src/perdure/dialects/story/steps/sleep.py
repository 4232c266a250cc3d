"""`sleep`: Paused until its deadline, which is stored once (STY-083, STY-084)."""

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.templates import is_templated
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.resources.durations import BadDuration, read_positive, write_duration
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.turn import Turn

INPUT = "sleep"
COMPLETED = "Sleep completed."


class Sleep(StepKind):
    members = ("duration",)
    purposes = (INPUT,)

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        given = step.at("with")
        given.warn_unread(self.members)
        span = given.at("duration")
        is_blank = isinstance(span.value, str) and not span.value.strip()
        if span.value is None or is_blank or is_templated(span):
            return
        try:
            read_positive(span.value)
        except BadDuration as refusal:
            span.problem(INVALID, f"step '{name}' has invalid sleep duration: {refusal}")

    def start(self, turn: Turn, step: Step) -> None:
        try:
            written = Scope(turn, step).render(step.given.get("duration"), INPUT)
        except ExpressionError as problem:
            end_step(turn, step.name, Phase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
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

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        succeed(turn, step, COMPLETED)
