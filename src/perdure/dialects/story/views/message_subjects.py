"""What control messages to a Story refer to, and how they are described."""

from typing import Any

from perdure.dialects.story.state.body import Body
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext

ControlMessage = i.Signal | i.Steer | i.Reopen


def subjects(message: ControlMessage) -> frozenset[str]:
    match message:
        case i.Signal(name):
            return frozenset({f"signal {name}"})
        case i.Steer("gate", body):
            return frozenset({f"gate {_decode(body).get('step')}"})
        case _:
            return frozenset()


def phrase(message: ControlMessage) -> str:
    match message:
        case i.Signal(name):
            return f"signal {name!r}"
        case i.Steer("gate", body):
            decision = _decode(body)
            return f"gate {decision.get('step')!r} {str(decision.get('state') or 'changed').lower()}"
        case i.Steer(verb, body):
            step = _decode(body).get("step")
            return f"{verb} of step {step!r}" if step else verb
        case _:
            return "redrive"


def unreached(execution: Execution, message: ControlMessage) -> str:
    body: Body = execution.body
    match message:
        case i.Steer("gate", payload):
            step = str(_decode(payload).get("step"))
            return "" if step in body.steps else f"gate {step!r}"
        case _:
            return ""


def _decode(body: object) -> dict[str, Any]:
    content = jsontext.decode(body) if isinstance(body, bytes) else None
    return content if isinstance(content, dict) else {}
