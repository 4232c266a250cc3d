"""The next internal move of a run, in a fixed order (STY-056, STY-078).

First the failure policy, then waits that may be over, then steps in story order, then the end of the block: so the
order is the same after a crash.
"""

from perdure.dialects.story.plan.helper_steps import IF
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.run import redrive, run_start, story_end, topology_start
from perdure.dialects.story.run.step_end import end_step, error_text, skip
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.values import materialize
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.turn import Turn

FAIL_FAST = "Skipped due to fail-fast policy"  # STY-064
IF_FALSE = "Skipped due to 'if' condition"  # STY-060


def advance(turn: Turn) -> bool:
    body: Body = turn.body
    program: Program = turn.program
    try:
        if not body.begun:
            run_start.begin(turn)
        elif not program.is_batch and program.streams(body.block) and body.topology is None and body.unstarted:
            return topology_start.start(turn)
        elif body.failed and _fails_fast(turn):
            skip(turn, [name for name in body.unstarted if name not in body.plan.parents], FAIL_FAST)
        elif body.stale:
            name = next(iter(body.stale))
            step = program.steps[name]
            STEP_KINDS[step.kind].resume(turn, step, body.steps[name])
        elif body.agenda:
            _move(turn, program.step(next(iter(body.agenda))))
        elif body.open or body.helping:
            return False
        elif body.redrive is not None:
            redrive.start_over(turn)
        else:
            story_end.next_block(turn)
    except materialize.HelperNeeded as request:
        materialize.ask(turn, request)
    return True


def _fails_fast(turn: Turn) -> bool:
    """Whether a failure in the main block keeps all unstarted steps from starting (STY-064)."""
    body: Body = turn.body
    if body.block != "steps" or turn.program.continues_on_failure:
        return False
    return any(name not in body.plan.parents for name in body.unstarted)


def _move(turn: Turn, step: Step) -> None:
    body: Body = turn.body
    state = body.steps.get(step.name)
    if state is not None and state.has_begun:
        STEP_KINDS[step.kind].resume(turn, step, state)
        return
    if state is None and not _may_start(turn, step):
        return
    STEP_KINDS[step.kind].start(turn, step)


def _may_start(turn: Turn, step: Step) -> bool:
    """Decide once, before a step starts: dependencies, `if`, requirements. False: the step has already ended."""
    if step.purpose:
        return True
    failed = _failed_dependency(turn, step)
    if failed is not None:
        skip(turn, [step.name], f"Skipped due to failed dependency: {failed}", follows_failure=True)
        return False
    condition = step.condition
    try:
        holds = not condition or not condition.strip() or Scope(turn, step, f"{step.name}.if").holds(condition, IF)
    except ExpressionError as problem:  # what it reads no longer changes (STY-062)
        end_step(turn, step.name, StoryPhase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
        return False
    if not holds:
        skip(turn, [step.name], IF_FALSE)
        return False
    if STEP_KINDS[step.kind].checks_requires:  # checked later, and reported in the StepRun
        return True
    missing = Scope(turn, step).unmet(step.data.get("requires"))
    if missing is not None:
        end_step(turn, step.name, StoryPhase.FAILED, missing, reason=Reason.DEPENDENCY_FAILED)
    return missing is None


def _failed_dependency(turn: Turn, step: Step) -> str | None:
    """The first dependency that failed, or was skipped after a failure, and so keeps a main step from running
    (STY-066, 067).
    """
    body: Body = turn.body
    program: Program = turn.program
    if step.block != "steps" or step.parent:
        return None
    failed = []
    states, plan = body.steps, program.plan
    for name in plan.waits[step.name]:
        state = states.get(name)
        if state is None:
            continue
        if state.follows_failure or (state.phase.is_failure and name not in plan.allowed_to_fail):
            failed.append(name)
    return min(failed, key=plan.order.__getitem__) if failed else None
