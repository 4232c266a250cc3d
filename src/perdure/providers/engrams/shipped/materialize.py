"""`materialize`: evaluates a template over the data it is given."""

import random
from datetime import UTC, datetime
from typing import Any

from perdure.expressions.gotemplate import RUNTIME, Ambient, Environment, Structure, TemplateError, holds
from perdure.providers.engrams.describing import template
from perdure.providers.engrams.failure import EngramError
from perdure.providers.engrams.registry import as_provider
from perdure.providers.engrams.shipped import VERSION

TEMPLATE = template(
    "materialize",
    VERSION,
    description="Evaluates a template, or an object with templates in it, over the data it is given.",
    input_schema={
        "type": "object",
        "required": ["template"],
        "properties": {
            "mode": {"type": "string", "enum": ["condition", "object"]},
            "template": {},
            "vars": {"type": "object"},
        },
    },
    output_keys=("result",),
)


async def materialize(inputs: dict[str, Any]) -> dict[str, Any]:
    roots = inputs.get("vars") or {}
    environment = Environment(frozenset(roots) | {"inputs", "steps"}, "materialize", RUNTIME)
    ambient = Ambient(datetime.now(UTC), random.random)
    try:
        result = Structure(inputs["template"], environment).render({"inputs": {}, "steps": {}, **roots}, ambient)
        return {"result": holds(result) if inputs.get("mode") == "condition" else result}
    except TemplateError as error:
        raise EngramError(str(error), type="execution_error", exit_class="terminal") from None


PROVIDER = as_provider(TEMPLATE, materialize)
