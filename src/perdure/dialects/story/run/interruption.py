"""How a block ends before its time: by a `stop` step, by a cancel, by the story's timeout, for a redrive.

Nothing more begins. What works is asked to stop and ends as Canceled once it has, runs below this one among it; what
only waits ends at once.
"""

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.durations import write_duration
from perdure.dialects.story.run import child_runs
from perdure.dialects.story.run.step_end import end_step, skip
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Phase
from perdure.kernel.turn import Turn

CANCELED = "StoryRun gracefully canceled"  # STY-186


def stop(turn: Turn, step: Step, phase: Phase, message: str) -> None:
    """In a cleanup block, a stop ends that block and says nothing of the run."""
    why = f"the story was stopped by step '{step.name}'"
    if step.block == "steps":
        turn.emit(s.Interrupted("stop", step.name, phase, message, turn.now))
    _end_block(turn, why)


def cancel(turn: Turn) -> None:
    """STY-186, STY-188: the finally block still runs, unless the operator has said otherwise."""
    body: Body = turn.body
    program: Program = turn.program
    if not body.begun or body.block == "done":
        return
    turn.emit(s.Interrupted("cancel", "", Phase.FINISHED, CANCELED, turn.now))
    if body.block != "finally" or not program.settings.runs_finally_on_cancel:
        _end_block(turn, "the StoryRun was canceled")


def time_out(turn: Turn) -> None:
    """STY-134, STY-135."""
    body: Body = turn.body
    bound = turn.program.bounds.get("story") or 0
    if body.block == "steps" and body.interruption is None:
        message = f"StoryRun exceeded timeout of {write_duration(bound)}."
        turn.emit(s.Interrupted("timeout", "", Phase.TIMEOUT, message, turn.now))
        _end_block(turn, "the StoryRun exceeded its timeout")
    elif body.block != "done":
        turn.emit(s.TimeRanOut(turn.now))


def make_way(turn: Turn) -> None:
    """A live run that is to be redriven stops first, and cleans nothing up (STY-185)."""
    turn.emit(s.Interrupted("redrive", "", Phase.FINISHED, "StoryRun is redriven", turn.now))
    _end_block(turn, "the StoryRun is redriven")


def _end_block(turn: Turn, why: str) -> None:
    body: Body = turn.body
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
            continue  # a parallel step ends with its last branch, one that waits for runs with the last of them
        else:
            end_step(turn, name, Phase.CANCELED, message, interrupted=True)
    for name in dict.fromkeys(body.plan.parents[branch] for branch in unstarted if branch in body.plan.parents):
        ended = all(body.steps[one].phase.is_terminal for one in body.plan.branches[name])
        if ended and not body.steps[name].phase.is_terminal:
            end_step(turn, name, Phase.CANCELED, message, interrupted=True)  # nothing of it is left to end it
