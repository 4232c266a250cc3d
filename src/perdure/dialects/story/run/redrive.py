"""Starting over: the whole run, or from one step on (STY-183 to STY-185).

The kernel reopens an ended run under its next incarnation; a live one is stopped first and then reopens itself.
Names stay; work is repeated under new uids. Sub-runs of reset steps are removed, open ones once they have stopped.
"""

from perdure.dialects.story.plan.program import Program, StepPlan
from perdure.dialects.story.plan.step_graph import BLOCKS
from perdure.dialects.story.run import interruption
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import BOUND_RANK
from perdure.kernel import events as e
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn


def reopen(turn: Turn, step: str, token: str, by: str) -> None:
    """Reset the steps of a reopened run. A redrive without a token gets one, so that there is a value to observe."""
    program: Program = turn.program
    token = token or f"redrive-{turn.state.incarnation}"
    steps = reset_by(program.plan, step)
    bound = program.bounds.get("story")
    timer = 0 if bound is None or not step else turn.set_timer(turn.now + bound, BOUND_RANK)
    turn.disown_children(child for name in steps for child in turn.body.launched.get(name, ()))
    turn.emit(s.Redriven(step, steps, token, by, turn.now, timer))
    turn.emit(s.Noted("", "StoryRunRedriveFromStep" if step else "StoryRunRedrive", step or token, turn.now))


def ask(turn: Turn, step: str, token: str, by: str) -> None:
    """Stop a live run before starting over; start an ended one over at once."""
    if turn.state.status.is_final:
        _next_life(turn, step, token, by)
        return
    turn.emit(s.RedriveAsked(step, token, by))
    interruption.make_way(turn)


def start_over(turn: Turn) -> None:
    """Start over after everything that was open has stopped."""
    body: Body = turn.body
    assert body.redrive is not None
    step, token, by = body.redrive
    turn.drop_timer(body.timer)
    _next_life(turn, step, token, by)


def _next_life(turn: Turn, step: str, token: str, by: str) -> None:
    arguments = jsontext.encode({"step": step, "token": token})
    turn.emit(e.RunReopened(turn.state.incarnation + 1, arguments, "", by))
    reopen(turn, step, token, by)


def reset_by(plan: StepPlan, step: str) -> tuple[str, ...]:
    """Everything that a redrive from a step resets: the steps that wait for it, and after a main step all cleanup."""
    if not step:
        return tuple(plan.order)
    reset = plan.downstream(step)
    if plan.block_of[step] == "steps":
        reset.update(name for block in BLOCKS[1:] for name in plan.blocks[block])
    reset.update(name for name, parent in plan.parents.items() if parent in reset)
    return tuple(name for name in plan.order if name in reset or plan.helped.get(name, name) in ("", *reset))
