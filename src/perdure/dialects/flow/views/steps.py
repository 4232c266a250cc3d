"""The Steps of a Flow's run, from its events. Steps of a called Flow stand under the Step that calls it."""

from typing import Any

from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import GAP, Body, Frame, Kind, MiddlewareScope
from perdure.dialects.flow.state.values import Carried, Cell
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
from perdure.kernel.ids import child_run
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.json_positions import place_of
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Failed

OUTSIDE = "(middleware of the Flow)"


def delays(execution: Execution) -> dict[int, StepDelay]:
    body: Body = execution.body
    delays_by_task = {}
    for timer, (number, index) in body.waits.items():
        if timer in execution.state.timers:
            step = _path(body, number)
            delays_by_task[timer] = _retry(body.frames[number], step, timer) if index == GAP else StepDelay(step)
    return delays_by_task


def _path(body: Body, number: int) -> str:
    """Of the Step that a frame is in, with the Steps that have called it."""
    names: list[str] = []
    while (frame := body.frames.get(number)) is not None:
        names += [frame.step.name] if frame.step is not None else []
        number = frame.owner
    return " › ".join(reversed(names)) or OUTSIDE


def _retry(frame: Frame, step: str, timer: int) -> StepDelay:
    """How many attempts there are is certain if there is one policy: each has a budget of its own."""
    scope = next((scope for scope in frame.stack if isinstance(scope, MiddlewareScope) and scope.timer == timer), None)
    metadata = _inline(None if scope is None else scope.metadata)
    policies = _inline(None if scope is None else scope.config)
    attempt = metadata.get("attempt", 0) if isinstance(metadata, dict) else 0
    is_one = isinstance(policies, list) and len(policies) == 1 and isinstance(policies[0], dict)
    return StepDelay(step, attempt, policies[0].get("attempts", 0) if is_one else 0)


def _inline(cell: Cell | None) -> Any:
    """The value unless it is kept beside the log."""
    return jsontext.decode(cell.payload) if cell is not None and isinstance(cell.payload, bytes) else None


def line_of(text: bytes, place: DocumentPath) -> int | None:
    if b"\n" not in text.strip():
        return None  # written by a program: the path says more
    position = place_of(text.decode("utf-8", "replace"), place)
    return None if position is None else position[0]


class _Frame:
    __slots__ = ("attempts", "caller", "current", "flow", "index", "is_ok", "last", "siblings")

    def __init__(self, flow: str, siblings: dict[str, StepOverview], index: int) -> None:
        self.flow = flow
        self.siblings = siblings
        self.index = index
        self.current: StepOverview | None = None
        self.last: StepOverview | None = None  # the one that it was in before
        self.caller: StepOverview | None = None  # the Gather whose dispatch it is
        self.is_ok = True
        self.attempts: dict[int, int] = {}  # by dispatch, of the current Step


