"""Gather: dispatches a call many times, collects every Result, and routes by a completion policy (section 9 of MWL).

over, successes ──▶ dispatches start, at most `concurrency` at once ──▶ all resolved ──▶ arms, in order ──▶ decision
                          └── decided early under `wait: false`: the rest is cancelled or skipped
"""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, Rule
from perdure.dialects.flow.plan.program import AMBIENT, Field, pointer
from perdure.dialects.flow.plan.program import PlannedCall as CallProgram
from perdure.dialects.flow.plan.program import Step as PlannedStep
from perdure.dialects.flow.run import calls
from perdure.dialects.flow.run.expression_roots import results_of
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Call, FanOut, Step
from perdure.dialects.flow.state.failures import (
    COMPLETION_UNMET,
    DISPATCH_CANCELLED,
    Fault,
    cancellation,
    failure,
    invalid,
)
from perdure.dialects.flow.state.values import Carried, Result
from perdure.dialects.flow.steps.protocol import Action
from perdure.kernel.graphs.net import DefectKind
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import join_texts
from perdure.kernel.turn import Turn

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.compiler import Compiler, Lexical
    from perdure.dialects.flow.views.net import FlowNet

_CANCELLED = jsontext.encode(cancellation(DISPATCH_CANCELLED))


def scatter(cursor: Cursor) -> None:
    if not cursor.has("an array", "MWL-035"):
        return
    if not cursor.value:
        cursor.problem("MWL-035", "'calls' must not be empty")
    for index in range(len(cursor.value)):
        parts.call(cursor.at(index))


def completion(cursor: Cursor) -> None:
    if cursor.closed(COMPLETION, subject="'completion'") and "successes" not in cursor.value:
        cursor.problem("MWL-037", "'completion' is missing 'successes'")


def successes(cursor: Cursor) -> None:
    if not cursor.is_expression and not _is_whole(cursor.value):
        cursor.problem("MWL-037", "'successes' must be an integer or an expression")


def wait(cursor: Cursor) -> None:
    cursor.has("a boolean", "MWL-037")


COMPLETION: dict[str, Rule] = {"successes": successes, "wait": wait}


def concurrency(cursor: Cursor) -> None:
    if cursor.is_expression:
        cursor.problem("MWL-042", "'concurrency' is literal: an expression is not allowed here")
    elif cursor.value is not None and not (_is_whole(cursor.value) and cursor.value >= 1):
        cursor.problem("MWL-036", "'concurrency' must be null or an integer of at least 1")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)


class GatherFields(msgspec.Struct, frozen=True):
    over: Field | None
    calls: tuple[CallProgram, ...]
    successes: Field | None
    wait: bool
    concurrency: int | None

    def call(self, index: int) -> CallProgram:
        return self.calls[0 if self.over is not None else index]

    def all_fields(self) -> Any:
        return (self.over, self.successes)


