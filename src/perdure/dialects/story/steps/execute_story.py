"""`executeStory`: one child run, named after this run and step (STY-087 to STY-091, STY-079).

Waiting for it is done by the kernel: it needs no worker and no permit.
"""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.story.document.context import StoryContext, check_sub_story
from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import ReferenceShape, shown
from perdure.dialects.story.document.templates import is_templated
from perdure.dialects.story.plan.execution_policy import own_timeout
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import Reference, Resource, merged, read_reference, spec_of
from perdure.dialects.story.run import child_runs, engram_lookup
from perdure.dialects.story.run.engram_lookup import InvalidReference, MissingResource
from perdure.dialects.story.run.post_execution import succeed
from perdure.dialects.story.run.step_end import end_step, error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import BOUND_RANK, Reason, StoryPhase
from perdure.dialects.story.steps.step_kind import ENGRAM_MEMBERS, StepKind
from perdure.dialects.story.values.schema_fit import fitted
from perdure.dialects.story.values.template_scope import Scope
from perdure.expressions.gotemplate import ExpressionError
from perdure.kernel.documents import subruns
from perdure.kernel.events import ChildEnded
from perdure.kernel.graphs.graph import Role
from perdure.kernel.ids import RunName
from perdure.kernel.turn import Turn

TARGET, INPUT = "story-ref", "execute-story"
TIMEOUT = ("execution", "timeout")
TIMED_OUT = "the run that the step waits for did not end in time"


