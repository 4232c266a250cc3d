"""The Engram `map-reduce-adapter`: a child Story for every item, some at a time, and perhaps one over their results.

Waiting for runs is no work, so no worker is held: the step's own run starts the children and hears of their ends
(STY-271). What it gives is what the published adapter gives, with the children's outputs in place of references.
"""

from functools import lru_cache
from typing import Any

from perdure.dialects.story import children, references
from perdure.dialects.story import events as s
from perdure.dialects.story.body import REDUCE, Body, Fan, StepState
from perdure.dialects.story.ending import end_step
from perdure.dialects.story.errors import StepError
from perdure.dialects.story.identity import compose
from perdure.dialects.story.naming import step_run_name
from perdure.dialects.story.phases import Phase, Reason
from perdure.dialects.story.policies import Execution
from perdure.dialects.story.program import Program, Step, part
from perdure.dialects.story.resources import Reference, Resource
from perdure.dialects.story.timers import BOUND_RANK
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn

TEMPLATE = "map-reduce-adapter"

_OURS = {"map": ("item", "index", "total", "context", "inputs"), "reduce": ("manifest", "resultsIndex", "stats")}


def begin(turn: Turn, step: Step, inputs: dict[str, Any], execution: Execution) -> None:
    """The StepRun is there, with its resolved input: begin to map, or say why not."""
    problem = _problem(turn, step, inputs)
    if problem is not None:
        error = StepError.make("validation_error", problem, exit_code=1, exit_class="terminal")
        end_step(turn, step.name, Phase.FAILED, problem, error=error, exit_code=1, exit_class="terminal")
        return
    wanted = part(inputs, "map")
    limit = _number(wanted.get("concurrency"), inputs.get("defaultConcurrency"), 10)
    most = _number(inputs.get("maxConcurrency"), None, 0)
    timeout = execution.timeout()
    timer = 0 if timeout is None else turn.set_timer(turn.now + timeout, BOUND_RANK)
    turn.emit(
        s.FanBegan(
            step.name,
            len(inputs["items"]),
            max(1, min(limit, most) if most else limit),
            _flag(wanted.get("failFast"), inputs.get("defaultFailFast"), True),
            _flag(wanted.get("allowFailures"), inputs.get("defaultAllowFailures"), False),
            timer,
            turn.now,
        )
    )


def missing_story(turn: Turn, step: Step, inputs: dict[str, Any]) -> references.Missing | None:
    """A Story that it would start and that is not there: the step waits for it (STY-118)."""
    for stage in ("map", "reduce"):
        told = part(inputs, stage)
        if "storyRef" in told and not isinstance(told.get("story"), dict):
            found = references.find_story(turn, step, told["storyRef"])
            if isinstance(found, references.Missing):
                return found
    return None


def _problem(turn: Turn, step: Step, inputs: dict[str, Any]) -> str | None:
    if not isinstance(inputs.get("items"), list):
        return "items must be a list"
    for stage in ("map", "reduce"):
        if stage == "reduce" and inputs.get(stage) is None:
            continue
        told = part(inputs, stage)
        taken = sorted(set(part(told, "inputs")) & set(_OURS[stage]))
        if taken:
            return f"{stage}.inputs key {taken[0]!r} is reserved and cannot be overridden"
        found = _story(turn, step, told)
        if isinstance(found, str):
            return f"{stage}: {found}"
    return None


def _story(turn: Turn, step: Step, told: dict[str, Any]) -> tuple[Reference, Resource] | str:
    """The Story of a stage: named, or written in place."""
    program: Program = turn.program
    inline = told.get("story")
    if isinstance(inline, dict):
        name = compose("mapreduce", step.name)
        story = {**program.story, "metadata": {"name": name, "namespace": program.namespace}, "spec": inline}
        return Reference(name, program.namespace), story
    found = references.find_story(turn, step, told.get("storyRef"))
    return found.message if isinstance(found, references.Invalid | references.Missing) else found


def move(turn: Turn, step: Step, state: StepState) -> None:
    """Start the next child, or go on once every item has had its own."""
    fan = state.fan
    assert fan is not None and state.run is not None and state.run.arguments is not None
    inputs = _inputs(turn.text(state.run.arguments))
    if fan.can_start:
        shared = {name: inputs[name] for name in ("context", "inputs") if inputs.get(name)}
        item = {"item": inputs["items"][fan.next], "index": fan.next, "total": fan.total}
        _launch(turn, step, part(inputs, "map"), fan.next, {**item, **shared})
    elif _is_good(fan) and inputs.get("reduce") is not None and REDUCE not in fan.results:
        manifest = _manifest(turn, fan)
        told = {"manifest": manifest, "resultsIndex": manifest, "stats": manifest["stats"]}
        _launch(turn, step, part(inputs, "reduce"), REDUCE, told)
    else:
        _finish(turn, step, fan, inputs)


