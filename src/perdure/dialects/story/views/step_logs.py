"""The logs of a step's executions, as its StepRun refers to them (STY-263).

    <namespace>/<storyrun>/steps/<step>/log/attempts.json
        [{attempt, log: [{at, level, message, fields?}, …], dropped?}, …]

They are stored with the run, one report for each execution that logged anything; a StepRun keeps the latest.
"""

import re
from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state.body import Body, StepRun
from perdure.dialects.story.values.references import STORAGE
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload

_ADDRESS = re.compile(r"(?P<run>[^/]+/[^/]+)/steps/(?P<step>[^/]+)/log/attempts\.json")


def reference(body: Body, step: str) -> dict[str, str]:
    return {STORAGE: f"{body.namespace}/{body.name}/steps/{step}/log/attempts.json"}


def log_of(run: StepRun, text: Callable[[Payload], bytes]) -> list[dict[str, Any]]:
    return [{"attempt": attempt, **jsontext.decode(text(report))} for attempt, report in run.logs]


def log_at(body: Body, ref: str, text: Callable[[Payload], bytes]) -> list[dict[str, Any]] | None:
    """The logs at such an address of this run; None if it is not such an address, or there are none."""
    match = _ADDRESS.fullmatch(ref)
    state = body.steps.get(match["step"]) if match is not None else None
    if match is None or state is None or state.run is None or match["run"] != f"{body.namespace}/{body.name}":
        return None
    return log_of(state.run, text) or None
