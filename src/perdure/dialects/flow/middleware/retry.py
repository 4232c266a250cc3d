"""Retry: re-runs its inner scope on matching failures, each policy with its own budget (MWL-400 to MWL-411)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from perdure.dialects.flow.middleware.protocol import Again, Emit, Middleware, MiddlewareDirective, Pass, PhaseContext
from perdure.dialects.flow.plan.instants import LAST, parse_duration
from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.state.failures import failure, matches
from perdure.kernel.json_values.values import Instant
from perdure.kernel.turn_budget import pay_for_each

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.program import MiddlewareEntry
    from perdure.dialects.flow.views.net import Ends, FlowNet

EXHAUSTED = "Provider.Middleware.Retry.Exhausted"

_DURATION = {"type": "string", "format": "duration"}
_MATCHER = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "codes": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        "types": {"type": "array", "minItems": 1, "items": {"type": "string", "not": {"const": "success"}}},
        "retryable": {"type": "boolean"},
    },
}
_BACKOFF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["initial"],
    "properties": {
        "initial": _DURATION,
        "rate": {"type": "number", "minimum": 1},
        "max": _DURATION,
        "jitter": {"enum": ["none", "full", "equal", "decorrelated"]},
    },
}
_POLICY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["match", "attempts"],
    "properties": {"match": _MATCHER, "attempts": {"type": "integer", "minimum": 1}, "backoff": _BACKOFF},
}


class Retry(Middleware):
    uri = "mwl:provider.middleware/mwl/retry/v1"
    parameters: ClassVar = {
        "onEntry": Parameters(
            {
                "type": "object",
                "required": ["policies"],
                "properties": {"policies": {"type": "array", "minItems": 1, "items": _POLICY}},
            }
        ),
        "onFailure": Parameters(
            {"type": "object", "properties": {"delay": {"type": ["string", "null"], "format": "duration"}}}
        ),
    }
    metadata: ClassVar = {"attempt": 0}
    reruns = True
    restores = True
    renews = True

    def on_entry(self, context: PhaseContext) -> MiddlewareDirective:
        if context.arguments is None:
            return Pass(becomes={"attempt": 1})
        policies = context.arguments["policies"]
        memory = {"handled": [0] * len(policies), "drawn": [None] * len(policies)}
        return Pass(config=policies, memory=memory, becomes={"attempt": 1})

    def on_failure(self, context: PhaseContext) -> MiddlewareDirective:
        if context.arguments is None or context.config is None:
            return Pass()
        risen = context.result
        assert risen is not None
        pay_for_each(len(context.config))
        at = next((at for at, policy in enumerate(context.config) if matches(policy["match"], risen)), None)
        if at is None:
            return Pass()
        policy, runs = context.config[at], context.metadata["attempt"]
        handled, drawn = list(context.memory["handled"]), list(context.memory["drawn"])
        handled[at] += 1
        if handled[at] >= policy["attempts"]:
            details = {"attempts": runs, "policy": at}
            message = f"attempt {runs} failed too, and policy {at} allows no more attempts"
            return Emit(result=failure(EXHAUSTED, message, details=details, previous=risen))
        override = context.arguments.get("delay")
        if override is not None:
            delay = parse_duration(override)
        else:
            delay, drawn[at] = gap(policy.get("backoff"), handled[at], drawn[at], context.draw)
        memory = {"handled": handled, "drawn": drawn}
        return Again(delay=delay, restore=True, memory=memory, becomes={"attempt": runs + 1})

    def build_net(
        self, net: "FlowNet", entry: "MiddlewareEntry", at: int, part: int, inside: "Callable[[int], Ends]"
    ) -> "Ends":
        """Failures that a policy matches run it again, a limited number of times; then they are exhausted."""
        again = net.net.place()
        net.go(part, "", at, again, is_start=False)
        policies = self._policies(net, entry)
        tries_again = policies is None or any(item["attempts"] > 1 for item in policies)
        net.retries += tries_again
        ends = net.wrapped(entry, again, part, inside)
        net.retries -= tries_again
        if policies is None or "onFailure" in entry.phases or any("backoff" in item for item in policies):
            net.waits += 1
        if policies is None or policies:
            for failure in list(ends.failures):
                place = ends.failures[failure]
                results = [item for item in policies or () if failure.matched_by(item["match"]) is not False]
                if policies is not None and not results:
                    continue
                if policies is None or any(item["attempts"] > 1 for item in results):
                    net.go(part, "tries again", place, again, is_failure=True, is_bounded=True, is_start=False)
                exhausted = net.failed(ends, net.known(EXHAUSTED))
                if exhausted != place:
                    net.go(part, "has no attempts left", place, exhausted, is_failure=True, is_start=False)
        return net.passed_on(ends, part)

    def _policies(self, net: "FlowNet", entry: "MiddlewareEntry") -> list[dict[str, Any]] | None:
        """The policies, if they are literal; empty if the entry is switched off."""
        first, after = entry.phase("onEntry"), entry.phase("onFailure")
        if any(phase.when is not None and phase.when.literal is False for phase in (first, after)):
            return []
        policies = net.literal_member(first.arguments, "policies")
        is_valid = isinstance(policies, list) and all(
            isinstance(item, dict) and isinstance(item.get("attempts"), int) and isinstance(item.get("match"), dict)
            for item in policies
        )
        return policies if is_valid else None


def gap(
    backoff: dict[str, Any] | None, retry: int, previous: Instant | None, draw: Callable[[], float]
) -> tuple[Instant, Instant | None]:
    """The wait before a policy's `retry`-th retry, and what decorrelated jitter drew (MWL-405, O-12)."""
    if backoff is None:
        return 0, previous
    initial = max(0, parse_duration(backoff["initial"]))
    ceiling = max(0, parse_duration(backoff["max"])) if "max" in backoff else LAST
    try:
        scheduled = min(initial * float(backoff.get("rate", 1)) ** (retry - 1), ceiling)
    except OverflowError:
        scheduled = ceiling
    match backoff.get("jitter", "none"):
        case "full":
            return int(scheduled * draw()), previous
        case "equal":
            return int(scheduled / 2 + scheduled / 2 * draw()), previous
        case "decorrelated":
            top = 3 * (initial if previous is None else previous)
            delay = int(min(ceiling, initial + (top - initial) * draw()))
            return delay, delay
        case _:
            return int(scheduled), previous
