"""What words to a Story are about."""

from typing import Any

from perdure.dialects.story.state.body import Body
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.execution import Execution

Word = i.Signal | i.Steer | i.Reopen


def subjects(given: Word) -> frozenset[str]:
    match given:
        case i.Signal(name):
            return frozenset({f"signal {name}"})
        case i.Steer("gate", body):
            return frozenset({f"gate {_said(body).get('step')}"})
        case _:
            return frozenset()


def phrase(given: Word) -> str:
    match given:
        case i.Signal(name):
            return f"signal {name!r}"
        case i.Steer("gate", body):
            said = _said(body)
            return f"gate {said.get('step')!r} {str(said.get('state') or 'changed').lower()}"
        case i.Steer(verb, body):
            step = _said(body).get("step")
            return f"{verb} of step {step!r}" if step else verb
        case _:
            return "redrive"


def unreached(execution: Execution, given: Word) -> str:
    body: Body = execution.body
    match given:
        case i.Steer("gate", said):
            step = str(_said(said).get("step"))
            return "" if step in body.steps else f"gate {step!r}"
        case _:
            return ""


def _said(body: object) -> dict[str, Any]:
    said = jsontext.decode(body) if isinstance(body, bytes) else None
    return said if isinstance(said, dict) else {}
