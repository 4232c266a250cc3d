"""Child runs of a Story: how they are started, how deep they nest, and how their ends are read (STY-079, STY-088)."""

from typing import Any

import msgspec

from perdure.dialects.story.plan.execution_policy import grace
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.labels import CORRELATION, PARENT_RUN, PARENT_STEP, RUN, STORY
from perdure.dialects.story.resources.names import input_hash
from perdure.dialects.story.resources.resource import Reference, Resource
from perdure.dialects.story.run import concurrency
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.kernel import events as e
from perdure.kernel.documents import subruns
from perdure.kernel.documents.lookups import Callee
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Cancelled, Code, Failed, Status, Succeeded
from perdure.kernel.turn import Turn

SUB_RUNS_ARE_AWAITED = 3  # the record version that has `SubRunRecalled`
TOO_DEEP = "executeStory recursion limit exceeded"

Ancestors = list[list[str]]
"""The Stories above a run, outermost first: name and hash of the inputs."""


def ancestors(turn: Turn) -> Ancestors:
    """The ancestors of a child of this run, including this run."""
    program: Program = turn.program
    above = jsontext.decode(turn.state.options).get("ancestors", [])
    inputs = jsontext.decode(turn.text(turn.body.inputs))
    return [*above, [f"{program.namespace}/{program.name}", input_hash(inputs)]]


def goes_too_deep(turn: Turn, above: Ancestors) -> bool:
    """Whether a child would be nested too deep, below other Stories or below runs of any language."""
    program: Program = turn.program
    return max(len(above), subruns.depth(turn) + 1) > program.settings.max_story_depth


def is_too_deep(turn: Turn, above: Ancestors, target: Reference, inputs: dict[str, Any]) -> bool:
    if goes_too_deep(turn, above):
        return True
    hashes = [inputs_hash for name, inputs_hash in above if name == target.key]
    return bool(hashes) and input_hash(inputs) in hashes


def launch(
    turn: Turn,
    step: Step,
    name: str,
    target: Reference,
    story: Resource,
    inputs: dict[str, Any],
    above: Ancestors,
    *,
    awaited: bool = True,
    with_any_size: bool = False,
) -> int:
    """Start a child run, pinned to this run's bundle with another Story in it."""
    body: Body = turn.body
    program: Program = turn.program
    place = concurrency.place_of(program, jsontext.decode(turn.state.options))
    options = {
        "name": name,
        "namespace": body.namespace,
        "ancestors": above,
        "depth": subruns.depth(turn) + 1,
        "queue": place.queue,
        "priority": place.priority,
        "tells": True,  # a Story reads its end: it reports a message with the output
        **({"applied": applied} if (applied := jsontext.decode(turn.state.options).get("applied")) else {}),
        **({"inputsOfAnySize": True} if with_any_size else {}),
    }
    inherited = {CORRELATION: turn.state.labels[CORRELATION]} if CORRELATION in turn.state.labels else {}
    labels = {RUN: name, STORY: target.name, PARENT_RUN: body.name, PARENT_STEP: step.name, **inherited}
    return turn.start_child(
        "story",
        _bundle(program, target, story),
        target.name,
        jsontext.encode(inputs),
        jsontext.encode(options),
        labels,
        awaited,
    )


def _bundle(program: Program, target: Reference, story: Resource) -> bytes:
    """The bundle of a child. If its Story is part of this bundle, it is the same for all runs and built once."""
    if program.resources.find("Story", target.namespace, target.name) is not story:
        return jsontext.canonical({**program.bundle, "story": story})
    bundle = program.child_bundles.get(target.key)
    if bundle is None:
        bundle = program.child_bundles[target.key] = jsontext.canonical({**program.bundle, "story": story})
    return bundle


