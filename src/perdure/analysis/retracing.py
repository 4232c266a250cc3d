"""Where the values of a run came from: its recorded turns are decided once more, and expressions tell what they read.

Nothing of this is recorded while a run is decided, and a run never depends on it. What is decided here must be what was
recorded: each event is compared, and applied as it was recorded. Where the two differ, the rest of the turn is only
applied, and its values have no explanation.
"""

from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from perdure.analysis.mocks import steps_in
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import Turns
from perdure.kernel.documents.lookups import LookupAnswers
from perdure.kernel.evaluation_trace import Evaluation, EvaluationTrace, ReadPath, ValueSource, ValueTracer, ValueWrite
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.large_values import ValuesTooLarge
from perdure.kernel.json_values.values import Instant
from perdure.kernel.turn import MissingValues, Turn

MOST_LINKS = 200
DEEPEST = 40

_KERNEL = (e.Sliced, e.WorkCounted)


class SetValue(msgspec.Struct, eq=False):
    """A value as an event has set it, with what had set its parts by then."""

    seq: int
    write: ValueWrite
    evaluations: list[Evaluation]
    origins: list["SetValue | None"]


class ProvenanceLink(msgspec.Struct):
    """One step back: an event, what it did to the value, through which expression, and what that read."""

    seq: int
    depth: int
    text: str
    expression: str = ""
    site: str = ""
    reads: list[tuple[str, Any]] = []
    value: Any = msgspec.UNSET
    fault: str = ""  # why the expression has no value


class _Diverged(Exception):
    """What is decided now is not what was recorded."""


class _RetracedTurn(Turn, eq=False, gc=False):
    """A turn that is decided again: each event is applied as it was recorded."""

    expected: list[e.Event] = []  # noqa: RUF012  (a struct copies it)
    retracing: Any = None

    def emit(self, event: e.Event) -> None:
        position = len(self.events)
        if position >= len(self.expected) or type(self.expected[position]) is not type(event):
            raise _Diverged
        recorded = self.expected[position]
        super().emit(recorded)
        if isinstance(recorded, e.RunMigrated):
            execution = self.execution
            execution.take_program(execution.later_programs.pop(0), recorded.mapping)
            self.program, self.body = execution.program, execution.body
        self.retracing.note(recorded)


class _RunTrace(EvaluationTrace):
    """Knows, when an expression has been evaluated, what had set each of the values that it read."""

    def __init__(self, retracing: "Retracing") -> None:
        super().__init__()
        self._retracing = retracing

    def ended(self, evaluation: Evaluation) -> None:
        retracing = self._retracing
        for read in evaluation.reads:
            read.sources = retracing.tracer.sources(retracing.execution, self.context, read.path)
            read.origins = [retracing.latest(source.key) for source in read.sources]
        super().ended(evaluation)


