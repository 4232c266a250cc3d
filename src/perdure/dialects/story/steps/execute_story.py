"""`executeStory`: one child run, named after this run and step (STY-087 to STY-091, STY-079).

Waiting for it is a command of the kernel: it holds no worker and no place under a limit.
"""

from typing import Any

from perdure.dialects.story.plan.helper_steps import INPUTS, TARGET
from perdure.dialects.story.plan.program import Step, part
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import Reference, Resource, merged, spec_of
from perdure.dialects.story.run import child_runs, engram_lookup
from perdure.dialects.story.run.engram_lookup import Invalid, Missing
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, said
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.values.schema_fit import fitted
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import TemplateError
from perdure.kernel import events as e
from perdure.kernel.ids import RunName
from perdure.kernel.turn import Turn


class ExecuteStory:
    def start(self, turn: Turn, step: Step) -> None:
        body: Body = turn.body
        state = body.steps.get(step.name)
        if state is not None and engram_lookup.is_held_back(state):
            engram_lookup.release_waiter(turn, state)
            return
        scope = Scope(turn, step)
        try:
            reference, waits = scope.render(
                [step.given.get("storyRef"), step.given.get("waitForCompletion", True)], TARGET
            )
        except TemplateError as problem:
            end_step(turn, step.name, Phase.FAILED, said(problem), reason=Reason.EXPRESSION_FAILED)
            return
        found = engram_lookup.find_story(turn, step, reference)
        if isinstance(found, Missing):
            if not engram_lookup.look_again(turn, found):
                engram_lookup.block(turn, step, found)
        elif isinstance(found, Invalid):
            end_step(turn, step.name, Phase.FAILED, found.message, reason=found.reason)
        else:
            _launch(turn, step, scope, *found, waits=waits is not False and str(waits).lower() != "false")

    def resume(self, turn: Turn, step: Step, state: StepState) -> None:
        """Its child's end is taken up where it arrives."""

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """It has no deadline of its own."""


def _launch(turn: Turn, step: Step, scope: Scope, target: Reference, story: Resource, *, waits: bool) -> None:
    body: Body = turn.body
    try:
        inputs = _inputs(step, scope, story)
    except TemplateError as problem:
        message = f"Input resolution failed after dependencies completed: {said(problem)}"
        end_step(turn, step.name, Phase.FAILED, message, reason=Reason.EXPRESSION_FAILED)
        return
    inputs, problems = fitted(spec_of(story).get("inputsSchema"), inputs)
    if problems:
        message = f"StoryRun inputs failed schema validation: {problems}"
        end_step(turn, step.name, Phase.FAILED, message, reason=Reason.INPUT_SCHEMA_FAILED)
        return
    ancestors = child_runs.ancestors(turn)
    if child_runs.is_too_deep(turn, ancestors, target, inputs):
        end_step(turn, step.name, Phase.FAILED, child_runs.TOO_DEEP, reason=Reason.INVALID_CONFIGURATION)
        return
    name = compose(body.name, step.name)
    # A child that is waited for is told of by its end; of another nobody would hear that it could not have its name.
    holder = None if waits else turn.claim_name(RunName("story", body.namespace, name))
    if holder is not None:
        message = f"the name {name!r} belongs to run {holder}, which is not a sub-run of this step"
        turn.emit(s.Noted(step.name, "SubStoryRunSpoofed", message, turn.now))
        end_step(turn, step.name, Phase.FAILED, message, reason=Reason.SUB_STORY_RUN_SPOOFED)
        return
    child = child_runs.launch(turn, step, name, target, story, inputs, ancestors, awaited=waits)
    if waits:
        message = f"Waiting for sub-story run '{name}' to complete"
        turn.emit(s.StepStarted(step.name, Phase.RUNNING, message, turn.now, child=child, sub_run=name))
    else:
        message = f"Launched sub-story run '{name}'"
        turn.emit(s.StepStarted(step.name, Phase.RUNNING, message, turn.now, sub_run=name))
        succeed(turn, step, message)
    turn.emit(s.Noted(step.name, "SubStoryRunCreated", name, turn.now))


def _inputs(step: Step, scope: Scope, story: Resource) -> dict[str, Any]:
    """The Story's own defaults for being executed, and over them what the step gives (STY-087)."""
    template = merged(part(spec_of(story), "policy", "with"), part(step.given, "with"))
    inputs: dict[str, Any] = scope.render(template, INPUTS[step.kind])
    return inputs


def on_child_end(turn: Turn, name: str, ended: e.ChildEnded) -> None:
    """The child's phase and message are the step's; its output only if it succeeded (STY-089)."""
    told = child_runs.read_end(turn, ended)
    state: StepState = turn.body.steps[name]
    if told.phase is Phase.SUCCEEDED:
        succeed(turn, turn.program.steps[name], told.message, told.output)
    elif state.recalled:
        end_step(turn, name, Phase.CANCELED, state.message, interrupted=True)
    else:
        if told.reason == Reason.SUB_STORY_RUN_SPOOFED:
            turn.emit(s.Noted(name, "SubStoryRunSpoofed", told.message, turn.now))
        end_step(turn, name, told.phase, told.message, reason=told.reason)
