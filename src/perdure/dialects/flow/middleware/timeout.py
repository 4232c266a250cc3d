"""Timeout: bounds the time of its inner scope (MWL-420 to MWL-424)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from perdure.dialects.flow.middleware.protocol import (
    Emit,
    Middleware,
    MiddlewareDirective,
    Pass,
    PhaseContext,
    SetBound,
)
from perdure.dialects.flow.plan.instants import clamp, parse_duration, write_timestamp
from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.state.failures import failure

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.program import MiddlewareEntry
    from perdure.dialects.flow.views.net import Ends, FlowNet

EXCEEDED = "Provider.Middleware.Timeout.Exceeded"


class Timeout(Middleware):
    uri = "mwl:provider.middleware/mwl/timeout/v1"
    parameters: ClassVar = {
        "onEntry": Parameters(
            {
                "type": "object",
                "required": ["duration"],
                "properties": {"duration": {"type": "string", "format": "duration"}},
            }
        )
    }

    renews = True

    def on_entry(self, context: PhaseContext) -> MiddlewareDirective:
        if context.arguments is None:
            return Pass()
        text = context.arguments["duration"]
        duration = parse_duration(text)
        deadline = clamp(context.at + duration)
        metadata = {"deadline": write_timestamp(deadline)}
        exceeded = failure(EXCEEDED, f"no Result within {text}", type="timeout")
        if duration <= 0:
            return Emit(result=exceeded, reveals=metadata)
        return SetBound(deadline=deadline, failure=exceeded, reveals=metadata)

    def build_net(
        self, net: "FlowNet", entry: "MiddlewareEntry", at: int, part: int, inside: "Callable[[int], Ends]"
    ) -> "Ends":
        """What is inside ends in time, or with this failure; a cycle in it does not go on for ever."""
        first = entry.phase("onEntry")
        is_on = first.when is None or first.when.literal is not False
        text = net.literal_member(first.arguments, "duration") if is_on else None
        length = net.duration(text)
        if length is not None and net.limits and length > min(net.limits):
            net.report_inverted(entry, part, str(text))
        net.limits += [length] if length is not None else []
        begun, waits = len(net.net.transitions), net.waits
        ends = net.wrapped(entry, at, part, inside)
        net.limits = net.limits[:-1] if length is not None else net.limits
        if first.when is None or first.when.literal is True:
            net.net.limit_from(begun)
        if is_on and (net.waits > waits or (length is not None and length <= 0)):
            net.go(part, "takes too long", at, net.failed(ends, net.known(EXCEEDED, "timeout")), is_start=False)
        return ends