class Retracing:
    """One history, decided again. `retrace` asks for large values; put them into `texts` and go on."""

    def __init__(self, execution: Execution, turns: Turns, tracer: ValueTracer) -> None:
        self.execution = execution
        self.tracer = tracer
        self.texts: dict[bytes, bytes] = {}  # large values that are in memory
        self.absent: set[bytes] = set()  # those that do not exist
        self.answers: LookupAnswers = {}  # to the lookups that the last move asked for
        self.unexplained = 0  # events that were only applied
        self.facts: dict[int, tuple[int, e.Event]] = {}  # by event: what its turn began with
        self.tasks: dict[int, e.TaskScheduled] = {}
        self.moves: list[tuple[int, e.RunMigrated]] = []  # to other documents, with the numbers of their events
        self._turns = turns
        self._values: dict[Hashable, SetValue] = {}
        self._trace = _RunTrace(self)
        self._evaluations: list[Evaluation] = []  # of the move that is made
        self._fact: tuple[int, e.Event] | None = None

    def latest(self, key: Hashable) -> SetValue | None:
        return self._values.get(key)

    def retrace(self) -> Iterator[MissingValues]:
        for at, events in self._turns:
            yield from self._turn(at, events)

    def _turn(self, at: Instant, events: list[e.Event]) -> Iterator[MissingValues]:
        execution = self.execution
        execution.state.at = at
        input, facts = input_of(execution, events)
        self._fact = (execution.state.seq + max(facts, 1), events[max(facts, 1) - 1]) if events else None
        turn = _RetracedTurn(execution, input or i.Proceed(), at, at, expected=events, retracing=self)
        turn.texts, turn.absent = self.texts, self.absent
        with self._trace:
            self._evaluations = []
            for event in events[:facts]:
                turn.emit(event)
        is_accepted = input is None or isinstance(input, i.Proceed)
        while input is not None and len(turn.events) < len(events):
            if isinstance(events[len(turn.events)], _KERNEL):
                turn.emit(events[len(turn.events)])
                continue
            before = len(turn.events)
            self._evaluations = self._trace.evaluations = []
            try:
                with self._trace:
                    if is_accepted:
                        has_moved = execution.dialect.advance(turn)
                    else:
                        execution.dialect.accept(turn, turn.input)
                        has_moved = is_accepted = True
            except MissingValues as needs:
                if len(turn.events) != before:
                    break
                yield needs
                turn.answers.update(self.answers)
                continue
            except (_Diverged, ValuesTooLarge):
                break
            if not has_moved:
                break
        self._evaluations = []
        if input is not None:
            self.unexplained += len(events) - len(turn.events)
        for event in events[len(turn.events) :]:
            execution.apply(event)
            self.note(event)

    def note(self, event: e.Event) -> None:
        """Called when an event was applied."""
        seq = self.execution.state.seq
        if self._fact is not None:
            self.facts[seq] = self._fact
        if isinstance(event, e.TaskScheduled):
            self.tasks[event.task] = event
        if isinstance(event, e.RunMigrated):
            self._move(seq, event)
        for write in self.tracer.writes(self.execution, event):
            known = self._values.get(write.same_as) if write.same_as is not None else None
            origins = [self.latest(part.source.key) for part in write.parts]
            self._values[write.key] = known or SetValue(seq, write, self._evaluations, origins)

    def _move(self, seq: int, event: e.RunMigrated) -> None:
        """What is known of a step is known under the name that it has in the new document."""
        self.moves.append((seq, event))
        if event.mapping:
            self.tracer.rename_steps(event.mapping)
            renamed = {self.tracer.renamed(key, event.mapping): value for key, value in self._values.items()}
            self._values = {key: value for key, value in renamed.items() if key is not None}

    # Explaining a value.

    def explain(self, source: ValueSource) -> list[ProvenanceLink]:
        """From how the value was made back to inputs of the run, results of tasks and the document."""
        origin = self.latest(source.key)
        links: list[ProvenanceLink] = []
        if origin is not None:
            self._explain(origin, source.rest, source.text, 0, links, set(), self.execution.state.seq)
        return links

    def _explain(
        self,
        origin: SetValue,
        rest: ReadPath,
        text: str,
        depth: int,
        links: list[ProvenanceLink],
        visited: set[tuple[int, ReadPath]],
        until: int,
    ) -> None:
        """`until`: the event that read the value, or the last one."""
        if (id(origin), rest) in visited or depth > DEEPEST or len(links) >= MOST_LINKS:
            return
        visited.add((id(origin), rest))
        label = f"{_written(rest)} of {text}" if rest else text
        for seq, move in reversed(self.moves):
            if origin.seq < seq <= until:
                links.append(ProvenanceLink(seq, depth, f"{label} was kept when the run was moved{_to(move)}"))
                depth += 1
        if origin.write.parts:
            self._explain_parts(origin, rest, label, depth, links, visited)
            return
        evaluations = [] if origin.write.arrives else list(_relevant(origin, rest))
        if not evaluations:
            links.append(self._leaf(origin, label, depth))
            return
        for evaluation in evaluations:
            inside = evaluation.place[len(origin.write.within) :]
            part = inside if len(inside) > len(rest) else rest
            label = f"{_written(part)} of {text}" if part else text
            reads = [(_written(read.path), read.value) for read in evaluation.reads]
            link = ProvenanceLink(origin.seq, depth, label, evaluation.text.strip(), evaluation.site, reads)
            link.fault, link.value = evaluation.fault, msgspec.UNSET if evaluation.fault else evaluation.value
            links.append(link)
        for evaluation in evaluations:
            for read in evaluation.reads:
                deeper = len(evaluation.place) - len(origin.write.within)
                further = rest[max(deeper, 0) :] if read.value is evaluation.value else ()
                for source, before in zip(read.sources, read.origins, strict=True):
                    if before is not None:
                        path = (*source.rest, *further)
                        self._explain(before, path, source.text, depth + 1, links, visited, origin.seq)

    def _explain_parts(
        self,
        origin: SetValue,
        rest: ReadPath,
        label: str,
        depth: int,
        links: list[ProvenanceLink],
        visited: set[tuple[int, ReadPath]],
    ) -> None:
        links.append(ProvenanceLink(origin.seq, depth, f"{label} was taken from other values"))
        for part, before in zip(origin.write.parts, origin.origins, strict=True):
            if before is not None and _is_on_the_way(part.at, rest):
                further = (*part.source.rest, *rest[len(part.at) :])
                self._explain(before, further, part.source.text, depth + 1, links, visited, origin.seq)

    def _leaf(self, origin: SetValue, label: str, depth: int) -> ProvenanceLink:
        fact = self.facts.get(origin.seq)
        if not origin.write.arrives or fact is None:
            return ProvenanceLink(origin.seq, depth, f"{label} {origin.write.note or 'is written in the document'}")
        number, event = fact
        return ProvenanceLink(number, depth, f"{label} {self._arrival(event)}")

    def _arrival(self, event: e.Event) -> str:
        match event:
            case e.RunStarted():
                return "came with the start of the run"
            case e.TaskEnded(task=task):
                scheduled = self.tasks.get(task)
                steps = steps_in(scheduled.path) if scheduled is not None else []
                return f"was returned by the task of {' › '.join(steps)!r}" if steps else "was returned by a task"
            case e.TaskReported():
                return "was reported by a task"
            case e.ChildEnded(child=child):
                return f"was returned by run {self.execution.child_id(child)}"
            case e.SignalReceived(name=name, by=by):
                return f"came with signal {name!r}{_sender(by)}"
            case e.Steered(verb=verb, by=by):
                return f"came with the control message {verb!r}{_sender(by)}"
        return "was set"


