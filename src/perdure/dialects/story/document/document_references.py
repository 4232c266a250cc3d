"""References of Impulses and StoryTriggers to what they start: a Story, or a document of another language (SRV-041)."""

from typing import Any

from perdure.dialects.story.document.context import CheckContext
from perdure.dialects.story.document.cursor import INVALID, NOT_FOUND, STORY_REFERENCE, Cursor
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import (
    EitherShape,
    FieldsShape,
    IntegerShape,
    ObjectShape,
    ReferenceShape,
    TextShape,
)
from perdure.dialects.story.resources.resource import DEFAULT_NAMESPACE, read_reference
from perdure.dialects.story.triggers.requests import LANGUAGE, DocumentReference, read_document_reference
from perdure.kernel.documents.problems import guess

DOCUMENT_REFERENCE = FieldsShape(
    {
        "language": TextShape(least=1, most=63),
        "name": TextShape(least=1, most=1024),
        "version": EitherShape(IntegerShape(1), TextShape(most=19), "a version: a whole number"),
    },
    required=("language", "name"),
)

ON_FAILURE = FieldsShape(
    {"storyRef": ReferenceShape(), "documentRef": DOCUMENT_REFERENCE, "inputs": ObjectShape()},
)


def check_target(cursor: Cursor, namespace: str, context: CheckContext, *, is_required: bool = True) -> None:
    """Check what an Impulse starts: exactly one of `storyRef` and `documentRef`."""
    reference = cursor.at("storyRef")
    target, document = read_reference(reference.value, namespace), cursor.at("documentRef")
    if target is not None and document.value is not None:
        document.problem(INVALID, f"{reference.spelled} and {document.spelled} exclude each other: name one document")
        return
    if document.value is not None:
        document_reference = read_document_reference(document.value)
        if document_reference is not None:
            check_document(cursor, document_reference, namespace, context, may_be_story=True)
        return
    if target is None:
        if is_required:
            cursor.problem(
                STORY_REFERENCE,
                f"{reference.spelled}.name is required",
                hint="Or name a document of another language: documentRef: {language: playbook, name: PATH}.",
            )
        return
    if not context.may_name(reference, "Impulse", namespace, "Story", target, STORY_REFERENCE):
        return
    story = context.find("Story", target)
    if story is None:
        reference.warn(NOT_FOUND, f"there is no Story '{target.key}' yet: triggers will wait for it")
    elif (misfit := target.misfit("Story", story)) is not None:
        reference.warn(STORY_REFERENCE, misfit)


def check_document(
    cursor: Cursor,
    document: DocumentReference,
    namespace: str,
    context: CheckContext,
    *,
    may_be_story: bool = False,
    must_exist: bool = False,
) -> bool:
    """Check language and name of a `documentRef`; whether it has no problems."""
    reference, kinds = cursor.at("documentRef"), context.known.document_kinds()
    if document.language == LANGUAGE and not may_be_story:
        reference.at("language").problem(INVALID, "a Story is named by spec.storyRef")
        return False
    if document.version and not document.version.isdecimal():
        reference.at("version").problem(INVALID, f"{document.version!r} is not a version (expected e.g. 2)")
        return False
    if not kinds:  # checked without an engine
        return True
    kind = kinds.get(document.language)
    if kind is None:
        names = sorted(kinds)
        message = f"{document.language!r} is not a language (expected one of {', '.join(names)})"
        reference.at("language").problem(INVALID, f"{message}{guess(document.language, names)}")
        return False
    if context.known.find_document(kind, namespace, document.name) is None:
        hint = "Add it with `perdure apply -f FILE`."
        place = f" in namespace {namespace!r}" if kind.has_namespace and namespace != DEFAULT_NAMESPACE else ""
        message = f"there is no {kind.title(document.name)}{place}"
        if must_exist:
            reference.problem(NOT_FOUND, message, hint=hint)
            return False
        reference.warn(NOT_FOUND, f"{message} yet", hint=hint)
    return True


def check_failure_hook(cursor: Cursor, namespace: str, context: CheckContext) -> None:
    """Check the document that is run when a run of the Impulse fails."""
    if cursor.value is None:
        return
    if not isinstance(cursor.value, dict):
        return  # its shape is reported elsewhere
    check_target(cursor, namespace, context)
    refuse_secrets(cursor.at("inputs"))


def check_schedule_hooks(cursor: Cursor, namespace: str, context: CheckContext) -> None:
    """The same for the schedules of an Impulse, whose shape its template's schema describes only roughly."""
    schedules: Any = cursor.at("with", "schedules").value
    for index, schedule in enumerate(schedules if isinstance(schedules, list) else ()):
        if isinstance(schedule, dict) and isinstance(schedule.get("onFailure"), dict):
            hook = cursor.at("with", "schedules", index, "onFailure")
            ON_FAILURE.validate(hook)
            check_failure_hook(hook, namespace, context)
