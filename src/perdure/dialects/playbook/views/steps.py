"""The steps of a Playbook's run, from its history: steps with their tasks, loops with counts."""

from typing import Any

from perdure.dialects.playbook.plan.program import Directive, Program, Task
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.views.history import entries_of
from perdure.dialects.playbook.views.history.entries import HistoryEntry, HistoryState
from perdure.documents.errors import UnreadableText
from perdure.documents.reader import read_document
from perdure.kernel import events as e
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import (
    DocumentPath,
    StepDelay,
    StepFailure,
    StepOverview,
    StepReader,
    StepStatus,
    frames_of,
)
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId

_STEP_ENDS = {
    "step.done": StepStatus.DONE,
    "loop.done": StepStatus.DONE,
    "step.failed": StepStatus.FAILED,
    "step.cancelled": StepStatus.CANCELLED,
}


def delays(execution: Execution) -> dict[int, StepDelay]:
    body: b.Body = execution.body
    program: Program = execution.program
    delays_by_task = {}
    for thread in body.threads.values():
        run = body.runs.get(thread.run)
        if thread.phase is b.ThreadPhase.RESTING and run is not None and thread.number in execution.state.timers:
            task = program.steps[run.step].task_at(thread.position)
            name = run.step if len(program.steps[run.step].tasks) == 1 else f"{run.step} › {task.label}"
            delays_by_task[thread.number] = StepDelay(name, thread.attempt, _attempts(task))
    return delays_by_task


def _attempts(task: Task) -> int:
    """The limit of the task's retry rules, if it has one limit."""
    rules = () if task.policy is None else task.policy.rules
    limits = {rule.then.attempts for rule in rules if rule.then.do is Directive.RETRY}
    return limits.pop() if len(limits) == 1 else 0


def line_of(text: bytes, place: DocumentPath) -> int | None:
    """The line of a step (`(name,)`) or of one of its tasks (`(name, label)`)."""
    try:
        document = read_document(text)
    except UnreadableText:
        return None
    workflow = document.data.get("workflow") if isinstance(document.data, dict) else None
    for index, step in enumerate(workflow if isinstance(workflow, list) else ()):
        if isinstance(step, dict) and place and step.get("step") == place[0]:
            path: list[str | int] = ["workflow", index]
            tools = step.get("tool")
            for position, task in enumerate(tools if isinstance(tools, list) and len(place) > 1 else ()):
                if isinstance(task, dict) and (place[1] in task or task.get("name") == place[1]):
                    path += ["tool", position]
                    break
            return document.place_of(tuple(path))[0]
    return None


class PlaybookStepReader(StepReader):
    def __init__(self, run: RunId, program: Program) -> None:
        super().__init__()
        self._told = HistoryState(run=run)
        self._steps: dict[str, StepOverview] = {}
        self._failed_in: dict[str, int] = {}  # the turn of each step's latest failure
        self._has_many_tasks: dict[str, bool] = {}
        self.take_program(program)

    def take_program(self, program: Program) -> None:
        self._has_many_tasks |= {name: len(step.tasks) > 1 for name, step in program.steps.items()}

    def steps(self, execution: Execution) -> list[StepOverview]:
        steps = {name: step.copy() for name, step in self._steps.items()}
        _add_waits(steps, execution)
        return list(steps.values())

    def take(self, turn: int, at: Instant, event: e.Event) -> None:
        for entry in entries_of(self._told, event):
            self.seq += 1
            name, kind = entry.rest.get("step"), entry.name
            if name and kind.startswith(("step.", "task.", "loop.")):
                self._take_entry(self._step(name), entry, turn, at)

    def _take_entry(self, step: StepOverview, entry: HistoryEntry, turn: int, at: Instant) -> None:
        kind, payload = entry.name, entry.payload
        match kind:
            case "step.started":
                step.enter(at, self.seq)
            case "step.done" | "loop.done" | "step.failed" | "step.cancelled":
                step.leave(_STEP_ENDS[kind], at, self.seq)
                if kind == "step.failed" and self._failed_in.get(step.name) != turn:  # no attempt of it did
                    self._fail(step, payload.get("error"), at, entry.rest)
            case "loop.started":
                step.items += payload.get("total") or 0
            case "loop.frame.claimed":
                step.items += payload["iterations"]
            case "loop.iteration.done" | "loop.shard.done":
                step.items_done += 1
            case "loop.iteration.failed" | "loop.shard.failed":
                step.items_failed += 1
            case _ if kind.startswith("task."):
                if kind == "task.attempt.failed":
                    self._failed_in[step.name] = turn
                self._take_task(step, entry, at)
            case _:
                pass

    def _take_task(self, step: StepOverview, entry: HistoryEntry, at: Instant) -> None:
        kind, payload = entry.name, entry.payload
        task = self._task(step, str(entry.rest.get("task") or ""))
        match kind:
            case "task.started":
                task.kind = task.kind or str(payload.get("kind") or "")
                if task is not step:
                    task.enter(at, self.seq)
            case "task.attempt.started":
                for item in {id(task): task, id(step): step}.values():
                    item.attempts += 1
                    item.child, item.child_seq = RunId(payload.get("child_execution_id", "")), self.seq
                    item.state, item.due = StepStatus.AT_WORK, None
            case "task.attempt.failed":
                error = (payload.get("outcome") or {}).get("error")
                for item in {id(task): task, id(step): step}.values():
                    self._fail(item, error, at, entry.rest)
            case "task.done" | "task.failed" if task is not step:
                task.leave(StepStatus.DONE if kind == "task.done" else StepStatus.FAILED, at, self.seq)
            case _:
                pass

    def _step(self, name: str) -> StepOverview:
        return _entry_of(self._steps, name)

    def _task(self, step: StepOverview, label: str) -> StepOverview:
        """A task of a pipeline; the only task of a step is the step."""
        if not self._has_many_tasks.get(step.name):
            return step
        return step.steps.get(label) or step.steps.setdefault(label, StepOverview(label, place=(step.name, label)))

    def _fail(self, step: StepOverview, error: Any, at: Instant, ids: dict[str, Any]) -> None:
        if not isinstance(error, dict):
            return
        details = error.get("details")
        frames = frames_of(jsontext.encode(details)) if isinstance(details, dict) else ()
        code = str(error.get("code") or error.get("kind") or "")
        item, label = ids.get("iteration"), str(ids.get("task") or "")
        step.fail(
            StepFailure(
                code,
                str(error.get("message") or ""),
                at,
                ids.get("attempt") or (0 if step.failure is None else step.failure.attempt),
                "" if label == f"{ids['step']}_task" else label,  # the name of a task that has none
                item if isinstance(item, int) else -1,
                frames,
                seq=self.seq,
            )
        )


def _add_waits(steps: dict[str, StepOverview], execution: Execution) -> None:
    """What the history does not say: tokens that wait for their gate, and when a next try is made."""
    body: b.Body = execution.body
    for number in body.pending:
        step = _entry_of(steps, body.tokens[number].step)
        step.state, step.note = StepStatus.WAITS, "its gate does not admit it yet"
    for thread in body.threads.values():
        timer = execution.state.timers.get(thread.number)
        run = body.runs.get(thread.run)
        if timer is not None and run is not None and thread.phase is b.ThreadPhase.RESTING:
            step = _entry_of(steps, run.step)
            step.state, step.due = StepStatus.RETRIES, timer.due


def _entry_of(steps: dict[str, StepOverview], name: str) -> StepOverview:
    return steps.get(name) or steps.setdefault(name, StepOverview(name, place=(name,)))
