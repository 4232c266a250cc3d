"""The mock provider: a Result made of its arguments alone, after a delay if asked for (MWL-450 to MWL-454)."""

from typing import Any

import msgspec

from perdure.dialects.flow.plan.instants import parse_duration
from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.state.failures import Envelope
from perdure.kernel.json_values.values import Instant

PARAMETERS = Parameters(
    {
        "type": "object",
        "properties": {
            "value": {},
            "failure": {
                "type": ["object", "null"],
                "additionalProperties": False,
                "required": ["code"],
                "properties": {
                    "type": {"type": "string", "not": {"const": "success"}},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {},
                    "retryable": {"type": ["boolean", "null"]},
                    "previous": {"type": ["object", "null"]},
                },
            },
            "delay": {"type": "string", "format": "duration"},
            "metadata": {"type": "object"},
        },
    }
)


class MockResult(msgspec.Struct, frozen=True):
    failure: Envelope | None
    has_value: bool  # otherwise the success echoes the input
    value: Any
    delay: Instant
    metadata: dict[str, Any]


def mock_result(arguments: dict[str, Any]) -> MockResult:
    failure = arguments.get("failure")
    return MockResult(
        None if failure is None else {"type": "error", **failure},
        "value" in arguments,
        arguments.get("value"),
        parse_duration(arguments["delay"]) if "delay" in arguments else 0,
        arguments.get("metadata", {}),
    )
