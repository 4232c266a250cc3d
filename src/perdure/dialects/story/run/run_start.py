"""How a run begins, in the order of STY-111: sizes, references, graph, inputs."""

from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.resources.labels import RUN
from perdure.dialects.story.run.run_end import end_run
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import BOUND_RANK, Phase, Reason
from perdure.dialects.story.values.references import INSTEAD
from perdure.dialects.story.values.schema_fit import fitted
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload, RunId

STREAMING_MISSING = (
    "Streaming Stories are not run yet: the hub that carries packets between workers (section 15) is missing"
)
LETTERS_OF_ID = 10


def begin(turn: Turn) -> None:
    program: Program = turn.program
    options = jsontext.decode(turn.state.options)
    given = jsontext.decode(turn.text(turn.state.input))
    name, namespace = names_of(turn, options)
    found = _problem(program, given, 0 if options.get("inputsOfAnySize") else _size(turn.state.input))
    beside = options.get("beside", {})
    inputs = beside if not isinstance(given, dict) else {**given, **beside} if beside else given
    if found is None:
        found, inputs = _fitted(program, inputs)
    kept = turn.state.input if inputs is given else turn.keep(jsontext.encode(inputs))
    bound = program.bounds.get("story")
    if found is not None:
        turn.emit(s.StoryStarted(name, namespace, kept, turn.now, is_refused=True))
        end_run(turn, Phase.FAILED, *found)
        return
    timer = 0 if bound is None else turn.set_timer(turn.now + bound, BOUND_RANK)
    turn.emit(s.StoryStarted(name, namespace, kept, turn.now, timer))


def _size(given: Payload) -> int:
    return len(given) if isinstance(given, bytes) else given.size


def names_of(turn: Turn, options: dict[str, Any]) -> tuple[str, str]:
    body: Body = turn.body
    program: Program = turn.program
    name = body.name or options.get("name") or turn.state.labels.get(RUN)
    namespace = body.namespace or options.get("namespace") or program.namespace
    return name or generated_name(program, turn.execution.id), namespace


def generated_name(program: Program, run: RunId) -> str:
    """Of a run that nobody has named: its Story's, and the end of its id."""
    tail = "".join(filter(str.isalnum, run.lower()))[-LETTERS_OF_ID:]
    return f"{program.name[:50].rstrip('-')}-{tail}"


def _problem(program: Program, given: Any, size: int) -> tuple[str, str] | None:
    if given is not None and not isinstance(given, dict):
        return Reason.INPUT_SCHEMA_FAILED, "StoryRun inputs failed schema validation: inputs must be an object"
    most = program.settings.max_inline_inputs_size
    if size > most:
        return Reason.INPUT_TOO_LARGE, f"spec.inputs too large ({size} bytes > {most}). {INSTEAD}"
    if not program.is_batch:
        return Reason.INVALID_CONFIGURATION, STREAMING_MISSING
    if program.refusal is not None:
        return Reason.INVALID_CONFIGURATION, program.refusal
    return None


def _fitted(program: Program, inputs: dict[str, Any]) -> tuple[tuple[str, str] | None, dict[str, Any]]:
    """Inputs with their defaults, and what is still wrong with them (STY-209, STY-210)."""
    completed, problems = fitted(program.spec.get("inputsSchema"), inputs)
    if not problems:
        return None, completed
    return (Reason.INPUT_SCHEMA_FAILED, f"StoryRun inputs failed schema validation: {problems}"), completed