class ExecuteStoryStep(StepKind):
    role = Role.CALL
    members = ("storyRef", "documentRef", "waitForCompletion", "with", "arguments")
    unused_members = tuple(path for path in ENGRAM_MEMBERS if path != TIMEOUT)
    makes_edges = True
    purposes = (TARGET, INPUT)

    def check(self, step: Cursor, name: str, block: str, story: StoryContext) -> None:
        with_block = step.at("with")
        if with_block.value is None:
            step.problem(INVALID, f"step '{name}' of type 'executeStory' requires a 'with' block")
        elif isinstance(with_block.value, dict):
            self._check_with(with_block, name)
        check_sub_story(with_block.at("storyRef"), name, story)
        timeout = step.at(*TIMEOUT)
        if timeout.value is not None and story.streams(block):
            timeout.warn(DOUBTFUL, f"step '{name}': execution.timeout has no effect on what is called for each packet")

    def _check_with(self, with_block: Cursor, name: str) -> None:
        with_block.warn_unread(self.members)
        target = with_block.at("storyRef")
        if with_block.at("documentRef").value is not None:
            _check_document(with_block, name)
        elif with_block.at("arguments").value is not None:
            with_block.at("arguments").problem(INVALID, f"step '{name}': 'arguments' are for a Flow ('documentRef')")
        if target.value is not None:
            ReferenceShape().validate(target)
        if with_block.at("documentRef").value is None and read_reference(target.value, "") is None:
            with_block.problem(INVALID, f"step '{name}' of type 'executeStory' requires 'with.storyRef.name' to be set")
        waits = with_block.at("waitForCompletion")
        if not isinstance(waits.value, bool | None) and not is_templated(waits):
            waits.problem(INVALID, f"must be true or false, not {shown(waits.value)}")
        inputs = with_block.at("with")
        if inputs.value is not None and not is_templated(inputs):
            inputs.is_object()
        refuse_secrets(inputs, f"step '{name}': ")

    def tidy(self, with_block: dict[str, Any]) -> dict[str, Any]:
        target = with_block.get("storyRef")
        return {**with_block, "storyRef": {"name": target}} if isinstance(target, str) else with_block

    def story_references(self, with_block: dict[str, Any]) -> Iterator[Any]:
        if with_block.get("storyRef") is not None:
            yield with_block["storyRef"]

    def note(self, program: Program, step: Step) -> str:
        if (document := _document_of(step)) is not None:
            return f"{document['language']} {document['name']}"
        target = read_reference(step.with_block.get("storyRef"), program.namespace)
        return f"story {target.name}" if target is not None else "story"

    def start(self, turn: Turn, step: Step) -> None:
        body: Body = turn.body
        state = body.steps.get(step.name)
        if state is not None and engram_lookup.is_held_back(state):
            engram_lookup.release_waiter(turn, state)
            return
        scope = Scope(turn, step)
        if (document := _document_of(step)) is not None:
            _start_document(turn, step, scope, document)
            return
        try:
            reference, waits = scope.render(
                [step.with_block.get("storyRef"), step.with_block.get("waitForCompletion", True)], TARGET
            )
        except ExpressionError as problem:
            end_step(turn, step.name, StoryPhase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
            return
        story = engram_lookup.find_story(turn, step, reference)
        if isinstance(story, MissingResource):
            if not engram_lookup.retry_lookup(turn, story):
                engram_lookup.block(turn, step, story)
        elif isinstance(story, InvalidReference):
            end_step(turn, step.name, StoryPhase.FAILED, story.message, reason=story.reason)
        else:
            _launch(turn, step, scope, *story, waits=_is_waiting(waits))

    def on_timer(self, turn: Turn, step: Step, state: StepState) -> None:
        """Handle the step's own timeout: the child run is stopped, and the step ends with it."""
        if not child_runs.expire(turn, step.name, state, "the step timed out"):
            end_step(turn, step.name, StoryPhase.TIMEOUT, TIMED_OUT)

    def on_child_end(self, turn: Turn, step: Step, state: StepState, end: ChildEnded) -> None:
        """The step gets the child's phase and message, and its output if it succeeded (STY-089)."""
        if state.expired:
            _end_expired(turn, step, state)
            return
        document = _document_of(step)
        if document is None:
            child_end = child_runs.read_end(turn, end)
        else:
            child_end = child_runs.read_document_end(turn, end, document["language"])
        if child_end.phase is StoryPhase.SUCCEEDED:
            succeed(turn, step, child_end.message, child_end.output)
        elif state.recalled:
            end_step(turn, step.name, StoryPhase.CANCELED, state.message, interrupted=True)
        else:
            if child_end.reason == Reason.SUB_STORY_RUN_SPOOFED:
                turn.emit(s.Noted(step.name, "SubStoryRunSpoofed", child_end.message, turn.now))
            end_step(turn, step.name, child_end.phase, child_end.message, reason=child_end.reason)


def _end_expired(turn: Turn, step: Step, state: StepState) -> None:
    """End a step whose timeout has passed. A result that came after it is late."""
    if state.recalled:
        end_step(turn, step.name, StoryPhase.CANCELED, state.message, interrupted=True)
    else:
        end_step(turn, step.name, StoryPhase.TIMEOUT, TIMED_OUT)


def _set_timeout(turn: Turn, step: Step) -> int:
    """The timer of `execution.timeout`, or 0: other levels and defaults are for attempts of Engrams."""
    timeout = own_timeout(step)
    return 0 if timeout is None else turn.set_timer(turn.now + timeout, BOUND_RANK)


def _is_waiting(value: Any) -> bool:
    return value is not False and str(value).lower() != "false"


# A document of another language.

LANGUAGES = ("flow", "playbook")
DOCUMENT_MEMBERS = ("language", "name", "version")


def _document_of(step: Step) -> dict[str, Any] | None:
    document = step.with_block.get("documentRef")
    return document if isinstance(document, dict) else None


def _check_document(with_block: Cursor, name: str) -> None:
    document = with_block.at("documentRef")
    if not document.is_object():
        return
    document.warn_unread(DOCUMENT_MEMBERS)
    if with_block.at("storyRef").value is not None:
        document.problem(INVALID, f"step '{name}': a step has 'storyRef' or 'documentRef', not both")
    language = document.at("language")
    if language.value == "story":
        language.problem(INVALID, f"step '{name}': a Story is named by 'storyRef'")
    elif language.value not in LANGUAGES:
        language.problem(
            INVALID, f"step '{name}': {shown(language.value)} is not a language (expected flow or playbook)"
        )
    for member in ("name", "version"):
        value = document.at(member)
        is_absent = value.value is None and member == "version"
        if not is_absent and (not isinstance(value.value, str) or not value.value or is_templated(value)):
            value.problem(INVALID, f"step '{name}': must be a text without template, not {shown(value.value)}")
    arguments = with_block.at("arguments")
    if arguments.value is not None and language.value != "flow":
        arguments.problem(INVALID, f"step '{name}': 'arguments' are for a Flow")
    elif arguments.value is not None and not is_templated(arguments):
        arguments.is_object()
    refuse_secrets(arguments, f"step '{name}': ")


def _start_document(turn: Turn, step: Step, scope: Scope, document: dict[str, Any]) -> None:
    block = step.with_block
    try:
        (waits,) = scope.render([block.get("waitForCompletion", True)], TARGET)
        inputs, arguments = scope.render([block.get("with") or {}, block.get("arguments") or {}], INPUT)
    except ExpressionError as problem:
        end_step(turn, step.name, StoryPhase.FAILED, error_text(problem), reason=Reason.EXPRESSION_FAILED)
        return
    language, name = document["language"], document["name"]
    if child_runs.goes_too_deep(turn, child_runs.ancestors(turn)) or subruns.is_too_deep(turn):
        end_step(turn, step.name, StoryPhase.FAILED, child_runs.TOO_DEEP, reason=Reason.INVALID_CONFIGURATION)
        return
    version = document.get("version")
    callee = subruns.find_callee(turn, name, version, language) or subruns.find_callee(turn, name, version)
    if callee is None or callee.language != language:
        other = "" if callee is None else f"; the {callee.language} of that name is not meant"
        message = f"there is no {language} {name!r}{other}; apply it when the run is started, or register it"
        end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.INVALID_CONFIGURATION)
        return
    is_awaited = _is_waiting(waits)
    run = turn.execution.child_id(turn.next_number)
    child = child_runs.launch_document(turn, step, name, callee, inputs, arguments, awaited=is_awaited)
    if is_awaited:
        message, timer = f"Waiting for {language} run '{run}' to complete", _set_timeout(turn, step)
        turn.emit(s.StepStarted(step.name, StoryPhase.RUNNING, message, turn.now, timer, child=child, sub_run=run))
    else:
        message = f"Launched {language} run '{run}'"
        turn.emit(s.StepStarted(step.name, StoryPhase.RUNNING, message, turn.now, sub_run=run))
        succeed(turn, step, message)


