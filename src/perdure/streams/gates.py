"""What lets a message pass to a step: the publisher's routing rules, the step's `if`, and its rendered `runtime`.

An expression that fails lets nothing pass: it is counted, and told once for each step and text (STR-048, 050, 052).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.kernel import jsontext
from perdure.streams.hub_metadata import own_metadata
from perdure.streams.inlet import Inlet
from perdure.streams.notices import Notices
from perdure.streams.stream_graph import StreamStep
from perdure.streams.stream_messages import ERROR, BadMessage, StreamMessage, error_payload
from perdure.streams.views import Expressions, GateProblem, refers_to_storage, roots_of


class FailedInputs(msgspec.Struct, frozen=True):
    """The inputs of a step could not be rendered: the step gets nothing, and says so to those below it."""

    error: StreamMessage


class Gates:
    def __init__(
        self, expressions: Expressions, inlets: Mapping[str, Inlet], notices: Notices, run: Mapping[str, str]
    ) -> None:
        self._run = run
        self._expressions = expressions
        self._inlets = inlets
        self._notices = notices
        self.signals: dict[str, Any] = {}  # by step, as templates see them beside the payload

    def allow(self, publisher: StreamStep, target: str, message: StreamMessage, now: int) -> bool:
        """Whether the rules let a message pass: a matching deny wins; with any allow rule, only matched targets."""
        has_allow = is_allowed = False
        name = self._inlets[target].plan.public_name
        for number, rule in enumerate(publisher.settings.rules):
            has_allow = has_allow or not rule.denies
            if rule.targets and name not in rule.targets:
                continue
            try:
                matches = not rule.when or self._expressions.matches(
                    publisher.name, number, self._roots(publisher, message)
                )
            except GateProblem as problem:
                self._inlets[target].counters.errors_in_rules += 1
                self._notices.add(publisher.name, "RoutingRuleFailed", str(problem), str(problem), now)
                matches = False
            if matches and rule.denies:
                return False
            is_allowed = is_allowed or matches
        return is_allowed or not has_allow

    def gate(self, plan: StreamStep, message: StreamMessage, now: int) -> StreamMessage | FailedInputs | None:
        """The message as the step gets it; None: not at all."""
        try:
            roots = self._roots(plan, message)
            if plan.condition and not self._expressions.holds(plan.name, roots):
                return None
        except GateProblem as problem:
            self._drop(plan, str(problem), now)
            return None
        if not plan.runtime:
            return message
        try:
            inputs = jsontext.encode(self._expressions.render(plan.name, roots))
        except GateProblem as problem:
            self._drop(plan, str(problem), now)
            payload = jsontext.encode(error_payload(str(problem)))
            error = StreamMessage(message.id, ERROR, message.at_ms, message.metadata, payload)
            error.partition, error.steps, error.root = message.partition, message.steps, message.root
            error.origin, error.trace = message.origin, message.trace
            return FailedInputs(error)
        return msgspec.structs.replace(message, inputs=inputs)

    def _roots(self, plan: StreamStep, message: StreamMessage) -> dict[str, Any]:
        roots = roots_of(message, signals=self.signals)
        roots["packet"]["metadata"] = own_metadata(message, self._run, plan.public_name)
        return self._expressions.with_stored_values(roots) if refers_to_storage(message) else roots

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
