"""`stop`: ends the main block, with the phase it names (STY-085, STY-086)."""

from perdure.dialects.story.plan.helper_steps import INPUTS
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run import interruption
from perdure.dialects.story.run.step_end import end_step, said
from perdure.dialects.story.state.body import StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import TemplateError
from perdure.kernel.turn import Turn

MODES = {"success": Phase.SUCCEEDED, "failure": Phase.FAILED, "cancel": Phase.FINISHED}
PHASES = (Phase.SUCCEEDED, Phase.FAILED, Phase.FINISHED, Phase.CANCELED)


class Stop:
    def start(self, turn: Turn, step: Step) -> None:
        try:
            given = Scope(turn, step).render(step.given, INPUTS[step.kind])
        except TemplateError as problem:
            end_step(turn, step.name, Phase.FAILED, said(problem), reason=Reason.EXPRESSION_FAILED)
            return
        written = given.get("phase") or MODES.get(str(given.get("mode") or "success"))
        if written not in PHASES:
            message = f"step '{step.name}' stops with phase {written!r}; it may be {', '.join(PHASES)}"
            end_step(turn, step.name, Phase.FAILED, message, reason=Reason.INVALID_CONFIGURATION)
            return
        phase = Phase(written)
        text = given.get("message")
        message = text if isinstance(text, str) and text else _default(step.name, phase)
        end_step(turn, step.name, phase, message, interrupted=phase is not Phase.FAILED)  # no failure of its own
        interruption.stop(turn, step, phase, message)

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """It ends where it starts."""

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline."""


def _default(name: str, phase: Phase) -> str:
    return f"Story execution stopped by step '{name}' with phase '{phase}'"
