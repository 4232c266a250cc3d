"""`parallel`: its branches start together; it ends when all of them have ended (STY-092 to STY-095)."""

from typing import TYPE_CHECKING

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.post_execution import verified
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values.template_scope import Scope
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet


class ParallelStep(StepKind):
    members = ("steps",)
    branches_member = "steps"

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        """Each branch is checked as a step elsewhere; here only what a branch must not have."""
        branches = step.at("with", "steps")
        if not isinstance(branches.value, list) or not branches.value:
            place = step if branches.value is None else branches
            place.problem(INVALID, f"step '{name}' of type 'parallel' requires a non-empty list 'with.steps'")
            return
        step.at("with").warn_unread(self.members)
        for branch in branches.items():
            if not isinstance(branch.value, dict):
                continue
            label = f"branch '{branch.value.get('name') or ''}' of step '{name}'"
            if branch.value.get("type"):
                branch.at("type").problem(INVALID, f"{label} must not set type: only Engrams run in parallel")
            if branch.value.get("ref") is None:
                branch.problem(INVALID, f"{label} must set ref")
            if branch.value.get("needs"):
                branch.at("needs").problem(INVALID, f"{label} must not set needs: all branches start together")

    def start(self, turn: Turn, step: Step) -> None:
        turn.emit(s.StepStarted(step.name, StoryPhase.RUNNING, "Parallel block expanded", turn.now))

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """End the step after all branches have ended."""
        body: Body = turn.body
        branch_states = [(branch, body.steps[branch.name]) for branch in step.branches]
        failures = [(branch, branch_state) for branch, branch_state in branch_states if branch_state.phase.is_failure]
        interrupted = [branch_state.message for _, branch_state in failures if branch_state.interrupted]
        if interrupted:
            end_step(turn, step.name, StoryPhase.CANCELED, interrupted[0], interrupted=True)
            return
        failed_names = [branch.name for branch, _ in failures if not branch.allows_failure]
        if failed_names:
            end_step(turn, step.name, StoryPhase.FAILED, f"Parallel branches failed: {', '.join(failed_names)}")
            return
        message = "Parallel branches completed with allowed failures." if failures else "Parallel branches completed."
        if verified(turn, step, Scope(turn, step).outputs_of(step)):
            end_step(turn, step.name, StoryPhase.SUCCEEDED, message)

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        net.work(step, at, may_fail=not all(branch.allows_failure for branch in step.branches))
        for branch in step.branches:
            net.check_effects(branch)
