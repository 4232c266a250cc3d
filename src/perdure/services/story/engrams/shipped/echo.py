"""`echo`: returns its input, for examples, tests and benchmarks."""

from typing import Any

from perdure.services.story.engrams.engram_resources import template
from perdure.services.story.engrams.registry import as_provider
from perdure.services.story.engrams.shipped import VERSION

TEMPLATE = template("echo", VERSION, description="Returns its input.")


async def echo(inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs


PROVIDER = as_provider(TEMPLATE, echo)
