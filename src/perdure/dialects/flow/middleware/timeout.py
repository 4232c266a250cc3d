"""Timeout: bounds the time of its inner scope (MWL-420 to MWL-424)."""

from typing import ClassVar

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
