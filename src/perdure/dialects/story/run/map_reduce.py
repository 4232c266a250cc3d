"""The Engram `map-reduce-adapter`: a child Story for every item, some at a time, and perhaps one over their results.

Waiting for runs is no work, so no worker is held: the step's own run starts the children and hears of their ends
(STY-271). What it gives is what the published adapter gives, with the children's outputs in place of references.

Items lie in pages beside the log, results likewise once all of a page have ended: a child's start and end cost the same
among ten items and among ten thousand.
"""

from typing import Any

import msgspec

from perdure.dialects.story.plan.execution_policy import ExecutionPolicy
from perdure.dialects.story.plan.helper_steps import ITEMS
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import Reference, Resource
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.run import child_runs, engram_lookup
from perdure.dialects.story.run.post_execution import verified
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import FAN_PAGE, REDUCE, Body, MapState, StepState
from perdure.dialects.story.state.phases import BOUND_RANK, Phase, Reason
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.values import materialize
from perdure.dialects.story.values.references import CONFIG, SECRET, STORAGE
from perdure.expressions.gotemplate import EvaluationFault
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import INLINE_BYTES

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""The items of a page, each as text: only the one that is wanted is read."""

_OURS = {
    "map": ("item", "index", "total", "context", "inputs"),
    "reduce": ("manifest", "resultsIndex", "resultsPrefix", "stats"),
}
COMPLETED = "StepRun completed successfully."
FAILED = "map stage had failures"
NOT_STARTED = "not started"
STOPPED = "another item of the map has failed"


def with_items(turn: Turn, step: Step, inputs: dict[str, Any], places: list[Any]) -> dict[str, Any]:
    """The input, with the items themselves. Those of a config map, or in storage, a worker reads, in a helper step.

    Raises `HelperNeeded` until they are there, `TemplateError` if they cannot be had.
    """
    items = inputs.get("items")
    if not isinstance(items, dict):
        return inputs
    is_written = ["items"] in places
    if is_written and SECRET in items:
        raise EvaluationFault("a map records its items, so they cannot come from a secret")
    if not (is_written and CONFIG in items) and STORAGE not in items:
        return inputs
    wanted = materialize.request(turn.program, materialize.OBJECT, ["{{ inputs }}"], {"inputs": items})
    if is_written:
        wanted[materialize.REFERENCES] = [["vars", "inputs"]]
    (found,) = materialize.result(turn, ITEMS, step.name, wanted)
    return {**inputs, "items": found}


def prepare(turn: Turn, step: Step, inputs: dict[str, Any]) -> child_runs.Ancestors | str:
    """What all children have above them, or why there can be none. It asks for values, and so it comes first."""
    problem = _problem(turn, step, inputs)
    if problem is not None:
        return problem
    above = child_runs.ancestors(turn)
    return child_runs.TOO_DEEP if child_runs.goes_too_deep(turn, above) else above


def begin(
    turn: Turn, step: Step, inputs: dict[str, Any], prepared: child_runs.Ancestors | str, execution: ExecutionPolicy
) -> None:
    """The StepRun is there, with its resolved input: begin to map, or say why not."""
    if isinstance(prepared, str):
        _refuse(turn, step, prepared)
        return
    wanted, items = object_at(inputs, "map"), inputs["items"]
    allows = _flag(wanted.get("allowFailures"), inputs.get("defaultAllowFailures"), False)
    timeout = execution.timeout()
    timer = 0 if timeout is None else turn.set_timer(turn.now + timeout, BOUND_RANK)
    plan = {"inputs": {name: value for name, value in inputs.items() if name != "items"}, "above": prepared}
    turn.enumerated += len(items)
    pages = [jsontext.encode(items[at : at + FAN_PAGE]) for at in range(0, len(items), FAN_PAGE)]
    turn.emit(
        s.FanBegan(
            step.name,
            len(items),
            _bounded(wanted.get("concurrency"), inputs, "Concurrency", 10),
            _flag(wanted.get("failFast"), inputs.get("defaultFailFast"), not allows),
            allows,
            timer,
            turn.now,
            _bounded(wanted.get("batchSize"), inputs, "BatchSize", 100),
            turn.keep(jsontext.encode(plan)),
            tuple(turn.keep(page, 0 if len(pages) > 1 else INLINE_BYTES) for page in pages),
        )
    )


def _refuse(turn: Turn, step: Step, problem: str) -> None:
    error = StepError.make("validation_error", problem, exit_code=1, exit_class="terminal")
    reason = Reason.INVALID_CONFIGURATION if problem == child_runs.TOO_DEEP else ""
    end_step(
        turn, step.name, Phase.FAILED, problem, reason=reason, error=error, exit_code=1, exit_class="terminal"
    )  # fmt: skip


def missing_story(turn: Turn, step: Step, inputs: dict[str, Any]) -> engram_lookup.MissingResource | None:
    """A Story that it would start and that is not there: the step waits for it (STY-118)."""
    for stage in ("map", "reduce"):
        told = object_at(inputs, stage)
        if "storyRef" in told and not isinstance(told.get("story"), dict):
            found = engram_lookup.find_story(turn, step, told["storyRef"])
            if isinstance(found, engram_lookup.MissingResource):
                return found
    return None


def _problem(turn: Turn, step: Step, inputs: dict[str, Any]) -> str | None:
    if not isinstance(inputs.get("items"), list):
        return "items must be a list"
    for stage in ("map", "reduce"):
        if stage == "reduce" and inputs.get(stage) is None:
            continue
        told = object_at(inputs, stage)
        taken = sorted(set(object_at(told, "inputs")) & set(_OURS[stage]))
        if taken:
            return f"{stage}.inputs key {taken[0]!r} is reserved and cannot be overridden"
        if told.get("storyRef") is not None and told.get("story") is not None:
            return f"{stage}.storyRef and {stage}.story cannot both be set"
        if told.get("storyRef") is None and told.get("story") is None:
            return f"{stage}.storyRef or {stage}.story is required"
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
    found = engram_lookup.find_story(turn, step, told.get("storyRef"))
    return found.message if isinstance(found, engram_lookup.InvalidReference | engram_lookup.MissingResource) else found


def move(turn: Turn, step: Step, state: StepState) -> None:
    """Put a page of results away, start the next child, or go on once every item has had its own."""
    fan = state.fan
    assert fan is not None
    if fan.recalled:
        _end_early(turn, step, state)
        return
    told = jsontext.decode(turn.text(fan.plan))
    plan, above = told["inputs"], told["above"]
    if fan.full:
        page = fan.full[0]
        results = jsontext.encode(_page(turn, fan, page))
        turn.emit(s.FanPageClosed(step.name, page, turn.keep(results, 0 if len(fan.items) > 1 else INLINE_BYTES)))
    elif fan.can_start:
        items = _split(turn.text(fan.items[fan.next // FAN_PAGE]))
        shared = {name: plan[name] for name in ("context", "inputs") if plan.get(name) is not None}
        item = {"item": jsontext.decode(items[fan.next % FAN_PAGE]), "index": fan.next, "total": fan.total}
        _launch(turn, step, object_at(plan, "map"), fan.next, {**item, **shared}, above)
    elif _is_good(fan) and plan.get("reduce") is not None and REDUCE not in fan.results:
        output = _gathered(turn, step, fan, plan)
        given = {name: output[name] for name in _OURS["reduce"]}
        _launch(turn, step, object_at(plan, "reduce"), REDUCE, given, above)
    else:
        _finish(turn, step, fan, plan)


def _launch(
    turn: Turn, step: Step, told: dict[str, Any], index: int, given: dict[str, Any], above: child_runs.Ancestors
) -> None:
    found = _story(turn, step, told)
    assert not isinstance(found, str), found
    inputs = {**given, **object_at(told, "inputs")}
    if child_runs.is_too_deep(turn, above, found[0], inputs):  # STY-079
        child_runs.stop(turn, turn.body.steps[step.name], child_runs.TOO_DEEP)
        _refuse(turn, step, child_runs.TOO_DEEP)
        return
    name = compose(turn.body.name, step.name, "reduce" if index == REDUCE else str(index))
    child = child_runs.launch(turn, step, name, *found, inputs, above, with_any_size=index == REDUCE)
    turn.emit(s.FanChildStarted(step.name, index, child, name))


def on_child_end(turn: Turn, step: Step, state: StepState, ended: e.ChildEnded) -> None:
    """A child has ended. One that failed may be the end of the others (`failFast`)."""
    fan = state.fan
    assert fan is not None
    told = child_runs.read_end(turn, ended)
    turn.emit(s.FanChildEnded(step.name, fan.children[ended.child], ended.child, told.phase, told.message))
    if fan.is_stopped and not fan.recalled and fan.failed == 1 and told.phase is not Phase.SUCCEEDED:  # the first
        child_runs.stop(turn, state, STOPPED)


def _is_good(fan: MapState) -> bool:
    return fan.succeeded == fan.total or fan.allows_failures


# What it gives.


def _page(turn: Turn, fan: MapState, page: int) -> list[dict[str, Any]]:
    """The results of a page, in order of its items."""
    indexes = range(page * FAN_PAGE, page * FAN_PAGE + fan.length(page))
    known = [found.told for at in indexes if (found := fan.results.get(at)) is not None and found.told is not None]
    turn.all_texts(known)
    return [_item(turn, fan, index) for index in indexes]


def _item(turn: Turn, fan: MapState, index: int) -> dict[str, Any]:
    result = fan.results.get(index)
    if result is None:
        return {"index": index, "phase": Phase.SKIPPED.value, "error": NOT_STARTED}
    item: dict[str, Any] = {"index": index, "storyRun": result.sub_run, "phase": str(result.phase)}
    if result.told is None:
        return {**item, "error": result.message}
    return {**item, "output": child_runs.read_result(jsontext.decode(turn.text(result.told))).output}


def _gathered(turn: Turn, step: Step, fan: MapState, plan: dict[str, Any]) -> dict[str, Any]:
    body: Body = turn.body
    turn.all_texts(fan.closed.values())
    items: list[dict[str, Any]] = []
    for page in range(len(fan.items)):
        kept = fan.closed.get(page)
        items += _page(turn, fan, page) if kept is None else jsontext.decode(turn.text(kept))
    told = object_at(plan, "map")
    target = _story(turn, step, told)
    assert not isinstance(target, str), target
    stats = {"total": fan.total, "succeeded": fan.succeeded, "failed": fan.total - fan.succeeded}
    reference = {"name": target[0].name, "namespace": target[0].namespace}
    return {
        "manifest": {"version": "v1", "storyRef": reference, "stats": stats, "items": items},
        "resultsIndex": {"version": "v1", "stats": stats, "items": items},
        "resultsPrefix": f"{body.namespace}/{step_run_name(body, step.name)}/map-items",
        "stats": stats,
    }


def _finish(turn: Turn, step: Step, fan: MapState, plan: dict[str, Any]) -> None:
    output = _gathered(turn, step, fan, plan)
    most = _number(object_at(plan, "map").get("inlineResultsLimit"), plan.get("defaultInlineResultsLimit"), 0)
    if fan.total <= most:
        output["results"] = [item.get("output") for item in output["manifest"]["items"]]
    problem = None if _is_good(fan) else FAILED
    reduced = fan.results.get(REDUCE)
    if reduced is not None:
        told = _item(turn, fan, REDUCE)
        output["reduce"] = {name: value for name, value in told.items() if name != "index"}
        if reduced.phase != Phase.SUCCEEDED:
            problem = f"reduce stage failed: {reduced.message}"
    text = jsontext.encode(output)
    if problem is None:
        if verified(turn, step, output):
            end_step(turn, step.name, Phase.SUCCEEDED, COMPLETED, output=text, exit_code=0, exit_class="success")
    else:
        error = StepError.make("execution_error", problem, exit_code=1, exit_class="terminal")
        end_step(turn, step.name, Phase.FAILED, problem, output=text, error=error, exit_code=1, exit_class="terminal")


# How it is stopped.


def expire(turn: Turn, step: Step, state: StepState) -> None:
    """The step's time is up: its children are told, it ends with the last of them, and nothing is tried again."""
    if not child_runs.expire(turn, step.name, state, "the step's time is up"):
        _time_out(turn, step)


def _end_early(turn: Turn, step: Step, state: StepState) -> None:
    """Its children were asked to stop, and all have ended."""
    if state.recalled:
        end_step(turn, step.name, Phase.CANCELED, state.message, interrupted=True)
    else:
        _time_out(turn, step)


def _time_out(turn: Turn, step: Step) -> None:
    message = "the step did not end in time"
    error = StepError.make("timeout", message, exit_code=124, exit_class="retry")
    end_step(turn, step.name, Phase.TIMEOUT, message, error=error, exit_code=124, exit_class="retry")


def _bounded(value: Any, inputs: dict[str, Any], what: str, last: int) -> int:
    """As the step says, else as its defaults; never above what an operator allows."""
    found, most = _number(value, inputs.get(f"default{what}"), last), _number(inputs.get(f"max{what}"), None, 0)
    return min(found, most) if most else found


def _number(value: Any, default: Any, last: int) -> int:
    for one in (value, default):
        if isinstance(one, int) and not isinstance(one, bool) and one > 0:
            return one
    return last


def _flag(value: Any, default: Any, last: bool) -> bool:
    return next((one for one in (value, default) if isinstance(one, bool)), last)
