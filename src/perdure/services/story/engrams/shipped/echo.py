"""`echo`: gives back its input. For examples, tests and measuring everything else."""

from typing import Any

from perdure.services.story.engrams.catalog_entries import template
from perdure.services.story.engrams.registry import as_provider
from perdure.services.story.engrams.shipped import VERSION

TEMPLATE = template("echo", VERSION, description="Gives back its input.")


async def echo(inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs


PROVIDER = as_provider(TEMPLATE, echo)
