"""Templates that read offloaded data, evaluated by a helper step (STY-207, `inject`).

    a template needs a stored value ─▶ HelperNeeded ─▶ HelpWanted ─▶ the helper's StepRun, like any other
    its end puts the step that it helps on the agenda again, which then uses the result

Other templates are rendered as always; a plain path gives a reference, which is passed on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perdure.dialects.story.plan.helper_steps import helper_name
from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import StoryPhase
from perdure.expressions.gotemplate import EvaluationFault, NeedsStoredValue, is_template
from perdure.expressions.gotemplate.structure import TEMPLATE_KEY
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import digest
from perdure.kernel.turn import Turn

CONDITION, OBJECT = "condition", "object"
REFERENCES = "references"
"""Member of a helper's input: the paths of references to config maps, as written in the document."""


class HelperNeeded(Exception):
    """A decision needs a helper's result. Raised before anything is decided."""

    def __init__(self, purpose: str, step: str, inputs: dict[str, Any]) -> None:
        super().__init__(f"{purpose} of {step!r} needs offloaded data")
        self.purpose = purpose
        self.step = step
        self.inputs = inputs


@dataclass(slots=True)
class PartialRendering:
    """A value with templates, rendered as far as possible; `holes` are evaluated by a helper."""

    render: Callable[[Any], Any]
    holes: list[Any] = field(default_factory=list)

    def part(self, value: Any) -> Callable[[list[Any]], Any]:
        """A function that returns the part, given the results for the holes."""
        if isinstance(value, dict) and TEMPLATE_KEY not in value:
            members = {name: self.part(member) for name, member in value.items()}
            return lambda results: {name: member(results) for name, member in members.items()}
        if isinstance(value, list):
            items = [self.part(item) for item in value]
            return lambda results: [item(results) for item in items]
        if not isinstance(value, dict) and not (isinstance(value, str) and is_template(value)):
            return lambda results: value
        try:
            rendered = self.render(value)
        except NeedsStoredValue:
            position = len(self.holes)
            self.holes.append(value)
            return lambda results: results[position]
        return lambda results: rendered


def request(
    program: Program, mode: str, template: Any, variables: dict[str, Any], *, refuses_absent: bool = False
) -> dict[str, Any]:
    """The input of a helper."""
    settings = program.settings
    limits: dict[str, Any] = {"maxOutputBytes": settings.max_output_bytes}
    if settings.is_deterministic:
        limits["deterministic"] = True
    if settings.has_typed_functions:
        limits["typedFunctions"] = True
    if refuses_absent:
        limits["refusesAbsent"] = True
    return {"mode": mode, "template": template, "vars": variables, "limits": limits}


def result(turn: Turn, purpose: str, step: str, inputs: dict[str, Any], *, may_differ: bool = True) -> Any:
    """The helper's result. Raises `HelperNeeded` while there is none, and `EvaluationFault` if the helper failed.

    Unless the result `may_differ` from what would be requested now, an older one does not count.
    """
    body: Body = turn.body
    name = helper_name(purpose, step)
    state = body.steps.get(name)
    if state is None or not state.phase.is_terminal:
        raise HelperNeeded(purpose, step, inputs)
    if not may_differ and body.help.get(name) != _request_digest(inputs):
        raise HelperNeeded(purpose, step, inputs)
    if state.phase is not StoryPhase.SUCCEEDED or state.output is None:
        raise EvaluationFault(state.message)
    result = jsontext.decode(turn.text(state.output)).get("result")
    template = inputs["template"]
    fits = len(result) == len(template) if isinstance(result, list) and isinstance(template, list) else False
    if not (fits or (isinstance(result, bool) and inputs["mode"] == CONDITION)):
        raise EvaluationFault(f"step '{step_run_name(body, name)}' did not return what was requested")
    return result


def ask(turn: Turn, request: HelperNeeded) -> None:
    """Add the helper, unless it is already running; the step that it helps waits for its end."""
    body: Body = turn.body
    name = helper_name(request.purpose, request.step)
    if name in body.helping:
        return
    message = f"Waiting for step '{step_run_name(body, name)}' to read offloaded data"
    inputs, key = turn.keep(jsontext.encode(request.inputs)), _request_digest(request.inputs)
    turn.emit(s.HelpWanted(name, request.step, request.purpose, inputs, key, message, turn.now))


def _request_digest(inputs: dict[str, Any]) -> bytes:
    return digest(jsontext.canonical(inputs))
