"""`stop`: ends the main block with the phase that it names (STY-085, STY-086)."""

from typing import TYPE_CHECKING, Any

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor, listed
from perdure.dialects.story.document.shapes import shown
from perdure.dialects.story.document.templates import is_literal
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run import interruption
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.steps.step_kind import ENGRAM_MEMBERS, StepKind
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.documents.problems import guess
from perdure.kernel.graphs.graph import Role
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.story.views.net import StoryNet

INPUT = "stop"
MODES = {"success": StoryPhase.SUCCEEDED, "failure": StoryPhase.FAILED, "cancel": StoryPhase.FINISHED}
PHASES = (StoryPhase.SUCCEEDED, StoryPhase.FAILED, StoryPhase.FINISHED, StoryPhase.CANCELED)


class StopStep(StepKind):
    role = Role.END
    members = ("phase", "mode", "message")
    purposes = (INPUT,)
    unused_members = (*ENGRAM_MEMBERS, ("postExecution",))

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        with_block = step.at("with")
        with_block.warn_unread(self.members)
        for member, allowed in (("phase", tuple(map(str, PHASES))), ("mode", tuple(MODES))):
            chosen = with_block.at(member)
            if chosen.value not in (None, "", *allowed):
                near = guess(chosen.value, allowed) if is_literal(chosen.value) else ""
                unsupported = f"unsupported value {shown(chosen.value)} (expected {listed(allowed)}){near}"
                chosen.problem(INVALID, f"step '{name}' has invalid stop {member}: {unsupported}")
        message = with_block.at("message")
        if not isinstance(message.value, str | None):
            message.problem(INVALID, f"must be a string, not {shown(message.value)}")

    def start(self, turn: Turn, step: Step) -> None:
        try:
            with_block = Scope(turn, step).render(step.with_block, INPUT)
        except ExpressionError as problem:
            end_step(turn, step.name, StoryPhase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
            return
        phase, message = stop_phase(with_block, step.name)
        if phase is None:
            end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.INVALID_CONFIGURATION)
            return
        end_step(
            turn, step.name, phase, message, interrupted=phase is not StoryPhase.FAILED
        )  # not counted as its failure
        interruption.stop(turn, step, phase, message)

    def build_net(self, net: "StoryNet", step: Step, at: int) -> None:
        """It stops the Story with what it writes, or with anything if that is computed."""
        with_block = step.with_block
        is_computed = any(isinstance(value, str) and "{{" in value for value in with_block.values())
        phase, _ = stop_phase(with_block, step.name)
        if is_computed or phase is None:
            net.fail(step, at)
        if is_computed or phase is not None:
            net.stop(step, at, fails=is_computed or phase in (StoryPhase.FAILED, StoryPhase.TIMEOUT))
        if is_computed:
            net.stop(step, at, fails=False)


def stop_phase(with_block: dict[str, Any], name: str) -> tuple[StoryPhase | None, str]:
    """The phase and message that a step stops with, from its rendered `with`; without a phase, what is wrong."""
    chosen = with_block.get("phase") or MODES.get(str(with_block.get("mode") or "success"))
    if chosen not in PHASES:
        return None, f"step '{name}' stops with phase {chosen!r} (expected one of {', '.join(PHASES)})"
    text = with_block.get("message")
    default = f"Story execution stopped by step '{name}' with phase '{StoryPhase(chosen)}'"
    return StoryPhase(chosen), text if isinstance(text, str) and text else default
