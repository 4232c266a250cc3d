"""`parallel`: its branches start together; it ends when all of them have (STY-092 to STY-095)."""

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.post_execution import verified
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Phase
from perdure.dialects.story.values.template_scope import Scope
from perdure.kernel.turn import Turn


class Parallel:
    def start(self, turn: Turn, step: Step) -> None:
        turn.emit(s.StepStarted(step.name, Phase.RUNNING, "Parallel block expanded", turn.now))

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """All branches have ended."""
        body: Body = turn.body
        ended = [(branch, body.steps[branch.name]) for branch in step.branches]
        failures = [(branch, found) for branch, found in ended if found.phase.is_failure]
        if any(found.interrupted for _, found in failures):
            end_step(turn, step.name, Phase.CANCELED, state.message, interrupted=True)
            return
        counted = [branch.name for branch, _ in failures if not branch.allows_failure]
        if counted:
            end_step(turn, step.name, Phase.FAILED, f"Parallel branches failed: {', '.join(counted)}")
            return
        message = "Parallel branches completed with allowed failures." if failures else "Parallel branches completed."
        if verified(turn, step, Scope(turn, step).outputs_of(step)):
            end_step(turn, step.name, Phase.SUCCEEDED, message)

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline."""
