"""What lets a message pass to a step: the publisher's routing rules, the step's `if`, and its rendered `runtime`.

An expression that fails lets nothing pass: it is counted, and told once for each step and text (STR-048, 050, 052).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND, TurnBudget, TurnTooExpensive
from perdure.streams.hub_metadata import own_metadata
from perdure.streams.inlet import Inlet
from perdure.streams.notices import Notices
from perdure.streams.stream_graph import StreamStep
from perdure.streams.stream_messages import ERROR, BadMessage, StreamMessage, error_payload
from perdure.streams.views import Expressions, GateProblem, refers_to_storage, roots_of

WORK_OF_A_PACKET = 10 * STEPS_PER_MILLISECOND
"""For all templates that one publication meets: they are evaluated on the event loop, which other runs share."""

T = TypeVar("T")


class Gates:
    def __init__(
        self,
        expressions: Expressions,
        inlets: Mapping[str, Inlet],
        notices: Notices,
        run: Mapping[str, str],
        publish_error: Callable[[str, StreamMessage, int], object],
    ) -> None:
        """`publish_error`: what a step says to those below it when its inputs could not be rendered."""
        self._run = run
        self._publish_error = publish_error
        self._expressions = expressions
        self._inlets = inlets
        self._notices = notices
        self.signals: dict[str, Any] = {}  # by step, as templates see them beside the payload
        self._budget = TurnBudget(WORK_OF_A_PACKET)
        self._seen: tuple[StreamMessage, dict[str, Any]] | None = None
        self.work = 0  # counted since somebody has looked at it

    def refill(self) -> None:
        """A new publication."""
        self._budget.left, self._seen = WORK_OF_A_PACKET, None

    def _evaluate(self, expression: Callable[[], T]) -> T:
        before = self._budget.left
        try:
            with self._budget:
                return expression()
        except TurnTooExpensive:
            self._budget.left = 0
            raise GateProblem("the templates that one packet meets take too many steps together") from None
        finally:
            self.work += before - self._budget.left

    def allow(self, publisher: StreamStep, target: str, message: StreamMessage, now: int) -> bool:
        """Whether the rules let a message pass: a matching deny wins; with any allow rule, only matched targets."""
        has_allow = is_allowed = False
        name = self._inlets[target].plan.public_name
        for number, rule in enumerate(publisher.settings.rules):
            has_allow = has_allow or not rule.denies
            if rule.targets and name not in rule.targets:
                continue
            try:
                matches = not rule.when or self._matches(publisher, number, message)
            except GateProblem as problem:
                self._inlets[target].counters.errors_in_rules += 1
                self._notices.add(publisher.name, "RoutingRuleFailed", str(problem), str(problem), now)
                matches = False
            if matches and rule.denies:
                return False
            is_allowed = is_allowed or matches
        return is_allowed or not has_allow

    def passes(self, plan: StreamStep, message: StreamMessage, now: int) -> bool:
        """Whether the step's `if` lets the message pass."""
        try:
            roots = self._roots(plan, message)
            return self._evaluate(lambda: self._expressions.holds(plan.name, roots))
        except GateProblem as problem:
            self._drop(plan, str(problem), now)
            return False

    def with_inputs(self, plan: StreamStep, message: StreamMessage, now: int) -> StreamMessage | None:
        """The message with the step's rendered `runtime`; None: that failed, and the step says so."""
        try:
            roots = self._roots(plan, message)
            inputs = jsontext.encode(self._evaluate(lambda: self._expressions.render(plan.name, roots)))
        except GateProblem as problem:
            self._drop(plan, str(problem), now)
            payload = jsontext.encode(error_payload(str(problem)))
            error = StreamMessage(message.id, ERROR, message.at_ms, message.metadata, payload)
            error.partition, error.steps, error.root = message.partition, message.steps, message.root
            error.origin, error.trace = message.origin, message.trace
            self._publish_error(plan.name, error, now)
            return None
        return msgspec.structs.replace(message, inputs=inputs)

    def _matches(self, publisher: StreamStep, rule: int, message: StreamMessage) -> bool:
        roots = self._roots(publisher, message)
        return self._evaluate(lambda: self._expressions.matches(publisher.name, rule, roots))

    def _roots(self, plan: StreamStep, message: StreamMessage) -> dict[str, Any]:
        """Read once for all steps that the message is addressed to."""
        if self._seen is None or self._seen[0] is not message:
            roots = roots_of(message, signals=self.signals)
            self._seen = message, self._expressions.with_stored_values(roots) if refers_to_storage(message) else roots
        roots = self._seen[1]
        return {**roots, "packet": {**roots["packet"], "metadata": own_metadata(message, self._run, plan.public_name)}}

    def _drop(self, plan: StreamStep, text: str, now: int) -> None:
        counters = self._inlets[plan.name].counters
        counters.received += 1
        counters.drop("expression_error")
        self._notices.add(plan.name, "ExpressionFailed", text, text, now)


def check_lane(plan: StreamStep, message: StreamMessage, direction: str) -> None:
    """Raise `BadMessage` for a message on a lane that does not go in this direction (STR-056)."""
    for lane in plan.settings.lanes:
        if lane.kind == message.lane and lane.direction not in (direction, "bidirectional"):
            verb = "publish" if direction == "publish" else "receive"
            raise BadMessage(f"step {plan.name!r} may not {verb} on its lane {lane.kind!r}")
