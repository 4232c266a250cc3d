"""What the run of a Story made of its steps, read from its events."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.plan.step_graph import block_id
from perdure.dialects.story.run.story_end import NOT_RUN
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.phases import StoryPhase
from perdure.kernel import events as e
from perdure.kernel.graphs.run_trace import Trace, VisitStatus
from perdure.kernel.json_values.values import Instant

_STATUSES = {
    StoryPhase.SUCCEEDED: VisitStatus.DONE,
    StoryPhase.FINISHED: VisitStatus.DONE,
    StoryPhase.SKIPPED: VisitStatus.SKIPPED,
    StoryPhase.CANCELED: VisitStatus.CANCELLED,
    StoryPhase.ABORTED: VisitStatus.CANCELLED,
}


class StoryTracer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.trace = Trace()
        self.block = "steps"
        self.reached: s.BlockEntered | None = None  # the event before this one

    def take(self, at: Instant, event: e.Event) -> None:
        if self.reached is not None:
            self._enter_block(self.reached, event)
        tell = _TELLERS.get(type(event))
        if tell is not None:
            tell(self, event, at)

    def take_program(self, program: Program, mapping: Mapping[str, str]) -> None:
        self.program = program
        for step, name in mapping.items():
            self.trace.move(step, name)
        self.trace.redraw(mapping, program.steps)

    def enter(self, step: str, at: Instant) -> None:
        """Unless it is queued or blocked already. Helpers of the engine are not in the document."""
        if self.trace.visit(step) is not None or step not in self.program.steps:
            return
        self.trace.enter(step, step, at, parent=self.trace.visit(self.program.steps[step].parent))
        plan = self.program.plan
        for needed in plan.waits.get(step, ()):
            if plan.block_of[needed] == plan.block_of[step]:
                self.trace.take(needed, step)

    def skipped(self, event: s.StepsSkipped, at: Instant) -> None:
        for step in event.steps:
            self.enter(step, event.at)
            self.trace.leave(step, event.at, VisitStatus.SKIPPED)

    def held_back(self, event: s.StepQueued | s.StepBlocked, at: Instant) -> None:
        self.enter(event.step, event.at)
        self.trace.begin(event.step, event.at, is_wait=True)

    def started(self, event: s.StepStarted, at: Instant) -> None:
        self.enter(event.step, event.at)
        self.trace.end(event.step, event.at)
        if event.phase == StoryPhase.PAUSED or event.due is not None:
            self.trace.begin(event.step, event.at, is_wait=True)

    def created(self, event: s.StepRunCreated, at: Instant) -> None:
        self.enter(event.step, event.at)

    def attempted(self, event: s.AttemptStarted | s.StepLaunched, at: Instant) -> None:
        self.enter(event.step, event.at)
        self.trace.begin(event.step, event.at)

    def retried(self, event: s.RetryScheduled, at: Instant) -> None:
        self.trace.end(event.step, event.at, has_failed=True)
        self.trace.begin(event.step, event.at, is_wait=True)

    def ended(self, event: s.StepEnded, at: Instant) -> None:
        self.enter(event.step, event.at)
        self.trace.leave(event.step, event.at, _STATUSES.get(StoryPhase(event.phase), VisitStatus.FAILED))

    def block_reached(self, event: s.BlockEntered, at: Instant) -> None:
        self.reached = event

    def _enter_block(self, reached: s.BlockEntered, following: e.Event) -> None:
        """Unless it does not run: then all of its steps are skipped at once, because of what was before."""
        self.reached = None
        if isinstance(following, s.StepsSkipped) and following.message.startswith(NOT_RUN):
            return
        if reached.block != self.block:
            is_cleanup = reached.block == "compensations"
            self.trace.take(block_id(self.block), block_id(reached.block), exceptional=is_cleanup)
        self.block = reached.block
        self.trace.passed.setdefault(block_id(reached.block), reached.at)

    def redriven(self, event: s.Redriven, at: Instant) -> None:
        self.block = "steps"

    def run_ended(self, event: e.RunEnded, at: Instant) -> None:
        self.trace.close(at, VisitStatus.CANCELLED)


_TELLERS: dict[type[e.Event], Callable[[StoryTracer, Any, Instant], None]] = {
    s.StepsSkipped: StoryTracer.skipped,
    s.StepQueued: StoryTracer.held_back,
    s.StepBlocked: StoryTracer.held_back,
    s.StepStarted: StoryTracer.started,
    s.StepRunCreated: StoryTracer.created,
    s.AttemptStarted: StoryTracer.attempted,
    s.StepLaunched: StoryTracer.attempted,
    s.RetryScheduled: StoryTracer.retried,
    s.StepEnded: StoryTracer.ended,
    s.BlockEntered: StoryTracer.block_reached,
    s.Redriven: StoryTracer.redriven,
    e.RunEnded: StoryTracer.run_ended,
}
