"""`echo`: gives back its input. For examples, tests and measuring everything else."""

from typing import Any

from perdure.providers.engrams.describing import template
from perdure.providers.engrams.registry import as_provider
from perdure.providers.engrams.shipped import VERSION

TEMPLATE = template("echo", VERSION, description="Gives back its input.")


async def echo(inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs


PROVIDER = as_provider(TEMPLATE, echo)
