"""`executeStory`: one child run, named after this run and step (STY-087 to STY-091, STY-079).

Waiting for it is a command of the kernel: it holds no worker and no place under a limit.
"""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.story.document.context import StoryContext, check_sub_story
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import ReferenceShape, shown
from perdure.dialects.story.document.templates import is_templated
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import Reference, Resource, merged, read_reference, spec_of
from perdure.dialects.story.run import child_runs, engram_lookup
from perdure.dialects.story.run.engram_lookup import InvalidReference, MissingResource
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import Phase, Reason
from perdure.dialects.story.steps.step_kind import StepKind
from perdure.dialects.story.values.schema_fit import fitted
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.events import ChildEnded
from perdure.kernel.ids import RunName
from perdure.kernel.turn import Turn

TARGET, INPUT = "story-ref", "execute-story"


class ExecuteStory(StepKind):
    members = ("storyRef", "waitForCompletion", "with")
    makes_edges = True
    purposes = (TARGET, INPUT)

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        given = step.at("with")
        if given.value is None:
            step.problem(INVALID, f"step '{name}' of type 'executeStory' requires a 'with' block")
        elif isinstance(given.value, dict):
            self._check_given(given, name)
        check_sub_story(given.at("storyRef"), name, story)

    def _check_given(self, given: Cursor, name: str) -> None:
        given.warn_unread(self.members)
        target = given.at("storyRef")
        if target.value is not None:
            ReferenceShape().validate(target)
        if read_reference(target.value, "") is None:
            given.problem(INVALID, f"step '{name}' of type 'executeStory' requires 'with.storyRef.name' to be set")
        waits = given.at("waitForCompletion")
        if not isinstance(waits.value, bool | None) and not is_templated(waits):
            waits.problem(INVALID, f"must be true or false, not {shown(waits.value)}")
        inputs = given.at("with")
        if inputs.value is not None and not is_templated(inputs):
            inputs.is_object()
        refuse_secrets(inputs, f"step '{name}': ")

    def tidy(self, given: dict[str, Any]) -> dict[str, Any]:
        target = given.get("storyRef")
        return {**given, "storyRef": {"name": target}} if isinstance(target, str) else given

    def story_references(self, given: dict[str, Any]) -> Iterator[Any]:
        yield given.get("storyRef")

    def note(self, program: Program, step: Step) -> str:
        target = read_reference(step.given.get("storyRef"), program.namespace)
        return f"story {target.name}" if target is not None else "story"

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
        except ExpressionError as problem:
            end_step(turn, step.name, Phase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
            return
        found = engram_lookup.find_story(turn, step, reference)
        if isinstance(found, MissingResource):
            if not engram_lookup.retry_lookup(turn, found):
                engram_lookup.block(turn, step, found)
        elif isinstance(found, InvalidReference):
            end_step(turn, step.name, Phase.FAILED, found.message, reason=found.reason)
        else:
            _launch(turn, step, scope, *found, waits=waits is not False and str(waits).lower() != "false")

    def on_child_end(self, turn: Turn, step: Step, state: StepState, ended: ChildEnded) -> None:
        """The child's phase and message are the step's; its output only if it succeeded (STY-089)."""
        end = child_runs.read_end(turn, ended)
        if end.phase is Phase.SUCCEEDED:
            succeed(turn, step, end.message, end.output)
        elif state.recalled:
            end_step(turn, step.name, Phase.CANCELED, state.message, interrupted=True)
        else:
            if end.reason == Reason.SUB_STORY_RUN_SPOOFED:
                turn.emit(s.Noted(step.name, "SubStoryRunSpoofed", end.message, turn.now))
            end_step(turn, step.name, end.phase, end.message, reason=end.reason)


def _launch(turn: Turn, step: Step, scope: Scope, target: Reference, story: Resource, *, waits: bool) -> None:
    body: Body = turn.body
    try:
        inputs = _inputs(step, scope, story)
    except ExpressionError as problem:
        message = f"Input resolution failed after dependencies completed: {error_text(problem)}"
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
    template = merged(object_at(spec_of(story), "policy", "with"), object_at(step.given, "with"))
    inputs: dict[str, Any] = scope.render(template, INPUT)
    return inputs
