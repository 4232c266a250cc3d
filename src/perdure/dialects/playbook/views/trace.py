"""What the run of a Playbook made of its steps and tasks, read from its events beside the state they change."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.playbook.plan.program import Directive, Program, Step
from perdure.dialects.playbook.run.migration import moved
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.folding import evolve
from perdure.dialects.playbook.views.graph import draw, guard_text, has_frame, step_id, task_id
from perdure.dialects.playbook.views.history import expand
from perdure.kernel import events as e
from perdure.kernel.graphs.run_trace import Trace, VisitStatus
from perdure.kernel.json_values.values import Instant


class PlaybookTracer:
    """Visits of steps by token, then by run; those of tasks in a pipeline by thread."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.body = b.Body()
        self.trace = Trace()

    def take(self, at: Instant, event: e.Event) -> None:
        for fact in expand(event):
            tell = _TELLERS.get(type(fact))
            if tell is not None:
                tell(self, fact, at)
            evolve(self.body, fact)

    def take_program(self, program: Program, mapping: Mapping[str, str]) -> None:
        self.program = program
        self.body = moved(self.body, program, mapping)
        nodes = {node.id for node in draw(program).nodes}
        self.trace.redraw({step_id(step): step_id(name) for step, name in mapping.items()}, nodes)

    def step_of(self, run: int) -> Step:
        return self.program.steps[self.body.runs[run].step]

    def judged(self, event: p.AdmissionJudged, at: Instant) -> None:
        token = self.body.tokens[event.token]
        key = ("token", event.token)
        if event.fate == "pending" and self.trace.visit(key) is None:
            self.trace.enter(key, step_id(token.step), at)
            self.trace.begin(key, at, is_wait=True)
        elif event.fate == "discarded":
            self._discard(event.token, at)

    def dropped(self, event: p.TokenDropped, at: Instant) -> None:
        self._discard(event.token, at)

    def _discard(self, token: int, at: Instant) -> None:
        key = ("token", token)
        if self.trace.visit(key) is None:
            self.trace.enter(key, step_id(self.body.tokens[token].step), at)
        self.trace.leave(key, at, VisitStatus.SKIPPED)

    def reached(self, event: p.JoinReached, at: Instant) -> None:
        step = step_id(self.body.tokens[event.token].step)
        if not event.is_late and self.trace.visit(("join", step, event.fork)) is None:
            self.trace.enter(("join", step, event.fork), step, at)
            self.trace.begin(("join", step, event.fork), at, is_wait=True)

    def joined(self, event: p.JoinCompleted | p.JoinExpired, at: Instant) -> None:
        self.trace.move(("join", step_id(event.step), event.fork), ("token", event.token.token))

    def not_joined(self, event: p.JoinFailed, at: Instant) -> None:
        self.trace.leave(("join", step_id(event.step), event.fork), at, VisitStatus.FAILED)

    def started(self, event: p.StepStarted, at: Instant) -> None:
        token, run = ("token", event.token), ("run", event.run)
        if self.trace.visit(token) is not None:
            self.trace.move(token, run)
            self.trace.end(run, event.at)
        else:
            self.trace.enter(run, step_id(self.body.tokens[event.token].step), event.at)

    def attempt_started(self, event: p.AttemptStarted, at: Instant) -> None:
        thread = self.body.threads[event.thread]
        if thread.index < b.ALONE:
            return  # a claim of the loop, which is not one of its tasks
        step = self.step_of(thread.run)
        key: tuple[str, int] = ("run", thread.run)
        if has_frame(step):
            key = ("thread", event.thread)
            node = self._task(step, event.label)
            visit = self.trace.visit(key)
            if visit is None or visit.node != node:
                self.trace.leave(key, event.at, VisitStatus.DONE)
                label = "" if thread.index == b.ALONE else f"[{thread.index}]"
                self.trace.enter(key, node, event.at, parent=self.trace.visit(("run", thread.run)), label=label)
        self.trace.begin(key, event.at)

    def _task(self, step: Step, label: str) -> str:
        return next((task_id(step, task) for task in step.tasks if task.label == label), step_id(step.name))

    def attempt_ended(self, event: p.AttemptEnded, at: Instant) -> None:
        thread = self.body.threads[event.thread]
        for key in (("thread", event.thread), ("run", thread.run)) if thread.index >= b.ALONE else ():
            if self.trace.visit(key) is not None:
                self.trace.end(key, event.at, has_failed=event.error is not None)
                return

    def outcome_judged(self, event: p.OutcomeJudged, at: Instant) -> None:
        """Which rule of a task was followed, and where it leads."""
        thread = self.body.threads[event.thread]
        if thread.index < b.ALONE:
            return
        step = self.step_of(thread.run)
        key: tuple[str, int] = ("thread", event.thread) if has_frame(step) else ("run", thread.run)
        source = self._task(step, event.label)
        if event.directive == Directive.RETRY:
            self.trace.take(source, source, exceptional=True)
            if event.fate == "resting":
                self.trace.begin(key, at, is_wait=True)
            return
        if event.directive == Directive.JUMP and event.fate in ("ready", "resting"):
            self.trace.take(source, task_id(step, step.tasks[event.to]))
        if not has_frame(step):
            return
        if event.directive == Directive.CONTINUE and event.fate == "ready":
            self.trace.take(source, task_id(step, step.tasks[event.to]))
        elif event.directive == Directive.BREAK:
            self.trace.take(source, step_id(step.name))
        elif event.fate == "failed":
            self.trace.take(source, step_id(step.name), exceptional=True)
        self.trace.leave(key, at, VisitStatus.FAILED if event.fate == "failed" else VisitStatus.DONE)

    def ended(self, event: p.StepEnded, at: Instant) -> None:
        status = VisitStatus.DONE if event.error is None else VisitStatus.FAILED
        self.trace.leave(("run", event.run), event.at, status)

    def routed(self, event: p.NextEvaluated, at: Instant) -> None:
        step = self.step_of(event.run)
        self.trace.leave(("run", event.run), event.at, VisitStatus.DONE)
        for new in event.tokens:
            arcs = step.router.arcs if step.router is not None else ()
            label = guard_text(arcs[new.arc].when) if 0 <= new.arc < len(arcs) else None
            for exceptional in (False, True):
                self.trace.take(step_id(step.name), step_id(new.step), label, exceptional=exceptional)

    def withdrawn(self, event: p.RunWithdrawn, at: Instant) -> None:
        for thread in self.body.runs[event.run].threads:
            self.trace.leave(("thread", thread), at, VisitStatus.CANCELLED)
        self.trace.leave(("run", event.run), at, VisitStatus.CANCELLED)

    def quiesced(self, event: p.WorkflowQuiesced, at: Instant) -> None:
        """The final step begins; it follows every step that led nowhere else."""
        for step in self.program.steps.values():
            if (step.router is None or not step.router.arcs) and step_id(step.name) in self._visited():
                self.trace.take(step_id(step.name), step_id(event.token.step))

    def _visited(self) -> set[str]:
        return {visit.node for visit in self.trace.visits}

    def run_ended(self, event: e.RunEnded, at: Instant) -> None:
        self.trace.close(at, VisitStatus.CANCELLED)


_TELLERS: dict[type[e.Event], Callable[[PlaybookTracer, Any, Instant], None]] = {
    p.AdmissionJudged: PlaybookTracer.judged,
    p.TokenDropped: PlaybookTracer.dropped,
    p.JoinReached: PlaybookTracer.reached,
    p.JoinCompleted: PlaybookTracer.joined,
    p.JoinExpired: PlaybookTracer.joined,
    p.JoinFailed: PlaybookTracer.not_joined,
    p.StepStarted: PlaybookTracer.started,
    p.AttemptStarted: PlaybookTracer.attempt_started,
    p.AttemptEnded: PlaybookTracer.attempt_ended,
    p.OutcomeJudged: PlaybookTracer.outcome_judged,
    p.StepEnded: PlaybookTracer.ended,
    p.NextEvaluated: PlaybookTracer.routed,
    p.RunWithdrawn: PlaybookTracer.withdrawn,
    p.WorkflowQuiesced: PlaybookTracer.quiesced,
    e.RunEnded: PlaybookTracer.run_ended,
}
