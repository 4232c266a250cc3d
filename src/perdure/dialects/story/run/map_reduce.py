"""The Engram `map-reduce-adapter`: a child Story for every item, some at a time, and optionally one over their
results.

The step's own run starts the children and receives their ends, so no worker is occupied (STY-271). The output is
that of the published adapter, with the children's outputs in place of references.

Items are stored in pages beside the log, and results likewise once all of a page have ended: the start and end of a
child cost the same for ten items as for ten thousand.
"""

from typing import Any

import msgspec

from perdure.dialects.story.plan.execution_policy import ExecutionPolicy
from perdure.dialects.story.plan.helper_steps import ITEMS
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import Reference, Resource, is_streaming
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.run import child_runs, engram_lookup
from perdure.dialects.story.run.post_execution import verified
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import FAN_PAGE, REDUCE, Body, MapState, StepState
from perdure.dialects.story.state.phases import BOUND_RANK, Reason, StoryPhase
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.values import materialize
from perdure.dialects.story.values.references import CONFIG, SECRET, STORAGE
from perdure.expressions.gotemplate import EvaluationFault
from perdure.kernel import events as e
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import INLINE_BYTES
from perdure.kernel.turn import Turn

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Split a page into its items, each still encoded: only the needed one is decoded."""

_OURS = {
    "map": ("item", "index", "total", "context", "inputs"),
    "reduce": ("manifest", "resultsIndex", "resultsPrefix", "stats"),
}
COMPLETED = "StepRun completed successfully."
FAILED = "map stage had failures"
NOT_STARTED = "not started"
STOPPED = "another item of the map has failed"
STREAMING_ITEM = (
    "map.storyRef names a streaming Story, which has no end to wait for; a map needs a batch Story"  # STR-037
)


def with_items(turn: Turn, step: Step, inputs: dict[str, Any], places: list[Any]) -> dict[str, Any]:
    """The input with the items themselves. A helper step reads items of a config map or in storage, in a worker.

    Raises `HelperNeeded` until they are available, `TemplateError` if they cannot be read.
    """
    items = inputs.get("items")
    if not isinstance(items, dict):
        return inputs
    is_literal = ["items"] in places
    if is_literal and SECRET in items:
        raise EvaluationFault("the items of a map are recorded, so they cannot come from a secret")
    if not (is_literal and CONFIG in items) and STORAGE not in items:
        return inputs
    request = materialize.request(turn.program, materialize.OBJECT, ["{{ inputs }}"], {"inputs": items})
    if is_literal:
        request[materialize.REFERENCES] = [["vars", "inputs"]]
    (items,) = materialize.result(turn, ITEMS, step.name, request)
    return {**inputs, "items": items}


def prepare(turn: Turn, step: Step, inputs: dict[str, Any]) -> child_runs.Ancestors | str:
    """The ancestors of all children, or why there can be none. It may ask for stored values, so it is called first."""
    problem = _problem(turn, step, inputs)
    if problem is not None:
        return problem
    above = child_runs.ancestors(turn)
    return child_runs.TOO_DEEP if child_runs.goes_too_deep(turn, above) else above


def begin(
    turn: Turn, step: Step, inputs: dict[str, Any], prepared: child_runs.Ancestors | str, execution: ExecutionPolicy
) -> None:
    """Start the map of a StepRun whose input is resolved, or fail the step."""
    if isinstance(prepared, str):
        _refuse(turn, step, prepared)
        return
    map_stage, items = object_at(inputs, "map"), inputs["items"]
    allows = _flag(map_stage.get("allowFailures"), inputs.get("defaultAllowFailures"), False)
    timeout = execution.timeout()
    timer = 0 if timeout is None else turn.set_timer(turn.now + timeout, BOUND_RANK)
    plan = {"inputs": {name: value for name, value in inputs.items() if name != "items"}, "above": prepared}
    turn.enumerated += len(items)
    pages = [jsontext.encode(items[first : first + FAN_PAGE]) for first in range(0, len(items), FAN_PAGE)]
    turn.emit(
        s.FanBegan(
            step.name,
            len(items),
            _bounded(map_stage.get("concurrency"), inputs, "Concurrency", 10),
            _flag(map_stage.get("failFast"), inputs.get("defaultFailFast"), not allows),
            allows,
            timer,
            turn.now,
            _bounded(map_stage.get("batchSize"), inputs, "BatchSize", 100),
            turn.keep(jsontext.encode(plan)),
            tuple(turn.keep(page, 0 if len(pages) > 1 else INLINE_BYTES) for page in pages),
        )
    )


def _refuse(turn: Turn, step: Step, problem: str) -> None:
    error = StepError.make("validation_error", problem, exit_code=1, exit_class="terminal")
    reason = Reason.INVALID_CONFIGURATION if problem in (child_runs.TOO_DEEP, STREAMING_ITEM) else ""
    end_step(
        turn, step.name, StoryPhase.FAILED, problem, reason=reason, error=error, exit_code=1, exit_class="terminal"
    )  # fmt: skip


def missing_story(turn: Turn, step: Step, inputs: dict[str, Any]) -> engram_lookup.MissingResource | None:
    """A Story that would be started but does not exist: the step waits for it (STY-118)."""
    for stage in ("map", "reduce"):
        stage_block = object_at(inputs, stage)
        if "storyRef" in stage_block and not isinstance(stage_block.get("story"), dict):
            story = engram_lookup.find_story(turn, step, stage_block["storyRef"])
            if isinstance(story, engram_lookup.MissingResource):
                return story
    return None


def _problem(turn: Turn, step: Step, inputs: dict[str, Any]) -> str | None:
    if not isinstance(inputs.get("items"), list):
        return "items must be a list"
    for stage in ("map", "reduce"):
        if stage == "reduce" and inputs.get(stage) is None:
            continue
        stage_block = object_at(inputs, stage)
        conflicts = sorted(set(object_at(stage_block, "inputs")) & set(_OURS[stage]))
        if conflicts:
            return f"{stage}.inputs key {conflicts[0]!r} is reserved and cannot be overridden"
        if stage_block.get("storyRef") is not None and stage_block.get("story") is not None:
            return f"{stage}.storyRef and {stage}.story cannot both be set"
        if stage_block.get("storyRef") is None and stage_block.get("story") is None:
            return f"{stage}.storyRef or {stage}.story is required"
        story = _story(turn, step, stage_block)
        if isinstance(story, str):
            return f"{stage}: {story}"
        if stage == "map" and is_streaming(story[1]):
            return STREAMING_ITEM
    return None


def _story(turn: Turn, step: Step, stage_block: dict[str, Any]) -> tuple[Reference, Resource] | str:
    """The Story of a stage: referenced, or written in place."""
    program: Program = turn.program
    inline = stage_block.get("story")
    if isinstance(inline, dict):
        name = compose("mapreduce", step.name)
        story = {**program.story, "metadata": {"name": name, "namespace": program.namespace}, "spec": inline}
        return Reference(name, program.namespace), story
    named = engram_lookup.find_story(turn, step, stage_block.get("storyRef"))
    return named.message if isinstance(named, engram_lookup.InvalidReference | engram_lookup.MissingResource) else named


def move(turn: Turn, step: Step, state: StepState) -> None:
    """Store a page of results, start the next child, or continue once every item has one."""
    fan = state.fan
    assert fan is not None
    if fan.recalled:
        _end_early(turn, step, state)
        return
    decoded = jsontext.decode(turn.text(fan.plan))
    plan, above = decoded["inputs"], decoded["above"]
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
        reduce_inputs = {name: output[name] for name in _OURS["reduce"]}
        _launch(turn, step, object_at(plan, "reduce"), REDUCE, reduce_inputs, above)
    else:
        _finish(turn, step, fan, plan)


def _launch(
    turn: Turn,
    step: Step,
    stage_block: dict[str, Any],
    index: int,
    stage_inputs: dict[str, Any],
    above: child_runs.Ancestors,
) -> None:
    target = _story(turn, step, stage_block)
    assert not isinstance(target, str), target
    inputs = {**stage_inputs, **object_at(stage_block, "inputs")}
    if child_runs.is_too_deep(turn, above, target[0], inputs):  # STY-079
        child_runs.stop(turn, turn.body.steps[step.name], child_runs.TOO_DEEP)
        _refuse(turn, step, child_runs.TOO_DEEP)
        return
    name = compose(turn.body.name, step.name, "reduce" if index == REDUCE else str(index))
    child = child_runs.launch(turn, step, name, *target, inputs, above, with_any_size=index == REDUCE)
    turn.emit(s.FanChildStarted(step.name, index, child, name))


def on_child_end(turn: Turn, step: Step, state: StepState, end: e.ChildEnded) -> None:
    """Handle the end of a child. With `failFast`, a failed one stops the others."""
    fan = state.fan
    assert fan is not None
    child_end = child_runs.read_end(turn, end)
    turn.emit(s.FanChildEnded(step.name, fan.children[end.child], end.child, child_end.phase, child_end.message))
    if (
        fan.is_stopped and not fan.recalled and fan.failed == 1 and child_end.phase is not StoryPhase.SUCCEEDED
    ):  # the first
        child_runs.stop(turn, state, STOPPED)


def _is_good(fan: MapState) -> bool:
    return fan.succeeded == fan.total or fan.allows_failures


# Results.


def _page(turn: Turn, fan: MapState, page: int) -> list[dict[str, Any]]:
    """The results of a page, in the order of its items."""
    indexes = range(page * FAN_PAGE, page * FAN_PAGE + fan.length(page))
    texts = [
        result.result
        for index in indexes
        if (result := fan.results.get(index)) is not None and result.result is not None
    ]
    turn.all_texts(texts)
    return [_item(turn, fan, index) for index in indexes]


def _item(turn: Turn, fan: MapState, index: int) -> dict[str, Any]:
    result = fan.results.get(index)
    if result is None:
        return {"index": index, "phase": StoryPhase.SKIPPED.value, "error": NOT_STARTED}
    item: dict[str, Any] = {"index": index, "storyRun": result.sub_run, "phase": str(result.phase)}
    if result.result is None:
        return {**item, "error": result.message}
    return {**item, "output": child_runs.read_result(jsontext.decode(turn.text(result.result))).output}


def _gathered(turn: Turn, step: Step, fan: MapState, plan: dict[str, Any]) -> dict[str, Any]:
    body: Body = turn.body
    turn.all_texts(fan.closed.values())
    items: list[dict[str, Any]] = []
    for page in range(len(fan.items)):
        closed_page = fan.closed.get(page)
        items += _page(turn, fan, page) if closed_page is None else jsontext.decode(turn.text(closed_page))
    map_stage = object_at(plan, "map")
    target = _story(turn, step, map_stage)
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
    inline_limit = _number(object_at(plan, "map").get("inlineResultsLimit"), plan.get("defaultInlineResultsLimit"), 0)
    if fan.total <= inline_limit:
        output["results"] = [item.get("output") for item in output["manifest"]["items"]]
    problem = None if _is_good(fan) else FAILED
    reduced = fan.results.get(REDUCE)
    if reduced is not None:
        reduce_item = _item(turn, fan, REDUCE)
        output["reduce"] = {name: value for name, value in reduce_item.items() if name != "index"}
        if reduced.phase != StoryPhase.SUCCEEDED:
            problem = f"reduce stage failed: {reduced.message}"
    text = jsontext.encode(output)
    if problem is None:
        if verified(turn, step, output):
            end_step(turn, step.name, StoryPhase.SUCCEEDED, COMPLETED, output=text, exit_code=0, exit_class="success")
    else:
        error = StepError.make("execution_error", problem, exit_code=1, exit_class="terminal")
        end_step(
            turn, step.name, StoryPhase.FAILED, problem, output=text, error=error, exit_code=1, exit_class="terminal"
        )


# Stopping.


def expire(turn: Turn, step: Step, state: StepState) -> None:
    """Handle the step's timeout: its children are stopped, it ends with the last of them, and nothing is retried."""
    if not child_runs.expire(turn, step.name, state, "the step timed out"):
        _time_out(turn, step)


