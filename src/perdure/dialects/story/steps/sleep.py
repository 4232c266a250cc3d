"""`sleep`: Paused until its deadline, which is stored once (STY-083, STY-084)."""

from typing import TYPE_CHECKING

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.templates import is_templated
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.resources.durations import BadDuration, read_positive, write_duration
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.graphs.graph import Role
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet

INPUT = "sleep"
COMPLETED = "Sleep completed."


class SleepStep(StepKind):
    role = Role.WAIT
    members = ("duration",)
    purposes = (INPUT,)

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        with_block = step.at("with")
        with_block.warn_unread(self.members)
        duration = with_block.at("duration")
        is_blank = isinstance(duration.value, str) and not duration.value.strip()
        if duration.value is None or is_blank or is_templated(duration):
            return
        try:
            read_positive(duration.value)
        except BadDuration as refusal:
            duration.problem(INVALID, f"step '{name}' has invalid sleep duration: {refusal}")

    def start(self, turn: Turn, step: Step) -> None:
        try:
            text = Scope(turn, step).render(step.with_block.get("duration"), INPUT)
        except ExpressionError as problem:
            end_step(turn, step.name, StoryPhase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
            return
        if text is None or (isinstance(text, str) and not text.strip()):
            succeed(turn, step, COMPLETED)
            return
        try:
            duration = read_positive(text)
        except BadDuration as problem:
            message = f"step '{step.name}' has invalid sleep duration: {problem}"
            end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.INVALID_CONFIGURATION)
            return
        deadline = turn.now + duration
        timer = turn.set_timer(deadline)
        message = f"Sleeping for {write_duration(duration)}."
        turn.emit(s.StepStarted(step.name, StoryPhase.PAUSED, message, turn.now, timer, deadline))

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        succeed(turn, step, COMPLETED)

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        duration = step.with_block.get("duration")
        is_computed = isinstance(duration, dict) or (isinstance(duration, str) and "{{" in duration)
        net.work(step, at, may_fail=is_computed)
