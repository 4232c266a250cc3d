"""`executeStory`: one child run, named after this run and step (STY-087 to STY-091, STY-079).

Waiting for it is a command of the kernel: it holds no worker and no place under a limit.
"""

from typing import Any

from perdure.dialects.story import events as s
from perdure.dialects.story import limits, references
from perdure.dialects.story.body import Body, StepState
from perdure.dialects.story.ending import end_step, said
from perdure.dialects.story.identity import compose, input_hash
from perdure.dialects.story.labels import CORRELATION, PARENT_RUN, PARENT_STEP, RUN, STORY
from perdure.dialects.story.merging import merged
from perdure.dialects.story.phases import Phase, Reason
from perdure.dialects.story.program import Program, Step, part
from perdure.dialects.story.references import Invalid, Missing
from perdure.dialects.story.rendering import Scope
from perdure.dialects.story.resources import Reference, Resource, spec_of
from perdure.dialects.story.schemas import Schema
from perdure.expressions.gotemplate import TemplateError
from perdure.kernel import events as e
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Succeeded
from perdure.kernel.turn import Turn

TOO_DEEP = "executeStory recursion limit exceeded"


class ExecuteStory:
    def start(self, turn: Turn, step: Step) -> None:
        body: Body = turn.body
        state = body.steps.get(step.name)
        if state is not None and references.is_held_back(state):
            references.release_waiter(turn, state)
            return
        scope = Scope(turn, step)
        try:
            reference = scope.render(step.given.get("storyRef"))
            waits = scope.render(step.given.get("waitForCompletion", True))
        except TemplateError as problem:
            end_step(turn, step.name, Phase.FAILED, said(problem), reason=Reason.EXPRESSION_FAILED)
            return
        found = references.find_story(turn, step, reference)
        if isinstance(found, Missing):
            if not references.look_again(turn, found):
                references.block(turn, step, found)
        elif isinstance(found, Invalid):
            end_step(turn, step.name, Phase.FAILED, found.message, reason=found.reason)
        else:
            _launch(turn, step, scope, *found, waits=waits is not False and str(waits).lower() != "false")

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """Its child's end is taken up where it arrives."""

    def ring(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline of its own."""


def _launch(turn: Turn, step: Step, scope: Scope, target: Reference, story: Resource, *, waits: bool) -> None:
    body: Body = turn.body
    try:
        inputs = _inputs(step, scope, story)
    except TemplateError as problem:
        message = f"Input resolution failed after dependencies completed: {said(problem)}"
        end_step(turn, step.name, Phase.FAILED, message, reason=Reason.EXPRESSION_FAILED)
        return
    written = spec_of(story).get("inputsSchema")
    if written is not None:
        schema = Schema(written)
        inputs = schema.complete(inputs)
        if misfits := schema.misfits(inputs):
            message = f"StoryRun inputs failed schema validation: {'; '.join(map(str, misfits))}"
            end_step(turn, step.name, Phase.FAILED, message, reason=Reason.INPUT_SCHEMA_FAILED)
            return
    ancestors = _ancestors(turn)
    itself = [target.key, input_hash(inputs)]
    program: Program = turn.program
    if len(ancestors) > program.settings.max_story_depth or itself in ancestors:
        end_step(turn, step.name, Phase.FAILED, TOO_DEEP, reason=Reason.INVALID_CONFIGURATION)
        return
    name = compose(body.name, step.name)
    bundle = jsontext.canonical({**program.bundle, "story": story})
    child = turn.start_child(
        "story",
        bundle,
        target.name,
        jsontext.encode(inputs),
        jsontext.encode(_options(turn, name, ancestors)),
        _labels(turn, step, name, target),
        awaited=waits,
    )
    if waits:
        message = f"Waiting for sub-story run '{name}' to complete"
        turn.emit(s.StepStarted(step.name, Phase.RUNNING, message, turn.now, child=child, sub_run=name))
    else:
        message = f"Launched sub-story run '{name}'"
        turn.emit(s.StepStarted(step.name, Phase.RUNNING, message, turn.now, sub_run=name))
        end_step(turn, step.name, Phase.SUCCEEDED, message)
    turn.emit(s.Noted(step.name, "SubStoryRunCreated", name, turn.now))


def _inputs(step: Step, scope: Scope, story: Resource) -> dict[str, Any]:
    """The Story's own defaults for being executed, and over them what the step gives (STY-087)."""
    inputs: dict[str, Any] = scope.render(merged(part(spec_of(story), "policy", "with"), part(step.given, "with")))
    return inputs


def _ancestors(turn: Turn) -> list[list[str]]:
    """The Stories above, this one included: name and what its inputs were (STY-079)."""
    program: Program = turn.program
    above = jsontext.decode(turn.state.options).get("ancestors", [])
    given = jsontext.decode(turn.text(turn.body.inputs))
    return [*above, [f"{program.namespace}/{program.name}", input_hash(given)]]


def _options(turn: Turn, name: str, ancestors: list[list[str]]) -> dict[str, Any]:
    body: Body = turn.body
    told = jsontext.decode(turn.state.options)
    place = limits.place_of(turn.program, told)
    return {
        "name": name,
        "namespace": body.namespace,
        "ancestors": ancestors,
        "queue": place.queue,
        "priority": place.priority,
        "tells": True,  # its end is read by a Story: with message, not with the output alone
    }


def _labels(turn: Turn, step: Step, name: str, target: Reference) -> dict[str, str]:
    body: Body = turn.body
    inherited = {CORRELATION: turn.state.labels[CORRELATION]} if CORRELATION in turn.state.labels else {}
    return {RUN: name, STORY: target.name, PARENT_RUN: body.name, PARENT_STEP: step.name, **inherited}


def land(turn: Turn, name: str, ended: e.ChildEnded) -> None:
    """The child's phase and message are the step's; its output only if it succeeded (STY-089)."""
    match ended.outcome:
        case Succeeded(value):
            told = jsontext.decode(turn.text(value))
            output = told.get("output") if isinstance(told, dict) else None
            text = jsontext.encode(output if isinstance(output, dict) else {})
            message = told.get("message", "") if isinstance(told, dict) else ""
            end_step(turn, name, Phase.SUCCEEDED, message, output=text)
        case Failed(code, message, _, details):
            told = {} if details is None else jsontext.decode(details)
            phase = told.get("phase") if isinstance(told, dict) else None
            end_step(turn, name, Phase(phase) if phase in tuple(Phase) else Phase.FAILED, message or code)
        case Cancelled(reason):
            end_step(turn, name, Phase.FINISHED, reason or "StoryRun gracefully canceled")
