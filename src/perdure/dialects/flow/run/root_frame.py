"""The root frame: the platform is its caller, and may have supplied arguments (MWL-075)."""

from typing import Any

from perdure.dialects.flow.plan.program import Program
from perdure.dialects.flow.state.failures import Fault, invalid
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload


def root_bindings(turn: Turn) -> tuple[dict[str, Payload], Payload | None]:
    program: Program = turn.program
    options: dict[str, Any] = jsontext.decode(turn.state.options)
    arguments = options.get("args", {})
    parameters = program.root.parameters
    try:
        if not isinstance(arguments, dict):
            raise invalid("arguments must be an object", "", arguments)
        parameters.validate(arguments, "arguments of the run")
    except Fault as fault:
        return {}, turn.keep(jsontext.encode(fault.envelope))
    bound = {**parameters.defaults, **arguments}
    return {name: turn.keep(jsontext.encode(value)) for name, value in bound.items()}, None
