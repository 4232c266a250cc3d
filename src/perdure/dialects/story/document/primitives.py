"""The `with` of built-in steps (STY-031 to 034)."""

from collections.abc import Callable

from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor, listed
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import ReferenceShape, shown
from perdure.dialects.story.document.templates import check_condition, is_literal
from perdure.dialects.story.resources.durations import SHORTEST_POLL, BadDuration, read_positive
from perdure.dialects.story.resources.resource import read_reference
from perdure.expressions.gotemplate import is_template
from perdure.kernel.problems import guess

STOP_PHASES = ("Succeeded", "Failed", "Finished", "Canceled")
STOP_MODES = ("success", "failure", "cancel")


def execute_story(cursor: Cursor, name: str) -> None:
    given = cursor.at("with")
    if given.value is None:
        cursor.problem(INVALID, f"step '{name}' of type 'executeStory' requires a 'with' block")
        return
    if not isinstance(given.value, dict):
        return
    _members(given, ("storyRef", "waitForCompletion", "with"))
    target = given.at("storyRef")
    if target.value is not None:
        ReferenceShape().validate(target)
    if read_reference(target.value, "") is None:
        given.problem(INVALID, f"step '{name}' of type 'executeStory' requires 'with.storyRef.name' to be set")
    waits = given.at("waitForCompletion")
    if not isinstance(waits.value, bool | None) and not _is_template(waits):
        waits.problem(INVALID, f"must be true or false, not {shown(waits.value)}")
    if given.at("with").value is not None and not _is_template(given.at("with")):
        given.at("with").is_object()
    refuse_secrets(given.at("with"), f"step '{name}': ")


def wait(cursor: Cursor, name: str) -> None:
    given = cursor.at("with")
    if given.value is None:
        cursor.problem(INVALID, f"step '{name}' of type 'wait' requires a 'with' block")
        return
    if not isinstance(given.value, dict):
        return
    _members(given, ("until", "timeout", "pollInterval", "onTimeout"))
    until = given.at("until")
    if until.value is None or (isinstance(until.value, str) and not until.value.strip()):
        given.problem(INVALID, f"step '{name}' of type 'wait' requires 'with.until' to be set")
    elif not isinstance(until.value, str):
        until.problem(INVALID, f"must be a text or a template, not {shown(until.value)}")
    else:
        check_condition(until)
    _pause(given, name, "wait")


def gate(cursor: Cursor, name: str) -> None:
    given = cursor.at("with")
    if isinstance(given.value, dict):
        _members(given, ("timeout", "pollInterval", "onTimeout"))
        _pause(given, name, "gate")


def _pause(given: Cursor, name: str, kind: str) -> None:
    for word in ("timeout", "pollInterval"):
        span = given.at(word)
        if span.value in (None, ""):
            continue
        try:
            length = read_positive(span.value)
        except BadDuration as refusal:
            span.problem(INVALID, f"step '{name}' has invalid {kind} {word}: {refusal}")
            continue
        if word == "pollInterval" and length < SHORTEST_POLL:
            span.problem(INVALID, f"step '{name}' has {kind} pollInterval shorter than 10ms")
    end = given.at("onTimeout")
    word = end.value.strip().lower() if isinstance(end.value, str) else end.value
    if word not in (None, "", "fail", "skip"):
        unsupported = f"unsupported value {shown(end.value)} (expected fail or skip)"
        end.problem(INVALID, f"step '{name}' has invalid {kind} onTimeout: {unsupported}")


def sleep(cursor: Cursor, name: str) -> None:
    given = cursor.at("with")
    _members(given, ("duration",))
    span = given.at("duration")
    blank = isinstance(span.value, str) and not span.value.strip()
    if span.value is None or blank or _is_template(span):
        return
    try:
        read_positive(span.value)
    except BadDuration as refusal:
        span.problem(INVALID, f"step '{name}' has invalid sleep duration: {refusal}")


def stop(cursor: Cursor, name: str) -> None:
    given = cursor.at("with")
    _members(given, ("phase", "mode", "message"))
    for word, known in (("phase", STOP_PHASES), ("mode", STOP_MODES)):
        chosen = given.at(word)
        if chosen.value not in (None, "", *known):
            near = guess(chosen.value, known) if is_literal(chosen.value) else ""
            unsupported = f"unsupported value {shown(chosen.value)} (expected {listed(known)}){near}"
            chosen.problem(INVALID, f"step '{name}' has invalid stop {word}: {unsupported}")
    message = given.at("message")
    if not isinstance(message.value, str | None):
        message.problem(INVALID, f"must be a text, not {shown(message.value)}")


def parallel(cursor: Cursor, name: str) -> None:
    """Each branch is judged as a step; here only what a branch may not have."""
    branches = cursor.at("with", "steps")
    if not isinstance(branches.value, list) or not branches.value:
        place = cursor if branches.value is None else branches
        place.problem(INVALID, f"step '{name}' of type 'parallel' requires a non-empty list 'with.steps'")
        return
    _members(cursor.at("with"), ("steps",))
    for branch in branches.items():
        if not isinstance(branch.value, dict):
            continue
        called = f"branch '{branch.value.get('name') or ''}' of step '{name}'"
        if branch.value.get("type"):
            branch.at("type").problem(INVALID, f"{called} must not set type: only Engrams run in parallel")
        if branch.value.get("ref") is None:
            branch.problem(INVALID, f"{called} must set ref")
        if branch.value.get("needs"):
            branch.at("needs").problem(INVALID, f"{called} must not set needs: all branches start together")


def condition(cursor: Cursor, name: str) -> None:
    """Nothing but its `if`."""


PRIMITIVES: dict[str, Callable[[Cursor, str], None]] = {
    "condition": condition,
    "parallel": parallel,
    "sleep": sleep,
    "stop": stop,
    "executeStory": execute_story,
    "wait": wait,
    "gate": gate,
}

REMOVED = ("switch", "throttle", "batch")


def _is_template(cursor: Cursor) -> bool:
    if isinstance(cursor.value, dict):
        return "$bubuTemplate" in cursor.value
    return isinstance(cursor.value, str) and is_template(cursor.value)


def _members(given: Cursor, known: tuple[str, ...]) -> None:
    """`with` is free-form (STY-003), but what a built-in step does not know has no effect."""
    for name, member in given.members():
        if name not in known:
            member.warn(DOUBTFUL, f"has no effect here{guess(name, known)}", hint=f"Read are: {', '.join(known)}.")


class StepType:
    """The `type` of a step (STY-023)."""

    def validate(self, cursor: Cursor) -> None:
        word = cursor.value
        if word == "" or (isinstance(word, str) and word in PRIMITIVES):
            return
        if isinstance(word, str) and word in REMOVED:
            cursor.problem(INVALID, f"step type '{word}' was removed")
            return
        near = guess(word, tuple(PRIMITIVES)) if isinstance(word, str) else ""
        cursor.problem(INVALID, f"unsupported value {shown(word)} (expected {listed(PRIMITIVES)}){near}")

    def tidy(self, value: object) -> object:
        return value
