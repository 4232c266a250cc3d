"""How a block ends early: by a `stop` step, a cancel, the story's timeout, or for a redrive.

Nothing more starts. Running work, child runs included, is asked to stop and ends as Canceled once it has; steps
that only wait end at once.
"""

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.durations import write_duration
from perdure.dialects.story.run import child_runs, topology
from perdure.dialects.story.run.step_end import end_step, skip
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import StoryPhase
from perdure.kernel.outcomes import Cancelled, Outcome
from perdure.kernel.turn import Turn

CANCELED = "StoryRun gracefully canceled"  # STY-186


def was_stopped(outcome: Outcome) -> bool:
    """Whether a run that ended as `Finished` was stopped by a step of its own, not cancelled from outside."""
    return isinstance(outcome, Cancelled) and outcome.reason != CANCELED


def stop(turn: Turn, step: Step, phase: StoryPhase, message: str) -> None:
    """Stop the block of a stop step. In a cleanup block this does not change the outcome of the run."""
    why = f"the story was stopped by step '{step.name}'"
    if step.block == "steps":
        turn.emit(s.Interrupted("stop", step.name, phase, message, turn.now))
    _end_block(turn, why)


def cancel(turn: Turn) -> None:
    """Cancel the run; the finally block still runs unless the operator's settings say otherwise (STY-186, STY-188)."""
    body: Body = turn.body
    program: Program = turn.program
    if not body.begun or body.block == "done":
        return
    turn.emit(s.Interrupted("cancel", "", StoryPhase.FINISHED, CANCELED, turn.now))
    if body.block != "finally" or not program.settings.runs_finally_on_cancel:
        _end_block(turn, "the StoryRun was canceled")


def time_out(turn: Turn) -> None:
    """Handle the Story's timeout (STY-134, STY-135)."""
    body: Body = turn.body
    bound = turn.program.bounds.get("story") or 0
    if body.block == "steps" and body.interruption is None:
        message = f"StoryRun exceeded timeout of {write_duration(bound)}."
        turn.emit(s.Interrupted("timeout", "", StoryPhase.TIMEOUT, message, turn.now))
        _end_block(turn, "the StoryRun exceeded its timeout")
    elif body.block != "done":
        turn.emit(s.TimeRanOut(turn.now))


def make_way(turn: Turn) -> None:
    """Stop a live run before its redrive, without cleanup (STY-185)."""
    turn.emit(s.Interrupted("redrive", "", StoryPhase.FINISHED, "StoryRun is redriven", turn.now))
    _end_block(turn, "the StoryRun is redriven")


def _end_block(turn: Turn, why: str) -> None:
    body: Body = turn.body
    if body.topology is not None and body.topology.task in turn.state.tasks:
        topology.recall(turn, why)
        return
    unstarted = list(body.unstarted)
    skip(turn, unstarted, f"Skipped because {why}")
    message = f"Canceled because {why}"
    for name in [name for name, state in body.steps.items() if not state.phase.is_terminal]:
        state = body.steps[name]
        if state.task in turn.state.tasks:
            if state.run is not None and not state.run.recalled:
                turn.emit(s.StepRecalled(name, message))
                turn.cancel_task(state.task, why)
        elif name in body.plan.branches or child_runs.recall(turn, name, state, message, why):
            continue  # a parallel step ends with its last branch, a step that waits for runs with the last run
        else:
            end_step(turn, name, StoryPhase.CANCELED, message, interrupted=True)
    for name in dict.fromkeys(body.plan.parents[branch] for branch in unstarted if branch in body.plan.parents):
        has_ended = all(body.steps[branch_name].phase.is_terminal for branch_name in body.plan.branches[name])
        if has_ended and not body.steps[name].phase.is_terminal:
            end_step(turn, name, StoryPhase.CANCELED, message, interrupted=True)  # no branch is left that would end it
