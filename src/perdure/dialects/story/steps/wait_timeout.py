"""What `wait` and `gate` share: a deadline, and what it means when it passes (STY-096, 098, 104)."""

from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.resources.durations import BadDuration, read_positive
from perdure.dialects.story.run.step_end import end_step, skip
from perdure.dialects.story.state.phases import Phase
from perdure.kernel.turn import Turn
from perdure.kernel.values import Instant


def timeout_of(step: Step) -> Instant | None:
    try:
        return read_positive(step.given.get("timeout"))
    except BadDuration:
        return None


def time_out(turn: Turn, step: Step) -> None:
    policy = step.given.get("onTimeout")
    if isinstance(policy, str) and policy.strip().lower() == "skip":
        skip(turn, [step.name], f"{step.kind} step timed out and was skipped.")
    else:
        end_step(turn, step.name, Phase.TIMEOUT, f"{step.kind} step timed out.")
