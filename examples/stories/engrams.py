"""Engrams for the Stories beside this file: `perdure run STORY --load examples/stories/engrams.py`."""

from typing import Any

import perdure


@perdure.engram("greeter", version="1.0.0")
def greet(inputs: dict[str, Any], context: perdure.EngramContext) -> dict[str, str]:
    return {"text": f"Hello, {inputs['name']}"}


@perdure.engram("wobbly", version="1.0.0")
def wobble(inputs: dict[str, Any], context: perdure.EngramContext) -> dict[str, int]:
    """Fails as often as the input says, with an error that is retried."""
    if context.attempt <= inputs["failures"]:
        raise perdure.EngramError("not yet", exit_class="retry")
    return {"attempts": context.attempt}
