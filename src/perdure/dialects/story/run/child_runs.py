"""Child runs of a Story: how one is launched, how deep they may go, and what its end says (STY-079, STY-088)."""

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
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.kernel import events as e
from perdure.kernel import jsontext, subruns
from perdure.kernel.outcomes import Cancelled, Code, Failed, Succeeded
from perdure.kernel.turn import Turn

SUB_RUNS_ARE_AWAITED = 3  # the vocabulary that has `SubRunRecalled`
TOO_DEEP = "executeStory recursion limit exceeded"

Ancestors = list[list[str]]
"""Stories above a run, the outermost first: name and what its inputs were."""


def ancestors(turn: Turn) -> Ancestors:
    """Of a child of this run: those above it, and this run itself."""
    program: Program = turn.program
    above = jsontext.decode(turn.state.options).get("ancestors", [])
    given = jsontext.decode(turn.text(turn.body.inputs))
    return [*above, [f"{program.namespace}/{program.name}", input_hash(given)]]


def goes_too_deep(turn: Turn, above: Ancestors) -> bool:
    """Whether a child would stand too deep: below other Stories, or below runs of any language."""
    program: Program = turn.program
    return max(len(above), subruns.depth(turn) + 1) > program.settings.max_story_depth


def is_too_deep(turn: Turn, above: Ancestors, target: Reference, inputs: dict[str, Any]) -> bool:
    if goes_too_deep(turn, above):
        return True
    hashes = [given for name, given in above if name == target.key]
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
    """Start the child; it is pinned to this run's bundle, with another Story in front."""
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
        "tells": True,  # its end is read by a Story: with message, not with the output alone
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
    """Of a Story that lies in the bundle it is the same for all children of all runs: put together once."""
    if program.resources.find("Story", target.namespace, target.name) is not story:
        return jsontext.canonical({**program.bundle, "story": story})
    known = program.child_bundles.get(target.key)
    if known is None:
        known = program.child_bundles[target.key] = jsontext.canonical({**program.bundle, "story": story})
    return known


def recall(turn: Turn, step: str, state: StepState, message: str, why: str) -> bool:
    """Ask the runs that a step waits for to stop. True: they have not ended yet, and the step ends with the last."""
    open_children = stop(turn, state, why)
    if open_children and turn.record_version >= SUB_RUNS_ARE_AWAITED:
        if not state.recalled:
            turn.emit(s.SubRunRecalled(step, message))
        return True
    return False


def expire(turn: Turn, step: str, state: StepState, why: str) -> bool:
    """The same, because the step's time is up."""
    open_children = stop(turn, state, why)
    if open_children and turn.record_version >= SUB_RUNS_ARE_AWAITED:
        turn.emit(s.SubRunsExpired(step))
        return True
    return False


def stop(turn: Turn, state: StepState, why: str) -> bool:
    """Whether any of them is still open."""
    waited_for = [state.child, *(() if state.fan is None else state.fan.children)]
    still_open = [child for child in waited_for if child in turn.state.children]
    for child in still_open:
        turn.cancel_child(child, why, grace=grace(turn.program))
    return bool(still_open)


class ChildEnd(msgspec.Struct, frozen=True):
    phase: Phase
    message: str
    output: dict[str, Any]
    reason: str = ""


def read_end(turn: Turn, ended: e.ChildEnded) -> ChildEnd:
    """The child's phase and message; its output only if it succeeded (STY-089)."""
    match ended.outcome:
        case Succeeded(value):
            return read_result(jsontext.decode(turn.text(value)))
        case Failed(Code.NAME_TAKEN, message):
            return ChildEnd(Phase.FAILED, message, {}, Reason.SUB_STORY_RUN_SPOOFED)
        case Failed(code, message, _, details):
            told = {} if details is None else jsontext.decode(details)
            phase = told.get("phase") if isinstance(told, dict) else None
            return ChildEnd(Phase(phase) if phase in tuple(Phase) else Phase.FAILED, message or code, {})
        case Cancelled(reason):
            return ChildEnd(Phase.FINISHED, reason or "StoryRun gracefully canceled", {})
    raise AssertionError(ended.outcome)


def read_result(told: Any) -> ChildEnd:
    """What a child that succeeded says to a Story above it."""
    output = told.get("output") if isinstance(told, dict) else None
    message = told.get("message", "") if isinstance(told, dict) else ""
    return ChildEnd(Phase.SUCCEEDED, message, output if isinstance(output, dict) else {})