def _end_early(turn: Turn, step: Step, state: StepState) -> None:
    """End the step after its children were asked to stop and have ended."""
    if state.recalled:
        end_step(turn, step.name, StoryPhase.CANCELED, state.message, interrupted=True)
    else:
        _time_out(turn, step)


def _time_out(turn: Turn, step: Step) -> None:
    message = "the step did not end in time"
    error = StepError.make("timeout", message, exit_code=124, exit_class="retry")
    end_step(turn, step.name, StoryPhase.TIMEOUT, message, error=error, exit_code=124, exit_class="retry")


def _bounded(value: Any, inputs: dict[str, Any], setting: str, fallback: int) -> int:
    """The step's own value or its default, at most what the operator allows."""
    number, limit = (
        _number(value, inputs.get(f"default{setting}"), fallback),
        _number(inputs.get(f"max{setting}"), None, 0),
    )
    return min(number, limit) if limit else number


def _number(value: Any, default: Any, fallback: int) -> int:
    for candidate in (value, default):
        if isinstance(candidate, int) and not isinstance(candidate, bool) and candidate > 0:
            return candidate
    return fallback


def _flag(value: Any, default: Any, fallback: bool) -> bool:
    return next((candidate for candidate in (value, default) if isinstance(candidate, bool)), fallback)