def recall(turn: Turn, step: str, state: StepState, message: str, why: str) -> bool:
    """Ask the child runs that a step waits for to stop. True if some are still open: the step ends with the last of
    them.
    """
    open_children = stop(turn, state, why)
    if open_children and turn.record_version >= SUB_RUNS_ARE_AWAITED:
        if not state.recalled:
            turn.emit(s.SubRunRecalled(step, message))
        return True
    return False


def expire(turn: Turn, step: str, state: StepState, why: str) -> bool:
    """Like `recall`, because the step's time limit has passed."""
    open_children = stop(turn, state, why)
    if open_children and turn.record_version >= SUB_RUNS_ARE_AWAITED:
        turn.emit(s.SubRunsExpired(step))
        return True
    return False


def stop(turn: Turn, state: StepState, why: str) -> bool:
    """Cancel the child runs of a step; whether any of them is still open."""
    waited_for = [state.child, *(() if state.fan is None else state.fan.children)]
    still_open = [child for child in waited_for if child in turn.state.children]
    for child in still_open:
        turn.cancel_child(child, why, grace=grace(turn.program))
    return bool(still_open)


# Documents of other languages.


def launch_document(
    turn: Turn, step: Step, name: str, callee: Callee, input: Any, arguments: Any, *, awaited: bool
) -> int:
    """Start a Flow or a Playbook. Its run has no name of a StoryRun; it is found by this run and step."""
    body: Body = turn.body
    options = subruns.options_for(turn, callee, {"args": arguments} if arguments else None)
    inherited = {CORRELATION: turn.state.labels[CORRELATION]} if CORRELATION in turn.state.labels else {}
    labels = {PARENT_RUN: body.name, PARENT_STEP: step.name, **inherited}
    input_text = jsontext.encode(input)
    return turn.start_child(
        callee.language, callee.text, name, input_text, options, labels, awaited, from_api=callee.from_api
    )


def read_document_end(turn: Turn, end: e.ChildEnded, language: str) -> "ChildEnd":
    """The output is what a Playbook's envelope says, or `result` of a Flow."""
    match end.outcome:
        case Succeeded(value):
            result = jsontext.decode(turn.text(value))
            is_envelope = language == "playbook" and isinstance(result, dict)
            return ChildEnd(StoryPhase.SUCCEEDED, "", result if is_envelope else {"result": result})
        case Failed(code, message):
            phase = StoryPhase.TIMEOUT if end.status is Status.TIMED_OUT else StoryPhase.FAILED
            return ChildEnd(phase, f"{code}: {message}" if message else code, {})
        case Cancelled(reason):
            return ChildEnd(StoryPhase.FINISHED, reason or "the run was cancelled", {})
    raise AssertionError(end.outcome)


class ChildEnd(msgspec.Struct, frozen=True):
    phase: StoryPhase
    message: str
    output: dict[str, Any]
    reason: str = ""


def read_end(turn: Turn, end: e.ChildEnded) -> ChildEnd:
    """The child's phase and message, and its output if it succeeded (STY-089)."""
    match end.outcome:
        case Succeeded(value):
            return read_result(jsontext.decode(turn.text(value)))
        case Failed(Code.NAME_TAKEN, message):
            return ChildEnd(StoryPhase.FAILED, message, {}, Reason.SUB_STORY_RUN_SPOOFED)
        case Failed(code, message, _, details):
            details_object = {} if details is None else jsontext.decode(details)
            phase = details_object.get("phase") if isinstance(details_object, dict) else None
            return ChildEnd(StoryPhase(phase) if phase in tuple(StoryPhase) else StoryPhase.FAILED, message or code, {})
        case Cancelled(reason):
            return ChildEnd(StoryPhase.FINISHED, reason or "StoryRun gracefully canceled", {})
    raise AssertionError(end.outcome)


def read_result(result: Any) -> ChildEnd:
    """Read the result of a child run that succeeded."""
    output = result.get("output") if isinstance(result, dict) else None
    message = result.get("message", "") if isinstance(result, dict) else ""
    return ChildEnd(StoryPhase.SUCCEEDED, message, output if isinstance(output, dict) else {})
