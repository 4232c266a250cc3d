"""The steps of a Story's run: from its state, and from its events what its Engrams' code said when it failed."""

from collections.abc import Iterable
from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.resource import key_of
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.body import StepState as State
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.execution import Execution
from perdure.kernel.outcomes import Failed
from perdure.kernel.step_overview import DocumentPath, StepFailure, StepOverview, StepStatus
from perdure.kernel.values import Instant

_ENDS = {
    StoryPhase.SUCCEEDED: StepStatus.DONE,
    StoryPhase.COMPENSATED: StepStatus.DONE,
    StoryPhase.SKIPPED: StepStatus.SKIPPED,
    StoryPhase.CANCELED: StepStatus.CANCELLED,
    StoryPhase.FINISHED: StepStatus.CANCELLED,
    StoryPhase.ABORTED: StepStatus.CANCELLED,
}


def steps(execution: Execution, turns: Iterable[tuple[Instant, list[e.Event]]]) -> list[StepOverview]:
    body: Body = execution.body
    program: Program = execution.program
    if not body.plan.order:
        return []
    failures, attempts = _failures(turns)
    overview: dict[str, StepOverview] = {}
    top = []
    has_passed = True
    for name in body.plan.order:
        if name in body.plan.helped:
            continue
        state, parent = body.steps.get(name), body.plan.parents.get(name)
        block = body.plan.block_of[name]
        if block == body.block:
            has_passed = False
        if state is None and (has_passed or block != body.block) and not (parent and parent in overview):
            continue  # a block that is not reached, or whose steps were never needed
        step = overview[name] = StepOverview(name, program.steps[name].kind, _place(body, name, block, parent))
        if state is not None:
            _describe(execution, step, state)
        step.attempts = max(step.attempts, attempts.get(name, 0))
        for failure in failures.get(name, ()):
            step.fail(failure)
        if step.failure is None and state is not None and state.phase.is_failure:
            error = state.run.error if state.run is not None else None
            step.fail(StepFailure("" if error else str(state.reason), state.message, state.finished_at or 0))
        if parent is not None and parent in overview:
            overview[parent].steps[name] = step
        else:
            top.append(step)
    return top


def _describe(execution: Execution, step: StepOverview, state: State) -> None:
    step.visits = 1
    step.began_at, step.ended_at = state.started_at, state.finished_at
    step.state = _state(state)
    step.failed_visits = int(step.state is StepStatus.FAILED)
    step.open_visits = int(step.state.is_open)
    if step.state.is_open:
        step.due = state.due or (state.run.next_retry_at if state.run is not None else None)
        step.note = state.message
    elif step.state is StepStatus.SKIPPED:
        step.note = state.message
    if state.run is not None:
        step.attempts = state.run.retries + 1
    if state.child:
        step.child = execution.child_id(state.child)
    if state.fan is not None:
        step.items, step.items_done, step.items_failed = state.fan.total, state.fan.succeeded, state.fan.failed


def _state(state: State) -> StepStatus:
    if state.phase.is_terminal:
        return _ENDS.get(state.phase, StepStatus.FAILED)
    if state.phase is StoryPhase.RUNNING:
        return StepStatus.AT_WORK
    if state.reason == Reason.RETRY_SCHEDULED or (state.run is not None and state.run.next_retry_at is not None):
        return StepStatus.RETRIES
    return StepStatus.WAITS


def _place(body: Body, name: str, block: str, parent: str | None) -> tuple[str | int, ...]:
    names = body.plan.blocks[block]
    if parent is None:
        return ("spec", block, names.index(name))
    return ("spec", block, names.index(parent), "with", "steps", body.plan.branches[parent].index(name))


def _failures(
    turns: Iterable[tuple[Instant, list[e.Event]]],
) -> tuple[dict[str, list[StepFailure]], dict[str, int]]:
    """The first and the latest failure of each step's tasks, and how often each was tried."""
    tasks: dict[int, tuple[str, int]] = {}
    failures: dict[str, list[StepFailure]] = {}
    attempts: dict[str, int] = {}
    for at, events in turns:
        for event in events:
            if isinstance(event, e.RunReopened):
                failures.clear()
                attempts.clear()
            elif isinstance(event, e.TaskScheduled):
                name = event.path.rpartition("/")[2]
                tasks[event.task] = (name, event.attempt)
                attempts[name] = max(attempts.get(name, 0), event.attempt)
            elif isinstance(event, e.TaskEnded):
                name, attempt = tasks.pop(event.task, ("", 1))
                if isinstance(event.outcome, Failed):
                    failures.setdefault(name, [])[1:] = [StepFailure.of(event.outcome, at, attempt)]
    return failures, attempts


def line_of(text: bytes, place: DocumentPath) -> int | None:
    """The line of a step in the text that the run was started with; a bundle from the catalog has none."""
    bundle = jsontext.decode(text)
    step: Any = bundle["story"]
    lines = bundle.get("lines", {}).get("/".join(key_of(step)[1:]), {})
    for part in place:
        step = step[part]
    line: int | None = lines.get(step["name"])
    return line


def cause(execution: Execution) -> str:
    body: Body = execution.body
    for name in body.failed:
        branches = (branch for branch in body.plan.branches.get(name, ()) if branch in body.steps)
        cause = next((branch for branch in branches if body.steps[branch].phase.is_failure), name)
        if cause in body.steps:
            return f"{cause}: {body.steps[cause].message}"
    return ""
