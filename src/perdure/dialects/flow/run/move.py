"""One move of one frame: it reads the state and emits events. Shared by the modules that decide."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.flow.plan.program import Flow, Program
from perdure.dialects.flow.plan.program import Step as StepProgram
from perdure.dialects.flow.run.expression_roots import entry_record, step_record
from perdure.dialects.flow.run.scope import GROWTH_SINCE, RootBuilder, Scope
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Body, Call, Frame, MiddlewareScope, ScopePosition, Step
from perdure.dialects.flow.state.failure_chains import (
    LARGE,
    LONGEST,
    LONGEST_OF_LARGE,
    FailureChain,
    links_of,
    without_history,
)
from perdure.dialects.flow.state.failures import TRUNCATED, Envelope, failure, link_failures, truncate_chain
from perdure.dialects.flow.state.values import Carried, Place, Result, is_deeper
from perdure.kernel.events import Event
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload
from perdure.kernel.turn import Turn

DEEPEST_FAILURE = 600  # levels of nesting
DEEPEST_LINK = 300  # so that a chain of the longest is never deeper than that


def _is_deep(link: Envelope) -> bool:
    return is_deeper(link.get("details"), DEEPEST_LINK)


class Move:
    __slots__ = ("body", "emit", "frame", "now", "number", "program", "turn")

    def __init__(self, turn: Turn, number: int) -> None:
        self.turn = turn
        self.emit: Callable[[Event], None] = turn.emit
        self.now: Instant = turn.now
        self.body: Body = turn.body
        self.program: Program = turn.program
        self.number = number
        self.frame: Frame = self.body.frames[number]

    def encode(self, data: Any) -> Payload:
        return self.turn.keep(jsontext.encode(data))

    def carry_failure(self, envelope: Envelope) -> Carried:
        """A failure as an event carries it: link by link, on top of the failure that a place already holds.

        A graph that fails in a cycle accumulates history. If the chain gets too deep to be decoded, or too large, its
        older part is dropped.
        """
        links = links_of(envelope)
        if len(links) > 1 and self._can_link(links):
            return self._chain(links)
        if is_deeper(envelope, DEEPEST_FAILURE):
            envelope = {name: value for name, value in envelope.items() if name not in ("details", "previous")}
            envelope["previous"] = failure(TRUNCATED)
        text = jsontext.encode(truncate_chain(envelope, LONGEST))
        if len(text) > LARGE:
            text = jsontext.encode(truncate_chain(envelope, LONGEST_OF_LARGE))
        return self.turn.keep(text)

    def chain_onto(self, envelope: Envelope, place: str) -> Carried:
        """A failure with the one that a place holds, if any, at the end of its chain."""
        before = (
            self.frame.failure
            if place == "failure"
            else None
            if self._rising_failure is None
            else self._rising_failure.cell
        )
        if before is None:
            return self.carry_failure(envelope)
        links = links_of(envelope)
        if isinstance(before, FailureChain) and self._can_link(links):
            return Place(follows=place, links=self._encode_links(links))
        return self.carry_failure(link_failures(envelope, before.read(self.turn)))

    def _can_link(self, links: list[Envelope]) -> bool:
        return self.turn.record_version >= GROWTH_SINCE and not any(map(_is_deep, links))

    def _encode_links(self, links: list[Envelope], is_all: bool = False) -> list[Payload]:
        return [self.encode(link) for link in without_history(links, is_all)]

    def _chain(self, links: list[Envelope]) -> Place:
        """`links`, the newest first. Those that a place holds as a chain, or as a single link, are not repeated."""
        for place in ("failure", "rising"):
            cell = (
                self.frame.failure
                if place == "failure"
                else None
                if self._rising_failure is None
                else self._rising_failure.cell
            )
            at = None if cell is None else next((at for at, link in enumerate(links) if cell.holds(link)), None)
            if at and (isinstance(cell, FailureChain) or at == len(links) - 1):
                return Place(follows=place, links=self._encode_links(links[:at]))
        newest = links[: LONGEST + 1]  # one more than is shown, so that the truncation is visible
        return Place(links=self._encode_links(newest, is_all=len(newest) == len(links)))

    @property
    def _rising_failure(self) -> Result | None:
        rising = self.frame.rising
        return None if rising is None or rising.ok else rising

    @property
    def flow(self) -> Flow:
        return self.program.flows[self.frame.flow]

    @property
    def top(self) -> Step | MiddlewareScope | Call:
        return self.frame.stack[-1]

    def step_program(self, step: Step) -> StepProgram:
        return self.program.flows[self.frame.flow].steps[step.name]

    @property
    def next_step(self) -> int:
        return self.body.steps + 1

    @property
    def path(self) -> str:
        """The site of the frame's current work: stable over attempts, apart for loop rounds and Step passes."""
        path = self.frame.path
        for scope in self.frame.stack:
            if isinstance(scope, Step):
                path += f"/{scope.place}:{scope.name}"
            elif isinstance(scope, MiddlewareScope) and scope.rounds:
                path += f"@{scope.rounds}"
        return path

    # Scopes of evaluation.

    def step_scope(self, step: Step, exited: Instant | None = None, result: Result | None = None) -> Scope:
        turn = self.turn
        makers = {"step": lambda: step_record(turn, step, self.step_program(step).action, exited, result)}
        return Scope(turn, self.frame, step.at, makers)

    def phase_scope(self, entry: MiddlewareScope, at: Instant, result: Result | None) -> Scope:
        """The roots of a phase of this entry; `step` is among them at the Step level."""
        return Scope(
            self.turn, self.frame, at, {**self.enclosing_roots(), "middleware": self.middleware_root(entry, at, result)}
        )

    def call_scope(self, at: Instant, makers: Mapping[str, RootBuilder]) -> Scope:
        return Scope(self.turn, self.frame, at, {**self.enclosing_roots(), **makers})

    def middleware_root(self, entry: MiddlewareScope, at: Instant, result: Result | None) -> RootBuilder:
        return lambda: entry_record(self.turn, entry, at, result)

    def enclosing_roots(self) -> dict[str, RootBuilder]:
        """The roots from around the top of the stack: the Step, the phase of a cleanup."""
        makers: dict[str, RootBuilder] = {}
        step = self.frame.step
        if step is not None:
            makers["step"] = lambda: step_record(self.turn, step, self.step_program(step).action)
        for scope in reversed(self.frame.stack):
            if isinstance(scope, MiddlewareScope) and scope.position is ScopePosition.CLEANING:
                makers["middleware"] = self.middleware_root(scope, scope.at, scope.pending)
                break
        return makers

    # Ends that several modules share.

    def resolve_failed(self, envelope: Envelope) -> None:
        """The Step on top resolves to a failure; the one it was recovering from ends its chain (MWL-515)."""
        self.emit(f.StepFailed(self.number, self.chain_onto(envelope, "failure"), self.now))

    def supersede(self, envelope: Envelope, risen: Result | None) -> Carried:
        """A failure that replaces what was rising: a failure is chained, a success is dropped (MWL-516)."""
        if risen is None or risen.ok:
            return self.carry_failure(envelope)
        if risen is self.frame.rising:
            return self.chain_onto(envelope, "rising")
        return self.carry_failure(link_failures(envelope, risen.cell.read(self.turn)))
