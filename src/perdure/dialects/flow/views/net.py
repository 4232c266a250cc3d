"""A Flow as a net: one token is where the run is; a call is the net of what it calls, at its place.

    at ──▶ [ middleware ──▶ call or Steps ] ──▶ succeeded | failed, by what is known of the failure

Dispatches of a Gather do not see each other, so they are followed one after the other. A failure is known where the
document writes it literally; a task may fail with anything.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from perdure.dialects.flow.document.advice import misfits, phase_misfits
from perdure.dialects.flow.plan.instants import parse_duration
from perdure.dialects.flow.plan.program import (
    Assign,
    Clause,
    Field,
    Flow,
    MiddlewareEntry,
    PlannedCall,
    Predicate,
    Program,
    Step,
)
from perdure.dialects.flow.state.failures import covers, matches
from perdure.expressions.mwl.condition_analysis import formula_of
from perdure.kernel.graphs.net import START, DefectKind, Formula, Net
from perdure.kernel.json_values.values import Instant
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.tasks.effects import PASS_A_KEY

LARGEST = 60_000
"""Transitions. Calls are followed at each place; a Flow whose calls multiply is followed up to here."""

MOST_FAILURES = 8

ExpressionNames = lazy_regex(r"[A-Za-z_]\w*")


class KnownFailure(msgspec.Struct, frozen=True):
    """What is known of a failure; without a code nothing is."""

    code: str = ""
    type: str = "error"
    retryable: bool | None = None

    @property
    def envelope(self) -> dict[str, Any]:
        return {"code": self.code, "type": self.type, "retryable": self.retryable}

    def matched_by(self, matcher: dict[str, Any] | None) -> bool | None:
        """None: that depends on the failure."""
        if not matcher or (matcher.get("codes") == ["*"] and len(matcher) == 1):
            return True
        return matches(matcher, self.envelope) if self.code else None


UNKNOWN = KnownFailure()


class Ends(msgspec.Struct):
    """Where the token is when something has ended."""

    ok: int
    failures: dict[KnownFailure, int] = msgspec.field(default_factory=dict)


class FlowNet:
    """What actions and middleware build their part of the net with.

    `repeats`: whether a second attempt of a provider repeats its side effects.
    """

    unknown = UNKNOWN

    def __init__(self, program: Program, repeats: Callable[[str], bool]) -> None:
        self.program = program
        self._repeats = repeats
        self.net = Net()
        self.limits: list[Instant] = []  # of the timeouts around
        self.waits = 0  # how many places were met where time may pass
        self.retries = 0  # of the middleware around: those that may try again
        self._parts: dict[str, int] = {}
        self._steps: list[dict[str, int]] = []  # of the frames around, innermost last: where each Step begins
        self._ends: list[Ends] = []
        self._flows: list[Flow] = []
        self._names = _qualified(program)
        whole = self.part("", None)
        for flow in program.flows.values():
            for step in flow.steps.values():
                message, hint = f"no run reaches the Step {step.name!r}", "Remove it, or let a Step lead to it."
                self.part(step.site, self._names[step.site], DefectKind.DEAD_STEP, message, hint)
        self._entered: set[str] = set()
        self.frame(program.root, START, whole)
        for flow in program.flows.values():
            if flow.site not in self._entered:  # nothing calls it: its first Step explains the others
                self.frame(flow, self.net.place(), whole)

    def known(self, code: str, type: str = "error") -> KnownFailure:
        return KnownFailure(code, type)

    def condition(self, predicate: Predicate | None) -> Formula:
        """A `when`; without one it holds."""
        if predicate is None:
            return True
        if predicate.expression is None:
            return bool(predicate.literal)
        return formula_of(predicate.expression.body, predicate.reads.roots)

    def literal_member(self, field: Field | None, name: str) -> Any:
        """A member of an object, if it is written without expressions."""
        document: Any = None if field is None or not field.is_literal else field.template.document
        return document.get(name) if isinstance(document, dict) else None

    def duration(self, text: Any) -> Instant | None:
        try:
            return parse_duration(text) if isinstance(text, str) else None
        except ValueError:
            return None

    def is_literal(self, *fields: Field | Assign | None) -> bool:
        return is_literal(*fields)

    # Parts.

    def part(
        self, site: str, step: str | None, never: DefectKind | None = None, message: str = "", hint: str = ""
    ) -> int:
        """The part at a site, made at the first mention."""
        known = self._parts.get(site)
        if known is None:
            place = tuple(piece.replace("~1", "/").replace("~0", "~") for piece in site.split("/")[1:])
            known = self._parts[site] = self.net.part(step, place, never, message, hint)
        return known

    def step_part(self, step: Step) -> int:
        return self._parts[step.site]

    def step_name(self, part: int) -> str | None:
        return self.net.parts[part].step

    # Where tokens go.

    def failed(self, ends: Ends, failure: KnownFailure) -> int:
        """The place for a failure; very many different ones are one unknown."""
        if failure not in ends.failures and len(ends.failures) >= MOST_FAILURES:
            failure = UNKNOWN
        if failure not in ends.failures:
            ends.failures[failure] = self.net.place()
        return ends.failures[failure]

    def start_of(self, step: str) -> int:
        return self._steps[-1][step]

    @property
    def frame_ends(self) -> Ends:
        """The ends of the Flow whose Steps are being built."""
        return self._ends[-1]

    def go(self, part: int, choice: str, at: int, to: int, **how: Any) -> None:
        self.net.add(part, choice, (at,), (to,), **how)

    # Flows and Steps.

    def frame(self, flow: Flow, at: int, part: int) -> Ends:
        """A Flow, entered from `at`."""
        if len(self.net.transitions) > LARGEST:
            self.net.open_question = "its calls were followed up to a limit"
            ends = Ends(self.net.place())
            self.go(part, "calls", at, ends.ok)
            self.go(part, "fails", at, self.failed(ends, UNKNOWN), is_failure=True)
            return ends
        whole = self.part(flow.site, None)
        return self.stack(flow.outermost, at, whole, lambda inner: self._graph(flow, inner))

    def _graph(self, flow: Flow, at: int) -> Ends:
        self._entered.add(flow.site)
        ends = Ends(self.net.place())
        starts = {name: self.net.place() for name in flow.steps}
        self._steps.append(starts)
        self._ends.append(ends)
        self._flows.append(flow)
        entry = flow.steps[flow.entrypoint]
        self.net.add(self.step_part(entry), "", (at,), (starts[flow.entrypoint],), is_start=False)
        for step in flow.steps.values():
            self._handlers(step)
            step.action.build_net(self, step, starts[step.name])
        self._steps.pop()
        self._ends.pop()
        self._flows.pop()
        return ends

    def next(self, step: Step, at: int, choice: str = "goes on", **how: Any) -> None:
        """The Step has succeeded, and what it leaves with is evaluated."""
        part = self.step_part(step)
        self.go(part, choice, at, self.start_of(step.next), **how)
        if not is_literal(step.output, step.assign):
            self.fail(step, at, UNKNOWN)

    def fail(self, step: Step, at: int, failure: KnownFailure, choice: str = "fails") -> None:
        """The Step has failed: its catch clauses are asked in order."""
        for index, clause in enumerate(step.catch):
            handler = self.handler(step, index)
            matched = failure.matched_by(clause.match)
            if matched is False or self._is_covered(step.catch[:index], clause, failure):
                continue
            named = f"{choice} with {failure.code}" if failure.code else choice
            self.go(handler, named, at, self.start_of(clause.next), is_failure=True)
            if not is_literal(clause.output, clause.assign):
                self.go(handler, choice, at, self.failed(self.frame_ends, UNKNOWN), is_failure=True)
            if matched:
                return
        self.go(self.step_part(step), choice, at, self.failed(self.frame_ends, failure), is_failure=True)

    def _is_covered(self, earlier: Iterable[Clause], clause: Clause, failure: KnownFailure) -> bool:
        return not failure.code and any(covers(other.match or {}, clause.match or {}) for other in earlier)

    def handler(self, step: Step, index: int) -> int:
        """The part of a catch clause. It leads to its Step even if nothing leads to it: then that explains the Step."""
        site = f"{step.site}/catch/{index}"
        if site not in self._parts:
            message = f"no failure of the Step {step.name!r} reaches this catch clause"
            hint = "Remove it, or match a failure that the Step can have."
            self.part(site, self._names[step.site], DefectKind.HANDLER_UNREACHABLE, message, hint)
        return self._parts[site]

    def _handlers(self, step: Step) -> None:
        """All catch clauses of a Step, before it is known what they match."""
        for index, clause in enumerate(step.catch):
            handler = self.handler(step, index)
            unfilled = self.net.place(self.step_part(step))
            self.net.add(handler, "", (unfilled, self.net.place()), (self.start_of(clause.next),))

    # Calls.

    def call(self, call: PlannedCall, at: int, part: int) -> Ends:
        ends = Ends(self.net.place())
        for fields in (call.input, call.arguments):
            if fields is not None and not fields.is_literal:
                self.go(part, "fails", at, self.failed(ends, UNKNOWN), is_failure=True, is_start=False)
                break
        if call.flow is not None:
            if misfits(call):
                self.go(part, "fails", at, self.failed(ends, UNKNOWN), is_failure=True, is_start=False)
            inner = self.frame(call.flow, at, part)
            self.go(part, "", inner.ok, ends.ok, is_start=False)
            for failure, place in inner.failures.items():
                self.go(part, "", place, self.failed(ends, failure), is_start=False)
            if call.flow.parameters.schema.get("required"):
                self.go(part, "fails", at, self.failed(ends, UNKNOWN), is_failure=True)
        elif call.provider is not None and not call.provider.name:
            self._mock(call, at, part, ends)
        else:
            self.waits += 1
            name = "" if call.provider is None or call.passes_key else call.provider.name
            if self.retries and name and self._repeats(name):
                message = "a retry may repeat the side effects of this call: it passes no idempotency key"
                self.net.find(DefectKind.EFFECT_UNKEYED, part, message, PASS_A_KEY)
            self.go(part, "succeeds", at, ends.ok)
            self.go(part, "fails", at, self.failed(ends, UNKNOWN))
        for arm, places in ((call.on_success, [ends.ok]), (call.on_failure, list(ends.failures.values()))):
            if arm is not None and not is_literal(arm.value, arm.assign):
                for place in places:
                    self.go(part, "fails", place, self.failed(ends, UNKNOWN), is_start=False)
        return ends

    def _mock(self, call: PlannedCall, at: int, part: int, ends: Ends) -> None:
        """As its literals say; what an expression gives may be anything (MWL-450 to 454)."""
        arguments: Any = {} if call.arguments is None else call.arguments.template.document
        is_map = isinstance(arguments, dict)
        failure = arguments.get("failure") if is_map else None
        unread = call.arguments is not None and any(
            inside.startswith("/failure") or inside == "" for inside in call.arguments.template.expressions
        )
        delay = arguments.get("delay") if is_map else None
        waits = delay is not None and may_take_time(delay)
        self.waits += waits
        if misfits(call):
            self.go(part, "fails", at, self.failed(ends, self.known("System.ParameterValidationFailed")))
        elif unread or not is_map:
            self.go(part, "succeeds", at, ends.ok, waits=waits)
            self.go(part, "fails", at, self.failed(ends, UNKNOWN), waits=waits)
        elif isinstance(failure, dict) and not isinstance(failure.get("code"), str):
            self.go(part, "fails", at, self.failed(ends, UNKNOWN))
        elif not isinstance(failure, dict):
            self.go(part, "succeeds", at, ends.ok, waits=waits)
        else:
            known = KnownFailure(failure["code"], failure.get("type", "error"), failure.get("retryable"))
            self.go(part, f"fails with {known.code}", at, self.failed(ends, known), waits=waits)

    # Middleware.

    def stack(
        self, entry: MiddlewareEntry | PlannedCall | None, at: int, part: int, inside: Callable[[int], Ends]
    ) -> Ends:
        """A stack of middleware around `inside`."""
        if not isinstance(entry, MiddlewareEntry):
            return inside(at)
        inner_entry, begin = entry.inner, self.net.place()
        self.go(part, "", at, begin, is_start=False)
        ends = entry.provider.build_net(
            self, entry, begin, part, lambda place: self.stack(inner_entry, place, part, inside)
        )
        if self.may_fail(entry, "onEntry"):  # then it is not established: nothing else of it runs (MWL-371)
            self.go(part, "fails", at, self.failed(ends, UNKNOWN), is_failure=True, is_start=False)
        return ends

    def moved(self, ends: Ends, ok: int) -> Ends:
        """The same failures, at places of their own, and another place for success."""
        moved = Ends(ok)
        for failure in ends.failures:
            self.failed(moved, failure)
        return moved

    def passed_on(self, ends: Ends, part: int) -> Ends:
        """Each end at a place that nothing leads away from yet."""
        moved = self.moved(ends, self.net.place())
        self.go(part, "", ends.ok, moved.ok, is_start=False)
        for failure, place in ends.failures.items():
            self.go(part, "", place, moved.failures[failure], is_start=False)
        return moved

    def always_holds(self, body: str) -> bool:
        """Whether a counter alone decides, and never ends it."""
        names = set(ExpressionNames.findall(body))
        return names <= {"middleware", "metadata", "iteration"} and "iteration" in names

    def report_inverted(self, entry: MiddlewareEntry, part: int, duration: str) -> None:
        site = f"{entry.site}/onEntry/with/duration"
        timeout = self.part(site, self.net.parts[part].step)
        message = f"the time limit {duration} is longer than one around it, which always ends first"
        self.net.find(DefectKind.TIMEOUT_INVERTED, timeout, message, "Make it shorter, or remove it.")

    def cleanup_part(self, entry: MiddlewareEntry, part: int) -> int:
        message = "the cleanup of this `finally` never runs"
        hint = "Its condition is never true, or what it waits for never ends."
        return self.part(entry.site, self.net.parts[part].step, DefectKind.FINAL_NEVER, message, hint)

    def cleanup(self, what: "MiddlewareEntry | PlannedCall | None", at: int, part: int) -> Ends:
        call: Any = what
        while isinstance(call, MiddlewareEntry):
            call = call.inner
        return self.stack(what, at, part, lambda inner: self.call(call, inner, part))

    def wrapped(self, entry: MiddlewareEntry, at: int, part: int, inside: Callable[[int], Ends]) -> Ends:
        """What every middleware has: its phases may fail where they contain expressions, and shape what rises."""
        ends, begin = Ends(self.net.place()), self.net.place()
        self.go(part, "", at, begin, is_start=False)
        inner = inside(begin)
        self.go(part, "", inner.ok, ends.ok, is_start=False)
        if self.may_fail(entry, "onSuccess") or self.may_fail(entry, "onAlways"):
            self.go(part, "fails", inner.ok, self.failed(ends, UNKNOWN), is_failure=True, is_start=False)
        shaping = entry.phases.get("onFailure")
        may_fail = self.may_fail(entry, "onFailure") or self.may_fail(entry, "onAlways")
        for failure, place in inner.failures.items():
            shaped = failure if shaping is None or not shaping.envelope else UNKNOWN
            self.go(part, "", place, self.failed(ends, shaped), is_start=False)
            if may_fail:
                self.go(part, "fails", place, self.failed(ends, UNKNOWN), is_start=False)
        return ends

    def may_fail(self, entry: MiddlewareEntry, name: str) -> bool:
        """A phase with expressions that are not constant, or arguments that do not fit."""
        phase = entry.phase(name)
        is_plain = is_literal(phase.arguments, phase.shape, phase.envelope, phase.assign)
        return not is_plain or not isinstance(self.condition(phase.when), bool) or phase_misfits(entry, name)


def is_literal(*fields: Field | Assign | None) -> bool:
    for field in fields:
        if isinstance(field, dict):
            if not all(inner.is_literal for inner in field.values()):
                return False
        elif field is not None and not field.is_literal:
            return False
    return True


def may_take_time(duration: Any) -> bool:
    """Whether a duration in a document may be more than nothing: zero is no wait."""
    try:
        return parse_duration(duration) > 0
    except (ValueError, TypeError):
        return True


def _qualified(program: Program) -> dict[str, str]:
    """The names of Steps by site; with the Flow's name where several Steps have one name (MWL-053)."""
    counts = Counter(step.name for flow in program.flows.values() for step in flow.steps.values())
    names: dict[str, str] = {}
    for flow in program.flows.values():
        parts = flow.site.split("/")
        title = parts[-1].replace("~1", "/").replace("~0", "~") if parts[-2:-1] == ["flows"] else "inline"
        for step in flow.steps.values():
            is_unique = counts[step.name] == 1 or not flow.site
            names[step.site] = step.name if is_unique else f"{title}/{step.name}"
    return names
