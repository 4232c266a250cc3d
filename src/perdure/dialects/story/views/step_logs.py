"""What the executions of a step have logged, as its StepRun refers to it (STY-263).

    <namespace>/<storyrun>/steps/<step>/log/attempts.json
        [{attempt, log: [{at, level, message, fields?}, …], dropped?}, …]

It lives with the run, one report for each execution that said anything; a StepRun keeps those of the latest.
"""

import re
from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state.body import Body, StepRun
from perdure.dialects.story.values.references import STORAGE
from perdure.kernel import jsontext
from perdure.kernel.values import Payload

_ADDRESS = re.compile(r"(?P<run>[^/]+/[^/]+)/steps/(?P<step>[^/]+)/log/attempts\.json")


def reference(body: Body, step: str) -> dict[str, str]:
    return {STORAGE: f"{body.namespace}/{body.name}/steps/{step}/log/attempts.json"}


def log_of(run: StepRun, text: Callable[[Payload], bytes]) -> list[dict[str, Any]]:
    return [{"attempt": attempt, **jsontext.decode(text(kept))} for attempt, kept in run.logs]


def log_at(body: Body, ref: str, text: Callable[[Payload], bytes]) -> list[dict[str, Any]] | None:
    """What stands at such an address of this run; None when it is no such address, or there is nothing."""
    found = _ADDRESS.fullmatch(ref)
    state = body.steps.get(found["step"]) if found is not None else None
    if found is None or state is None or state.run is None or found["run"] != f"{body.namespace}/{body.name}":
        return None
    return log_of(state.run, text) or None