class FlowStepReader(StepReader):
    def __init__(self, run: RunId, program: Program) -> None:
        super().__init__()
        self.top: dict[str, StepOverview] = {}
        self.turn_seq = 0  # of the last event before its turn
        self._turn = 0
        self._run = run
        self._program = program
        self._frames: dict[int, _Frame] = {}
        self._failed: dict[int, _Frame] = {}  # closed; a redrive puts them back
        self._tasks: dict[int, tuple[StepOverview, int, int]] = {}  # with dispatch and attempt
        self._dues: dict[int, Instant] = {}

    def take_program(self, program: Program) -> None:
        self._program = program

    def steps(self, execution: Execution) -> list[StepOverview]:
        return [step.copy() for step in self.top.values()]

    def take(self, turn: int, at: Instant, event: e.Event) -> None:
        if turn != self._turn:
            self._turn, self.turn_seq = turn, self.seq
        self.seq += 1
        match event:
            case e.TimerSet():
                self._dues[event.timer] = event.due
            case e.TimerFired() | e.TimerDropped():
                self._dues.pop(event.timer, None)
            case e.TaskEnded():
                self._task_ended(event, at)
            case e.ChildEnded(child, _, Failed() as failed) if child in self._tasks:
                step, index, attempt = self._tasks.pop(child)
                step.fail(StepFailure.of(failed, at, attempt, self.seq, index))
            case f.FrameOpened():
                owner = self._frames.get(event.owner)
                siblings = self.top if owner is None or owner.current is None else owner.current.steps
                opened = self._frames[event.frame] = _Frame(event.flow, siblings, event.index)
                opened.caller = None if owner is None or event.index < 0 else owner.current
                opened.is_ok = event.failure is None
            case f.FrameClosed():
                closed = self._frames.pop(event.frame, None)
                if closed is not None and not closed.is_ok:
                    self._failed[event.frame] = closed
                if closed is not None and closed.caller is not None:
                    closed.caller.items_done += closed.is_ok
                    closed.caller.items_failed += not closed.is_ok
            case f.FrameRenewed():
                self._renew(event.frame, at)
            case _ if (frame := self._frames.get(getattr(event, "frame", -1))) is not None:
                self._in_frame(frame, event, at)
            case _:
                pass

    def _in_frame(self, frame: _Frame, event: e.Event, at: Instant) -> None:
        match event:
            case f.StepEntered(_, name):
                self._enter(frame, name, at)
            case f.StepLeft() | f.StepAnswered():
                self._leave(frame, StepStatus.DONE, at)
                self._enter(frame, event.next, at)
            case f.StepCaught():
                self._leave(frame, StepStatus.CAUGHT, at)
                self._enter(frame, event.next, at)
            case f.StepEnded():
                frame.is_ok = event.ok
                self._leave(frame, StepStatus.DONE if event.ok else StepStatus.FAILED, at)
            case f.StepDropped():
                frame.is_ok = False
                self._leave(frame, StepStatus.CANCELLED, at)
            case f.StepFailed(_, failure):
                self._note_failure(frame, failure, at)
            case f.StepSlept(_, timer):
                self._wait(frame, StepStatus.WAITS, self._dues.get(timer))
            case f.GapBegan():
                self._wait(frame, StepStatus.RETRIES, self._dues.get(event.timer))
            case f.GapEnded() | f.RunAgain():
                self._wait(frame, StepStatus.AT_WORK, None)
            case f.CallEntered():
                self._call(frame, event)
            case f.CallFaulted(_, _, _, _, failure):
                self._note_failure(frame, failure, at)
            case f.CallSettled() if event.index >= 0 and frame.current is not None:
                frame.current.items_done += event.ok
                frame.current.items_failed += not event.ok
            case f.GatherBegan() if frame.current is not None:
                frame.current.items += event.total
            case _:
                pass

    def _renew(self, number: int, at: Instant) -> None:
        """A redrive goes on in the Step that had failed, or was cancelled; what failed in it is tried again."""
        frame = self._frames.get(number) or self._failed.pop(number, None)
        if frame is None:
            return
        self._frames[number] = frame
        if frame.caller is not None and not frame.is_ok:
            frame.caller.items_failed = max(0, frame.caller.items_failed - 1)
        frame.is_ok = True
        step = frame.last
        if frame.current is None and step is not None and step.state in (StepStatus.FAILED, StepStatus.CANCELLED):
            step.items_failed = 0
            frame.current, frame.attempts = step, {}
            step.enter(at, self.seq)

    def _enter(self, frame: _Frame, name: str, at: Instant) -> None:
        if not name:
            return
        step = frame.siblings.get(name)
        if step is None:
            step = frame.siblings[name] = self._described(frame.flow, name)
        frame.current = step
        frame.attempts = {}
        step.enter(at, self.seq)

    def _described(self, flow: str, name: str) -> StepOverview:
        declared = self._program.flows.get(flow)
        step = None if declared is None else declared.steps.get(name)
        if step is None:
            return StepOverview(name)
        parts = (part.replace("~1", "/").replace("~0", "~") for part in step.site.split("/")[1:])
        place = tuple(int(part) if part.isdecimal() and len(part) <= 18 else part for part in parts)
        return StepOverview(name, step.action.name, place)

    def _leave(self, frame: _Frame, state: StepStatus, at: Instant) -> None:
        if frame.current is not None:
            frame.current.leave(state, at, self.seq)
            frame.current, frame.last = None, frame.current

    def _wait(self, frame: _Frame, state: StepStatus, due: Instant | None) -> None:
        if frame.current is not None:
            frame.current.state, frame.current.due = state, due

    def _call(self, frame: _Frame, event: f.CallEntered) -> None:
        if event.kind not in (Kind.TASK, Kind.CHILD):
            return
        step = frame.current
        if step is None:
            step = frame.siblings.setdefault(OUTSIDE, StepOverview(OUTSIDE))
        attempt = frame.attempts[event.index] = frame.attempts.get(event.index, 0) + 1
        step.attempts += 1
        item = event.index if event.index >= 0 else frame.index
        self._tasks[event.target] = (step, item, attempt)
        if event.kind == Kind.CHILD:
            step.child, step.child_seq = child_run(self._run, event.target), self.seq

    def _task_ended(self, event: e.TaskEnded, at: Instant) -> None:
        step, index, attempt = self._tasks.pop(event.task, (None, -1, 1))
        if step is not None and isinstance(event.outcome, Failed):
            step.fail(StepFailure.of(event.outcome, at, attempt, self.seq, index))

    def _note_failure(self, frame: _Frame, carried: Carried, at: Instant) -> None:
        """A failure that no task has reported: an expression, a Raise, an unmet Gather."""
        step = frame.current
        envelope = _first_cause(carried)
        if step is None or envelope is None or (step.failure is not None and step.failure.seq > self.turn_seq):
            return
        details = envelope.get("details")
        frames = frames_of(jsontext.encode(details)) if isinstance(details, dict) else ()
        attempt = max(frame.attempts.values(), default=1)
        message, code = str(envelope.get("message", "")), str(envelope.get("code", ""))
        step.fail(StepFailure(code, message, at, attempt, item=frame.index, frames=frames, seq=self.seq))


def _first_cause(carried: Carried) -> dict[str, Any] | None:
    if isinstance(carried, dict):
        links = carried.get("links")
        carried = links[0] if links else b""
    if not isinstance(carried, bytes) or not carried:
        return None
    envelope = jsontext.decode(carried)
    while isinstance(envelope, dict) and isinstance(envelope.get("previous"), dict):
        envelope = envelope["previous"]
    return envelope if isinstance(envelope, dict) else None
