"""How a run starts, in the order of STY-111: sizes, references, graph, inputs."""

from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.labels import RUN
from perdure.dialects.story.run.story_end import end_run
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import BOUND_RANK, Reason, StoryPhase
from perdure.dialects.story.values.references import INSTEAD
from perdure.dialects.story.values.schema_fit import fitted
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload, RunId
from perdure.kernel.turn import Turn

ID_SUFFIX_LENGTH = 10


def begin(turn: Turn) -> None:
    program: Program = turn.program
    options = jsontext.decode(turn.state.options)
    raw_inputs = jsontext.decode(turn.text(turn.state.input))
    name, namespace = names_of(turn, options)
    problem = _problem(program, raw_inputs, 0 if options.get("inputsOfAnySize") else _size(turn.state.input))
    beside = options.get("beside", {})
    inputs = beside if not isinstance(raw_inputs, dict) else {**raw_inputs, **beside} if beside else raw_inputs
    if problem is None:
        problem, inputs = _fitted(program, inputs)
    stored_inputs = turn.state.input if inputs is raw_inputs else turn.keep(jsontext.encode(inputs))
    bound = program.bounds.get("story")
    if problem is not None:
        turn.emit(s.StoryStarted(name, namespace, stored_inputs, turn.now, is_refused=True))
        end_run(turn, StoryPhase.FAILED, *problem)
        return
    timer = 0 if bound is None else turn.set_timer(turn.now + bound, BOUND_RANK)
    turn.emit(s.StoryStarted(name, namespace, stored_inputs, turn.now, timer))


def _size(payload: Payload) -> int:
    return len(payload) if isinstance(payload, bytes) else payload.size


def names_of(turn: Turn, options: dict[str, Any]) -> tuple[str, str]:
    body: Body = turn.body
    program: Program = turn.program
    name = body.name or options.get("name") or turn.state.labels.get(RUN)
    return name or generated_name(program, turn.execution.id), body.namespace or turn.execution.namespace


def generated_name(program: Program, run: RunId) -> str:
    """The name of a run without a chosen one: its Story's name and the end of its id."""
    tail = "".join(filter(str.isalnum, run.lower()))[-ID_SUFFIX_LENGTH:]
    return f"{program.name[:50].rstrip('-')}-{tail}"


def _problem(program: Program, inputs: Any, size: int) -> tuple[str, str] | None:
    if inputs is not None and not isinstance(inputs, dict):
        return Reason.INPUT_SCHEMA_FAILED, "StoryRun inputs failed schema validation: inputs must be an object"
    limit = program.settings.max_inline_inputs_size
    if size > limit:
        return Reason.INPUT_TOO_LARGE, f"spec.inputs too large ({size} bytes > {limit}). {INSTEAD}"
    if program.refusal is not None:
        return Reason.INVALID_CONFIGURATION, program.refusal
    return None


def _fitted(program: Program, inputs: dict[str, Any]) -> tuple[tuple[str, str] | None, dict[str, Any]]:
    """The inputs with defaults filled in, and the remaining problem, if any (STY-209, STY-210)."""
    completed, problems = fitted(program.spec.get("inputsSchema"), inputs)
    if not problems:
        return None, completed
    return (Reason.INPUT_SCHEMA_FAILED, f"StoryRun inputs failed schema validation: {problems}"), completed
