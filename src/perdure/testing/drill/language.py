"""Drill as a dialect: ties document, state and moves together."""

from collections.abc import Mapping
from typing import Any

from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import DeclaredResource, Validated, ValidationContext
from perdure.kernel.events import KERNEL_EVENTS
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.turn import MissingValues, Turn
from perdure.testing.drill import body as b
from perdure.testing.drill import folding, moves
from perdure.testing.drill.program import Program, load, read


class Drill(Dialect):
    name = "drill"
    is_for_tests = True
    events = b.OWN_EVENTS
    shown_events = frozenset((*KERNEL_EVENTS, *b.OWN_EVENTS))
    version = 2
    edition = 1
    name_label = "drill/name"
    kinds: tuple[ResourceKind, ...] = (
        ResourceKind("Drill", "drills", "testing.perdure", can_run=True),
        ResourceKind("DrillRun", "drillruns", "testing.perdure", ("dr",), of_runs=True),
    )

    def __init__(self) -> None:
        self.trips: dict[str, Exception] = {}  # for tests: a `trip` step of this name raises

    def recognizes(self, text: bytes) -> bool:
        return b'"drill"' in text[:4096]

    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        program, _ = read(text)
        if program is None:
            return []
        body = {"apiVersion": "testing.perdure/v1", "kind": "Drill", "metadata": {"name": program.name}}
        return [DeclaredResource("Drill", "", program.name, {**body, "spec": jsontext.decode(text)}, text)]

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        return Validated(*read(text), pinned=text)

    def title(self, program: Program) -> str:
        return program.name

    def load(self, text: bytes) -> Program:
        return load(text)

    def begin(self, program: Any) -> b.Body:
        return b.Body(program)

    def secret_names(self, program: Any) -> tuple[str, ...]:
        return ()

    def accept(self, turn: Turn, input: i.Input) -> None:
        match input:
            case i.Cancel(reason):
                moves.end_cancelled(turn, reason)
            case i.Steer(_, body):
                for name, value in jsontext.decode(turn.text(body)).items():
                    turn.emit(b.Bound(name, jsontext.encode_finite(value)))
            case i.TaskReport():
                turn.answer = i.Accepted(jsontext.encode_finite({"variables": sorted(turn.body.variables)}))

    def advance(self, turn: Turn) -> bool:
        if self.trips:
            self._trip(turn.body)
        return moves.advance(turn)

    def _trip(self, body: b.Body) -> None:
        number = next(iter(body.agenda), None)
        step = None if number is None else body.step(body.threads[number])
        if step is not None and step.kind == "trip" and step.about in self.trips:
            raise self.trips[step.about]

    def exhausted(self, turn: Turn, reason: str, count: int) -> None:
        moves.end_exhausted(turn)

    def refusal(self, execution: Execution, input: i.Signal | i.Steer | i.Reopen) -> str | None:
        if isinstance(input, i.Steer):
            if input.verb != "set":
                return f"a drill cannot be asked to {input.verb!r}"
            if execution.state.status.is_final:
                return f"the run has already {execution.state.status}"
        return None

    evolve = staticmethod(folding.evolve)
    freeze = staticmethod(b.freeze)
    thaw = staticmethod(b.thaw)

    def awaits(self, execution: Execution) -> list[str]:
        return [f"signal {name!r}" for name, threads in execution.body.listeners.items() if threads]

    def holders(self, kind: str, name: str) -> list[str]:
        return []  # a run is called by its id, or however it was labelled

    def resources(self, shown: Any) -> list[dict[str, Any]]:
        metadata = {"name": shown["id"], "labels": {"drill": shown["name"]}}
        status = {"phase": shown["status"], "tasks": shown["tasks"]}
        return [{"apiVersion": "testing.perdure/v1", "kind": "DrillRun", "metadata": metadata, "status": status}]

    def patched(self, execution: Execution, kind: str, patch: dict[str, Any]) -> list[i.Input]:
        match patch:
            case {"spec": {"cancelRequested": True, **more}, **rest} if not more and not rest:
                return [] if execution.state.status.is_final else [i.Cancel("patched")]
        raise ValueError("of a drill's run only spec.cancelRequested may be set")

    def show(self, execution: Execution, texts: Mapping[bytes, bytes]) -> Any:
        state = execution.state
        return {
            "id": execution.id,
            "language": self.name,
            "name": state.name,
            "status": state.activity.value,
            "outcome": None if state.outcome is None else _outcome(state.outcome, texts),
            "variables": {name: _value(value, texts) for name, value in execution.body.variables.items()},
            "open": {
                "tasks": {str(number): task.provider for number, task in state.tasks.items()},
                "timers": {str(number): timer.due for number, timer in state.timers.items()},
                "children": [execution.child_id(number) for number in state.children],
                "signals": [name for name, threads in execution.body.listeners.items() if threads],
                "permits": [permit.scope for permit in state.permits.values() if not permit.granted],
            },
            "tasks": {"scheduled": state.tasks_scheduled, "ended": state.tasks_ended},
        }


def _outcome(outcome: Any, texts: Mapping[bytes, bytes]) -> Any:
    match outcome:
        case Succeeded(value):
            return {"type": "success", "value": _value(value, texts)}
        case Failed(code, message, retryable, details):
            failure = {"type": "failure", "code": code, "message": message, "retryable": retryable}
            return failure if details is None else {**failure, "details": jsontext.decode(details)}
        case Cancelled(reason):
            return {"type": "cancelled", "reason": reason}


def _value(payload: Payload, texts: Mapping[bytes, bytes]) -> Any:
    if isinstance(payload, bytes):
        return jsontext.decode(payload)
    text = texts.get(payload.digest)
    if text is None:
        raise MissingValues((payload.digest,))
    return jsontext.decode(text)