@lru_cache(maxsize=8)
def _inputs(arguments: bytes) -> dict[str, Any]:
    """Read, never changed: a wide map asks for the same items again and again."""
    found: dict[str, Any] = jsontext.decode(arguments)["inputs"]
    return found


def _launch(turn: Turn, step: Step, told: dict[str, Any], index: int, given: dict[str, Any]) -> None:
    found = _story(turn, step, told)
    above = children.ancestors(turn)
    assert not isinstance(found, str), found
    inputs = {**given, **part(told, "inputs")}
    name = compose(turn.body.name, step.name, "reduce" if index == REDUCE else str(index))
    child = children.launch(turn, step, name, *found, inputs, above)
    turn.emit(s.FanChildStarted(step.name, index, child, name))


def land(turn: Turn, step: Step, state: StepState, ended: e.ChildEnded) -> None:
    fan = state.fan
    assert fan is not None
    told = children.read_end(turn, ended)
    turn.emit(s.FanChildEnded(step.name, fan.children[ended.child], ended.child, told.phase, told.message))


def _is_good(fan: Fan) -> bool:
    return not fan.failed or fan.allows_failures


def _manifest(turn: Turn, fan: Fan) -> dict[str, Any]:
    stats = {"total": fan.total, "succeeded": fan.succeeded, "failed": fan.failed}
    return {"version": "v1", "stats": stats, "items": [_item(turn, fan, index) for index in range(fan.total)]}


def _item(turn: Turn, fan: Fan, index: int) -> dict[str, Any]:
    result = fan.results.get(index)
    if result is None:
        return {"index": index, "phase": Phase.SKIPPED.value, "error": "not started"}
    item: dict[str, Any] = {"index": index, "storyRun": result.sub_run, "phase": str(result.phase)}
    if result.told is None:
        return {**item, "error": result.message}
    return {**item, "output": children.read_told(jsontext.decode(turn.text(result.told))).output}


def _finish(turn: Turn, step: Step, fan: Fan, inputs: dict[str, Any]) -> None:
    body: Body = turn.body
    manifest = _manifest(turn, fan)
    output: dict[str, Any] = {
        "manifest": manifest,
        "resultsIndex": {"version": "v1", "stats": manifest["stats"], "items": manifest["items"]},
        "resultsPrefix": f"{body.namespace}/{step_run_name(body, step.name)}/map-items",
        "stats": manifest["stats"],
    }
    most = _number(part(inputs, "map").get("inlineResultsLimit"), inputs.get("defaultInlineResultsLimit"), 0)
    if not most or fan.total <= most:
        output["results"] = [item.get("output") for item in manifest["items"]]
    problem = None if _is_good(fan) else "map stage had failures"
    reduced = fan.results.get(REDUCE)
    if reduced is not None:
        output["reduce"] = {**_item(turn, fan, REDUCE), "storyRun": reduced.sub_run}
        del output["reduce"]["index"]
        if reduced.phase != Phase.SUCCEEDED:
            problem = f"reduce stage failed: {reduced.message}"
    text = jsontext.encode(output)
    if problem is None:
        end_step(turn, step.name, Phase.SUCCEEDED, COMPLETED, output=text, exit_code=0, exit_class="success")
    else:
        error = StepError.make("execution_error", problem, exit_code=1, exit_class="terminal")
        end_step(turn, step.name, Phase.FAILED, problem, output=text, error=error, exit_code=1, exit_class="terminal")


COMPLETED = "StepRun completed successfully."


def expire(turn: Turn, step: Step, state: StepState) -> None:
    """The step's time is up: its children are told, and nothing is tried again."""
    stop(turn, state, "the step's time is up")
    message = "the step did not end in time"
    error = StepError.make("timeout", message, exit_code=124, exit_class="retry")
    end_step(turn, step.name, Phase.TIMEOUT, message, reason=Reason.TIMED_OUT, error=error, exit_code=124)


def stop(turn: Turn, state: StepState, why: str) -> None:
    for child in list(state.fan.children) if state.fan is not None else ():
        if child in turn.state.children:
            turn.cancel_child(child, why)


def _number(value: Any, default: Any, last: int) -> int:
    for one in (value, default):
        if isinstance(one, int) and not isinstance(one, bool) and one > 0:
            return one
    return last


def _flag(value: Any, default: Any, last: bool) -> bool:
    return next((one for one in (value, default) if isinstance(one, bool)), last)
