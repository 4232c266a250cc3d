"""What the run of a Flow made of its Steps, read from its events beside the state they change."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.flow.plan.program import Program, pointer
from perdure.dialects.flow.run.migration import moved, renamed_site
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import SINGLE, Body, Step
from perdure.dialects.flow.state.folding import evolve
from perdure.dialects.flow.views.graph import draw, start_id
from perdure.kernel import events as e
from perdure.kernel.graphs.run_trace import Trace, Visit, VisitStatus
from perdure.kernel.json_values.values import Instant

Key = tuple[int, int]  # of a frame and a Step in it


class FlowTracer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.body = Body(program)
        self.trace = Trace()
        self.nodes = {node.id for node in draw(program).nodes}
        self.callers: dict[int, Visit | None] = {}  # by frame
        self.labels: dict[int, str] = {}

    def take(self, at: Instant, event: e.Event) -> None:
        tell = _TELLERS.get(type(event))
        if tell is not None:
            tell(self, event, at)
        evolve(self.body, event)

    def take_program(self, program: Program, mapping: Mapping[str, str]) -> None:
        steps = {
            pointer(frame.flow, "steps", scope.name): renamed_site(frame.flow, scope.name, mapping)
            for frame in self.body.frames.values()
            for scope in frame.stack
            if isinstance(scope, Step)
        }
        self.program = program
        self.body = moved(self.body, program, mapping)
        self.nodes = {node.id for node in draw(program).nodes}
        self.trace.redraw(steps, self.nodes)

    def site(self, frame: int, name: str) -> str:
        return self.program.flows[self.body.frames[frame].flow].steps[name].site

    def key(self, frame: int) -> Key | None:
        """Of the Step that a frame is in."""
        step = self.body.frames[frame].step
        return None if step is None else (frame, step.number)

    def enter(self, frame: int, name: str, number: int, at: Instant) -> None:
        parent, label = self.callers.get(frame), self.labels.get(frame, "")
        self.trace.enter((frame, number), self.site(frame, name), at, parent=parent, label=label)

    def opened(self, event: f.FrameOpened, at: Instant) -> None:
        self.callers[event.frame] = self._caller(event)
        inherited = self.labels.get(event.owner, "")
        self.labels[event.frame] = inherited if event.index == SINGLE else f"{inherited}[{event.index}]"
        flow = self.program.flows[event.flow]
        self.trace.passed.setdefault(start_id(flow.site), event.at)
        self.trace.passed.setdefault(flow.site or "/", event.at)
        if event.failure is None:
            self.trace.take(start_id(flow.site), flow.steps[flow.entrypoint].site)

    def _caller(self, event: f.FrameOpened) -> Visit | None:
        if event.owner not in self.body.frames:
            return None
        called = self.trace.visit(("call", event.owner, event.index))
        return called or self.trace.visit(self.key(event.owner)) or self.callers.get(event.owner)

    def entered(self, event: f.StepEntered, at: Instant) -> None:
        self.enter(event.frame, event.name, event.number, event.at)

    def left(self, event: f.StepLeft | f.StepAnswered, at: Instant) -> None:
        self._move_on(event, VisitStatus.DONE)

    def caught(self, event: f.StepCaught, at: Instant) -> None:
        self._move_on(event, VisitStatus.FAILED)

    def _move_on(self, event: f.StepLeft | f.StepAnswered | f.StepCaught, status: VisitStatus) -> None:
        key, step = self.key(event.frame), self.body.frames[event.frame].step
        if key is not None and step is not None:
            self.trace.leave(key, event.at, status)
            is_caught = status is VisitStatus.FAILED
            source = self.site(event.frame, step.name)
            self.trace.take(source, self.site(event.frame, event.next), exceptional=is_caught)
        self.enter(event.frame, event.next, event.number, event.at)

    def ended(self, event: f.StepEnded, at: Instant) -> None:
        if (key := self.key(event.frame)) is not None:
            self.trace.leave(key, at, VisitStatus.DONE if event.ok else VisitStatus.FAILED)

    def dropped(self, event: f.StepDropped, at: Instant) -> None:
        if (key := self.key(event.frame)) is not None:
            self.trace.leave(key, at, VisitStatus.CANCELLED)

    def slept(self, event: f.StepSlept, at: Instant) -> None:
        if (key := self.key(event.frame)) is not None:
            self.trace.begin(key, at, is_wait=True)

    def call_entered(self, event: f.CallEntered, at: Instant) -> None:
        key, step = self._reopened(event), self.body.frames[event.frame].step
        if event.call in self.nodes:
            parent = self.trace.visit(key) or self.callers.get(event.frame)
            self.trace.enter(self._call_key(event), event.call, event.at, parent=parent)
            self.trace.begin(self._call_key(event), event.at)
            source = None if step is None else self.site(event.frame, step.name)
            if source is not None:
                self.trace.take(source, event.call)
        elif key is not None:
            self.trace.begin(key, event.at)

    def _reopened(self, event: f.CallEntered | f.CallFaulted) -> Key | None:
        """The Step whose call begins; a redrive goes on with one that had ended."""
        key, step = self.key(event.frame), self.body.frames[event.frame].step
        if key is not None and step is not None and self.trace.visit(key) is None:
            self.enter(event.frame, step.name, step.number, event.at)
        return key

    def _call_key(self, event: Any) -> tuple[str, int, int]:
        return ("call", event.frame, event.index)

    def settled(self, event: f.CallSettled, at: Instant) -> None:
        self._end_call(event, event.at, event.ok)

    def faulted(self, event: f.CallFaulted, at: Instant) -> None:
        self._reopened(event)
        self._end_call(event, event.at, False)

    def call_left(self, event: f.CallLeft, at: Instant) -> None:
        self._end_call(event, at, event.ok)

    def _end_call(self, event: Any, at: Instant, ok: bool) -> None:
        if self.trace.visit(self._call_key(event)) is not None:
            self.trace.leave(self._call_key(event), at, VisitStatus.DONE if ok else VisitStatus.FAILED)
        elif (key := self.key(event.frame)) is not None:
            visit = self.trace.visit(key)
            pending = [stretch for stretch in visit.stretches if stretch.ended_at is None] if visit else []
            for stretch in pending[:1]:  # of several dispatches the one that began first
                stretch.ended_at, stretch.has_failed = at, not ok

    def gap_began(self, event: f.GapBegan, at: Instant) -> None:
        if (key := self.key(event.frame)) is not None:
            self.trace.end(key, event.at, has_failed=True)
            self.trace.begin(key, event.at, is_wait=True)

    def gap_ended(self, event: f.GapEnded | f.RunAgain, at: Instant) -> None:
        if (key := self.key(event.frame)) is not None:
            self.trace.end(key, event.at)

    def run_ended(self, event: e.RunEnded, at: Instant) -> None:
        self.trace.close(at, VisitStatus.CANCELLED)


_TELLERS: dict[type[e.Event], Callable[[FlowTracer, Any, Instant], None]] = {
    f.FrameOpened: FlowTracer.opened,
    f.StepEntered: FlowTracer.entered,
    f.StepLeft: FlowTracer.left,
    f.StepAnswered: FlowTracer.left,
    f.StepCaught: FlowTracer.caught,
    f.StepEnded: FlowTracer.ended,
    f.StepDropped: FlowTracer.dropped,
    f.StepSlept: FlowTracer.slept,
    f.CallEntered: FlowTracer.call_entered,
    f.CallSettled: FlowTracer.settled,
    f.CallFaulted: FlowTracer.faulted,
    f.CallLeft: FlowTracer.call_left,
    f.GapBegan: FlowTracer.gap_began,
    f.GapEnded: FlowTracer.gap_ended,
    f.RunAgain: FlowTracer.gap_ended,
    e.RunEnded: FlowTracer.run_ended,
}