def _launch(turn: Turn, step: Step, scope: Scope, target: Reference, story: Resource, *, waits: bool) -> None:
    body: Body = turn.body
    try:
        inputs = _inputs(step, scope, story)
    except ExpressionError as problem:
        message = f"Input resolution failed after dependencies completed: {error_text(problem)}"
        end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.EXPRESSION_FAILED)
        return
    inputs, problems = fitted(spec_of(story).get("inputsSchema"), inputs)
    if problems:
        message = f"StoryRun inputs failed schema validation: {problems}"
        end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.INPUT_SCHEMA_FAILED)
        return
    ancestors = child_runs.ancestors(turn)
    if child_runs.is_too_deep(turn, ancestors, target, inputs):
        end_step(turn, step.name, StoryPhase.FAILED, child_runs.TOO_DEEP, reason=Reason.INVALID_CONFIGURATION)
        return
    name = compose(body.name, step.name)
    # The end of an awaited child reports a name conflict; for any other child the name is claimed here.
    holder = None if waits else turn.claim_name(RunName("story", body.namespace, name))
    if holder is not None:
        message = f"the name {name!r} belongs to run {holder}, which is not a sub-run of this step"
        turn.emit(s.Noted(step.name, "SubStoryRunSpoofed", message, turn.now))
        end_step(turn, step.name, StoryPhase.FAILED, message, reason=Reason.SUB_STORY_RUN_SPOOFED)
        return
    child = child_runs.launch(turn, step, name, target, story, inputs, ancestors, awaited=waits)
    if waits:
        message, timer = f"Waiting for sub-story run '{name}' to complete", _set_timeout(turn, step)
        turn.emit(s.StepStarted(step.name, StoryPhase.RUNNING, message, turn.now, timer, child=child, sub_run=name))
    else:
        message = f"Launched sub-story run '{name}'"
        turn.emit(s.StepStarted(step.name, StoryPhase.RUNNING, message, turn.now, sub_run=name))
        succeed(turn, step, message)
    turn.emit(s.Noted(step.name, "SubStoryRunCreated", name, turn.now))


def _inputs(step: Step, scope: Scope, story: Resource) -> dict[str, Any]:
    """The Story's own defaults (`policy.with`), overridden by the step's `with` (STY-087)."""
    template = merged(object_at(spec_of(story), "policy", "with"), object_at(step.with_block, "with"))
    inputs: dict[str, Any] = scope.render(template, INPUT)
    return inputs