def _to(move: e.RunMigrated) -> str:
    renamed = ", ".join(f"{old!r} is {new!r}" for old, new in move.mapping.items() if new)
    document = "back to its former document" if move.undoes else "to another document"
    return f" {document}{f' by {move.by}' if move.by else ''}" + (f", in which {renamed}" if renamed else "")


def _sender(by: str) -> str:
    return f" from {by}" if by else ""


def _relevant(origin: SetValue, rest: ReadPath) -> Iterator[Evaluation]:
    """The expressions that made this part of the value."""
    asked = (*origin.write.within, *rest)
    for evaluation in origin.evaluations:
        if evaluation.site.endswith(origin.write.site) and _is_on_the_way(evaluation.place, asked):
            yield evaluation


def _is_on_the_way(place: ReadPath, asked: ReadPath) -> bool:
    """Whether one of the two paths leads to the other."""
    return all(str(mine) == str(other) for mine, other in zip(place, asked, strict=False))


def _written(path: ReadPath) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def input_of(execution: Execution, events: list[e.Event]) -> tuple[i.Input | None, int]:
    """What a turn began with, and how many events record that; None: nothing that is to be decided."""
    facts = 1 if events and isinstance(events[0], e.MessageSent) else 0
    match events[facts] if len(events) > facts else None:
        case e.RunStarted() as start:
            fields = {name: getattr(start, name) for name in i.Start.__struct_fields__}
            return i.Start(**fields), 1
        case e.TaskEnded(task=number, outcome=outcome):
            task = execution.state.tasks.get(number)
            if task is None:
                return None, 1
            return i.TaskResult(number, task.attempt, task.delivery, outcome), 1
        case e.TimerFired(timer=timer):
            return i.TimerDue(timer), 1
        case e.ChildEnded(child=child, status=status, outcome=outcome):
            return i.ChildResult(child, status, outcome), 1
        case e.PermitGranted(permit=permit):
            return i.PermitGrant(permit), 1
        case e.SignalReceived(name=name, value=value, key=key, by=by):
            return i.Signal(name, value, key, by), facts + 1
        case e.Steered(verb=verb, body=body, key=key, by=by):
            return i.Steer(verb, body, key, by), facts + 1
        case e.CancelRequested(reason=reason, by=by):
            return i.Cancel(reason, by), facts + 1
        case e.RunReopened(body=body, key=key, by=by):
            return i.Reopen(body, key, by), facts + 1
        case e.TaskReported(task=number, body=body):
            task = execution.state.tasks.get(number)
            return (None, 1) if task is None else (i.TaskReport(number, task.delivery, body), 1)
        case e.RunMigrated():
            return i.Proceed(), facts + 1
        case e.RunForked() | e.RunDisowned() | e.InputDeclined() | e.MoreInputsDeclined():
            return None, 1
        case None:
            return None, 0
    return i.Proceed(), 0
