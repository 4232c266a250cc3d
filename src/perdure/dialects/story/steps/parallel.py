"""`parallel`: its branches start together; it ends when all of them have (STY-092 to STY-095)."""

from perdure.dialects.story import events as s
from perdure.dialects.story.body import Body, StepState
from perdure.dialects.story.ending import end_step
from perdure.dialects.story.phases import Phase
from perdure.dialects.story.program import Step
from perdure.dialects.story.rendering import Scope
from perdure.dialects.story.verifying import verified
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

    def ring(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline."""