class GatherAction(Action):
    name = "Gather"
    text = "Makes several calls at once and collects their results (section 9 of MWL)."

    fans_out = True
    members: ClassVar = {
        "over": parts.array,
        "call": parts.call,
        "calls": scatter,
        "completion": completion,
        "concurrency": concurrency,
        "output": parts.anything,
        "assign": parts.assign,
        "catch": parts.catch,
        "next": parts.next_step,
    }
    required = ("next",)
    one_of = (("over", "call"), ("calls",))
    results = ("results",)
    call_members = ("index",)

    def check(self, cursor: Cursor) -> None:
        """`over` with `call`, or `calls` (MWL-034)."""
        present = [name for name in ("over", "call", "calls") if name in cursor.value]
        if present not in (["over", "call"], ["calls"]):
            names = ", ".join(repr(name) for name in present) or "none of them"
            cursor.problem("MWL-034", f"a Gather needs either 'over' with 'call', or 'calls', not {names}")

    def compile(self, compiler: "Compiler", raw: dict[str, Any], site: str, lexical: "Lexical") -> GatherFields:
        roots = AMBIENT | {"step"}
        if "call" in raw:
            calls = [compiler.call(raw["call"], pointer(site, "call"), roots, lexical)]
        else:
            calls = [
                compiler.call(call, pointer(site, "calls", index), roots, lexical)
                for index, call in enumerate(raw["calls"])
            ]
        completion = raw.get("completion", {})
        return GatherFields(
            compiler.field(raw, "over", roots, site),
            tuple(calls),
            compiler.field(completion, "successes", roots, pointer(site, "completion")),
            completion.get("wait", True),
            raw.get("concurrency"),
        )

    def advance(self, move: Move, step: Step) -> None:
        fields: GatherFields = move.step_program(step).fields
        fan = step.fan
        if fan is None:
            self._begin(move, step, fields)
        elif not fan.decided and not fan.wait and fan.is_determined:
            move.emit(f.GatherDecided(move.number))
        elif fan.can_start:
            index = fan.next
            if index in fan.calls:
                move.emit(f.DispatchReopened(move.number, index))
            else:
                calls.enter(move, fields.call(index), index)
        elif fan.running and fan.decided:
            calls.interrupt(move, fan.calls[next(reversed(fan.running))], _CANCELLED)
        elif (call := _next_arm(move, fan)) is not None:
            calls.leave(move, call)
        else:
            self._finish(move, step, fan)

    def _begin(self, move: Move, step: Step, fields: GatherFields) -> None:
        elements: Carried | None = None
        total = len(fields.calls)
        try:
            if fields.over is not None:
                scope = move.step_scope(step)
                collection = scope.value(fields.over)
                if not isinstance(collection, list):
                    raise invalid("'over' must be an array", fields.over.site, collection)
                total, elements = len(collection), scope.carry(collection, fields.over.site)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
            return
        limit = max(total, 1) if fields.concurrency is None else int(fields.concurrency)
        try:
            need = total if fields.successes is None else _needed(move, step, fields.successes, total)
        except Fault as fault:
            # Nothing has started: all are skipped, so that `step.results` is complete (O-11).
            if move.frame.failure is not None:
                move.frame.failure.read(move.turn)  # must be read before anything is emitted
            move.emit(f.GatherBegan(move.number, total, 0, False, limit, elements))
            move.emit(f.GatherDecided(move.number))
            move.resolve_failed(fault.envelope)
            return
        move.turn.enumerated += total
        move.emit(f.GatherBegan(move.number, total, need, fields.wait, limit, elements))

    def _finish(self, move: Move, step: Step, fan: FanOut) -> None:
        """The decision uses the final Results: a fault in an arm may have turned a success into a failure (MWL-323)."""
        program = move.step_program(step)
        started = [fan.calls[index] for index in range(fan.started) if index in fan.calls]
        succeeded = [call for call in started if call.result is not None and call.result.ok]
        try:
            if len(succeeded) < fan.need:
                raise Fault(_unmet(move, fan))
            scope = move.step_scope(step, move.now)
            output = scope.evaluate_to_carry(program.output)
            output = move.turn.keep(_values(move.turn, succeeded)) if output is None else output
            bound = scope.bindings(program.assign)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            move.emit(f.StepLeft(move.number, program.next, move.now, move.next_step, output, bound))

    def show_results(self, turn: Turn, step: Step, result: Result | None) -> dict[str, Any]:
        return {"results": [] if step.fan is None else results_of(turn, step.fan)}

    def calls(self, fields: GatherFields) -> tuple[CallProgram, ...]:
        return fields.calls

    def notes(self, fields: GatherFields) -> tuple[str, ...]:
        return () if fields.over is None else ("for each element",)

    def build_net(self, net: "FlowNet", step: PlannedStep, at: int) -> None:
        """Dispatches do not see each other: they are followed in order, and it is noted whether one has failed."""
        fields: GatherFields = step.fields
        part = net.step_part(step)
        noted, done = net.net.place(), net.net.place()
        place = net.net.place()
        net.go(part, "", at, place)
        need: Any = None if fields.successes is None else fields.successes.template.document
        may_fail_first = not net.is_literal(fields.over, fields.successes)
        if may_fail_first:
            net.fail(step, place, net.unknown)
        for call in fields.calls:
            ends = net.call(call, place, part)
            after = net.net.place()
            net.go(part, "", ends.ok, after)
            for failed in ends.failures.values():
                net.net.add(part, "", (failed,), (after, noted), unless=(noted,))
                net.net.add(part, "", (failed,), (after,), reads=(noted,))
            if fields.over is not None:
                if may_fail_first or not fields.over.template.document:
                    net.go(part, "has no elements", place, after)
                elements: Any = fields.over.template.document
                if may_fail_first or len(elements) > 1:
                    net.go(part, "takes the next element", after, place, is_bounded=True)
            place = after
        listed: Any = None if fields.over is None else fields.over.template.document
        total = len(fields.calls) if fields.over is None else len(listed) if isinstance(listed, list) else None
        is_known = isinstance(need, int | float) and total is not None
        failing = net.net.place()
        if need is None:
            net.net.add(part, "all succeeded", (place,), (done,), unless=(noted,))
        elif is_known and need > total:
            message = f"the Gather {step.name!r} never succeeds: it needs {need:g} successes, and dispatches {total}"
            hint = "Ask for at most as many successes as there are dispatches."
            join = net.part(f"{step.site}/completion", net.step_name(part), DefectKind.JOIN_NEVER, message, hint)
            net.net.add(join, "", (place, net.net.place()), (net.start_of(step.next),))  # this explains what follows
        else:
            net.go(part, "enough succeeded", place, done)
        if need is None or (is_known and 0 < need <= total):
            net.net.add(part, "too few succeeded", (place, noted), (failing,))
        elif not (is_known and need <= 0):
            net.go(part, "too few succeeded", place, failing)
        net.fail(step, failing, net.known(COMPLETION_UNMET), "")
        net.net.add(part, "", (done, noted), (done,))
        net.next(step, done, "")


