"""`stop`: ends the main block, with the phase it names (STY-085, STY-086)."""

from perdure.dialects.story.document.context import StoryContext
from perdure.dialects.story.document.cursor import INVALID, Cursor, listed
from perdure.dialects.story.document.shapes import shown
from perdure.dialects.story.document.templates import is_literal
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run import interruption
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.steps.step_kind import ENGRAM_MEMBERS, StepKind
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.problems import guess
from perdure.kernel.turn import Turn

INPUT = "stop"
MODES = {"success": Phase.SUCCEEDED, "failure": Phase.FAILED, "cancel": Phase.FINISHED}
PHASES = (Phase.SUCCEEDED, Phase.FAILED, Phase.FINISHED, Phase.CANCELED)


class Stop(StepKind):
    members = ("phase", "mode", "message")
    purposes = (INPUT,)
    unused_members = (*ENGRAM_MEMBERS, ("postExecution",))

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        given = step.at("with")
        given.warn_unread(self.members)
        for word, known in (("phase", tuple(map(str, PHASES))), ("mode", tuple(MODES))):
            chosen = given.at(word)
            if chosen.value not in (None, "", *known):
                near = guess(chosen.value, known) if is_literal(chosen.value) else ""
                unsupported = f"unsupported value {shown(chosen.value)} (expected {listed(known)}){near}"
                chosen.problem(INVALID, f"step '{name}' has invalid stop {word}: {unsupported}")
        message = given.at("message")
        if not isinstance(message.value, str | None):
            message.problem(INVALID, f"must be a text, not {shown(message.value)}")

    def start(self, turn: Turn, step: Step) -> None:
        try:
            given = Scope(turn, step).render(step.given, INPUT)
        except ExpressionError as problem:
            end_step(turn, step.name, Phase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
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


def _default(name: str, phase: Phase) -> str:
    return f"Story execution stopped by step '{name}' with phase '{phase}'"
