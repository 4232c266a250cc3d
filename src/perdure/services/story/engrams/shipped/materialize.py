"""`materialize`: evaluates a template over its input data."""

import random
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from perdure.expressions.gotemplate import (
    DETERMINISTIC,
    RUNTIME,
    Ambient,
    Environment,
    ExpressionError,
    Failure,
    Structure,
    holds,
)
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND, TurnBudget, TurnTooExpensive
from perdure.services.story.engrams.engram_resources import template
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.registry import as_provider
from perdure.services.story.engrams.shipped import VERSION

WORK = 1000 * STEPS_PER_MILLISECOND
"""The limit for all templates of one call, in counted work: about a second."""

TEMPLATE = template(
    "materialize",
    VERSION,
    description="Evaluates a template, or an object with templates in it, over its input data.",
    input_schema={
        "type": "object",
        "required": ["template"],
        "properties": {
            "mode": {"type": "string", "enum": ["condition", "object"]},
            "template": {},
            "vars": {"type": "object"},
            "limits": {
                "type": "object",
                "properties": {
                    "maxOutputBytes": {"type": "integer", "minimum": 1},
                    "deterministic": {"type": "boolean"},
                    "typedFunctions": {"type": "boolean"},
                    "refusesAbsent": {"type": "boolean"},
                },
            },
        },
    },
    output_keys=("result",),
)


def materialize(inputs: dict[str, Any]) -> dict[str, Any]:
    roots, limits = inputs.get("vars") or {}, inputs.get("limits") or {}
    library = DETERMINISTIC if limits.get("deterministic") else RUNTIME
    environment = Environment(frozenset(roots) | {"inputs", "steps"}, "materialize", library)
    if "maxOutputBytes" in limits:
        environment = replace(environment, limits=replace(environment.limits, output=limits["maxOutputBytes"]))
    environment = replace(
        environment,
        typed_functions=bool(limits.get("typedFunctions")),
        refuses_absent=bool(limits.get("refusesAbsent")),
    )
    ambient = Ambient(datetime.now(UTC), random.random)
    try:
        with TurnBudget(WORK):  # all templates together
            result = Structure(inputs["template"], environment).render({"inputs": {}, "steps": {}, **roots}, ambient)
            return {"result": holds(result) if inputs.get("mode") == "condition" else result}
    except TurnTooExpensive:
        message = "the templates exceed the work limit of one evaluation"
        raise EngramError(message, type="execution_error", exit_class="terminal") from None
    except ExpressionError as error:
        message = error.message if isinstance(error, Failure) else str(error).partition("\n")[0]
        raise EngramError(message, type="execution_error", exit_class="terminal") from None


PROVIDER = as_provider(TEMPLATE, materialize, computes=True)