def _needed(move: Move, step: Step, field: Field, total: int) -> int:
    """`successes`, with the dispatch count already readable (MWL-300, MWL-310)."""
    enumerated = Step(step.name, step.number, step.place, step.at, step.input, fan=FanOut(total, 0, True, 1, None))
    value = move.step_scope(enumerated).value(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise invalid("'successes' must be an integral number", field.site, value)
    return int(value)


def _next_arm(move: Move, fan: FanOut) -> Call | None:
    """The next settled dispatch that has an arm to run; cancelled and skipped ones run no arm (MWL-320)."""
    for index in range(fan.arm, fan.started):
        call = fan.calls.get(index)
        if call is None or call.result is None:
            continue  # a redrive was about to start it once more
        program = move.program.calls[call.site]
        arm = program.on_success if call.result.ok else program.on_failure
        if arm is not None and call.settled and call.imposed is None:
            return call
    return None


def _values(turn: Turn, calls: list[Call]) -> bytes:
    """The values of the successes, joined without decoding them."""
    payloads = [call.result.cell.to_payload(turn) for call in calls if call.result is not None]
    return join_texts(turn.all_texts(payloads))


def _unmet(move: Move, fan: FanOut) -> dict[str, Any]:
    failures = [
        {"index": index, "result": result}
        for index, result in enumerate(results_of(move.turn, fan))
        if result["type"] != "success"
    ]
    needed = f"{fan.total - len(failures)} of {fan.total} dispatches succeeded, {fan.need} were needed"
    return failure(COMPLETION_UNMET, needed, details={"failures": failures, "failureCount": len(failures)})


ACTION = GatherAction()
