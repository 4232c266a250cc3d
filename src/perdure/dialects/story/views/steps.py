"""The steps of a Story's run: from its state, and from its events what its Engrams' code said when it failed."""

from typing import Any

from perdure.dialects.story.plan.execution_policy import ExecutionPolicy
from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.resource import key_of
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import REDUCE, Body, StepRun
from perdure.dialects.story.state.body import StepState as State
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.views.history import describer
from perdure.dialects.story.views.step_runs import TextReader, resources_of
from perdure.dialects.story.views.stream_views import describe_worker
from perdure.kernel import events as e
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import (
    DocumentPath,
    StepDelay,
    StepFailure,
    StepOverview,
    StepReader,
    StepStatus,
)
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Failed
from perdure.kernel.turn import MissingValues

_ENDS = {
    StoryPhase.SUCCEEDED: StepStatus.DONE,
    StoryPhase.COMPENSATED: StepStatus.DONE,
    StoryPhase.SKIPPED: StepStatus.SKIPPED,
    StoryPhase.CANCELED: StepStatus.CANCELLED,
    StoryPhase.FINISHED: StepStatus.CANCELLED,
    StoryPhase.ABORTED: StepStatus.CANCELLED,
}


class StoryStepReader(StepReader):
    def __init__(self, run: RunId, program: Program) -> None:
        super().__init__()
        self._describe = describer()
        self._events = _StepEvents()

    def take(self, turn: int, at: Instant, event: e.Event) -> None:
        first, entries = self._describe(event)
        self._events.take(event, at, first)
        self.seq += len(entries)

    def steps(self, execution: Execution) -> list[StepOverview]:
        return _steps(execution, self._events)


def _steps(execution: Execution, events: "_StepEvents") -> list[StepOverview]:
    body: Body = execution.body
    program: Program = execution.program
    if not body.plan.order:
        return []
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
            step.began_seq = events.began.get(name, 0)
            step.ended_seq = events.ended.get(name, 0)
            step.child_seq = events.children.get(state.child, 0)
        step.items, step.items_done, step.items_failed = events.items.get(name, (0, 0, 0))
        step.attempts = max(step.attempts, events.attempts.get(name, 0))
        for failure in events.failures.get(name, ()):
            step.fail(failure)
        if step.failure is None and state is not None and state.phase.is_failure:
            error = state.run.error if state.run is not None else None
            code = "" if error else str(state.reason)
            step.fail(StepFailure(code, state.message, state.finished_at or 0, seq=step.ended_seq))
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
        describe_worker(execution, step, state)
    elif step.state is StepStatus.SKIPPED:
        step.note = state.message
    if state.run is not None:
        step.attempts = state.run.retries + 1
    if state.child:
        step.child = execution.child_id(state.child)


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


class _StepEvents:
    """What only the events tell of the steps, by step."""

    def __init__(self) -> None:
        self.began: dict[str, int] = {}  # the number of the event, as for the next two
        self.ended: dict[str, int] = {}
        self.children: dict[int, int] = {}  # by child
        self.failures: dict[str, list[StepFailure]] = {}  # of its tasks: the first and the latest
        self.attempts: dict[str, int] = {}
        self.items: dict[str, list[int]] = {}  # of a map: all, done, failed
        self._tasks: dict[int, tuple[str, int]] = {}  # step and attempt

    def take(self, event: e.Event, at: Instant, seq: int) -> None:
        match event:
            case s.StepQueued() | s.StepBlocked():
                self.began.setdefault(event.step, seq)
            case s.FanBegan():
                self.began[event.step] = seq
                self.items[event.step] = [event.total, 0, 0]
            case s.FanChildEnded() if event.index != REDUCE and event.step in self.items:
                self.items[event.step][1 if event.phase == StoryPhase.SUCCEEDED else 2] += 1
            case s.StepStarted() | s.StepRunCreated() | s.StepLaunched():
                self.began[event.step] = seq
            case s.StepEnded():
                self.ended[event.step] = seq
            case s.StepsSkipped():
                self.ended |= {step: number for number, step in enumerate(event.steps, seq)}
            case s.Redriven():
                for step in event.steps:
                    self.began.pop(step, None)
                    self.ended.pop(step, None)
            case e.ChildStarted():
                self.children[event.child] = seq
            case e.RunReopened():
                self.failures.clear()
                self.attempts.clear()
            case e.TaskScheduled():
                name = event.path.rpartition("/")[2]
                self._tasks[event.task] = (name, event.attempt)
                self.attempts[name] = max(self.attempts.get(name, 0), event.attempt)
            case e.TaskEnded():
                name, attempt = self._tasks.pop(event.task, ("", 1))
                if isinstance(event.outcome, Failed):
                    self.failures.setdefault(name, [])[1:] = [StepFailure.of(event.outcome, at, attempt, seq)]
            case _:
                pass


def delays(execution: Execution) -> dict[int, StepDelay]:
    """Retries, sleeps, and the next look of a step at what it waits for."""
    body: Body = execution.body
    delays_by_task = {}
    for timer, name in body.timers.items():
        state = body.steps.get(name)
        if state is None or timer not in execution.state.timers:
            continue
        parent = body.plan.parents.get(name)
        path = name if parent is None else f"{parent} › {name}"
        run = state.run if timer == state.poll and state.reason == Reason.RETRY_SCHEDULED else None
        delays_by_task[timer] = (
            StepDelay(path) if run is None else StepDelay(path, run.retries + 1, _attempts(execution, name, run))
        )
    return delays_by_task


def _attempts(execution: Execution, name: str, run: StepRun) -> int:
    program: Program = execution.program
    try:
        engram, template = resources_of(program, execution.body, run, TextReader({}))
    except MissingValues:  # kept beside the log
        return 0
    return ExecutionPolicy(program, program.step(name), engram, template).retry().most + 1


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
