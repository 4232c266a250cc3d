"""StoryRuns and StepRuns (STY-047 to 050). Programs write these, so validation stops at the first problem."""

from perdure.dialects.story.document.context import ResourceCase
from perdure.dialects.story.document.cursor import ENGRAM_REFERENCE, INPUT_SCHEMA, INVALID, STORY_REFERENCE, Cursor
from perdure.dialects.story.document.policies import RETRY, STEP_RUN_OVERRIDES
from perdure.dialects.story.document.sameness import same
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import (
    BooleanShape,
    ChoiceShape,
    DurationShape,
    FieldsShape,
    IntegerShape,
    ListShape,
    NameShape,
    ObjectShape,
    ReferenceShape,
    TextShape,
)
from perdure.dialects.story.resources.labels import BESIDE, INPUT_HASH, TOKEN
from perdure.dialects.story.resources.names import input_hash, run_name
from perdure.dialects.story.resources.resource import (
    Reference,
    Resource,
    annotations_of,
    read_reference,
    spec_of,
)
from perdure.dialects.story.state.step_errors import EXIT_CLASSES, TYPES
from perdure.dialects.story.values.references import INSTEAD, is_reference, malformed, names_secret
from perdure.dialects.story.values.schemas import BadSchema, CompiledSchema
from perdure.expressions.gotemplate import RUNTIME, BadStructure, Environment, Structure
from perdure.kernel.json_values import jsontext

# Finds functions that no template may call, in values that need not be valid templates otherwise (STY-050, STY-100).

_ANYTHING = Environment(library=RUNTIME)


def check(cursor: Cursor) -> None:
    try:
        Structure(cursor.value, _ANYTHING)
    except BadStructure as bad:
        for problem in bad.problems:
            if problem.finding is not None and problem.finding.message in RUNTIME.denied.values():
                cursor.at(*problem.path).problem(INVALID, problem.finding.message)


LARGEST = 1_048_576

STORY_RUN = FieldsShape(
    {
        "storyRef": ReferenceShape(),
        "impulseRef": ReferenceShape(),
        "inputs": ObjectShape(),
        "cancelRequested": BooleanShape(),
    }
)

STEP_RUN = FieldsShape(
    {
        "storyRunRef": ReferenceShape(),
        "stepId": NameShape(),
        "idempotencyKey": TextShape(most=256),
        "engramRef": ReferenceShape(),
        "templateGeneration": IntegerShape(0),
        "input": ObjectShape(),
        "timeout": DurationShape(),
        "retry": RETRY,
        "executionOverrides": STEP_RUN_OVERRIDES,
        "downstreamTargets": ListShape(ObjectShape()),
    }
)

STRUCTURED_ERROR = FieldsShape(  # STY-256
    {
        "version": ChoiceShape(("v1",)),
        "type": ChoiceShape(TYPES),
        "message": TextShape(least=1),
        "retryable": BooleanShape(),
        "exitCode": IntegerShape(0),
        "exitClass": ChoiceShape(EXIT_CLASSES),
        "code": TextShape(),
        "details": ObjectShape(),
    },
    required=("version", "type", "message"),
)


def validate_story_run(case: ResourceCase) -> None:
    if case.stored is not None:
        _update(case, case.stored)
        return
    spec = case.spec
    target = read_reference(spec.at("storyRef").value, case.namespace)
    if target is None:
        spec.problem(INVALID, "spec.storyRef.name is required")
        return
    _token(case, target)
    check_beside(case)
    check_impulse(case)
    check_inputs(spec.at("inputs"), case, case.context.settings.max_inline_inputs_size)
    story = find_pinned(case, "Story", spec.at("storyRef"), target, STORY_REFERENCE)
    if story is not None:
        _fits(spec.at("inputs"), story)


def _update(case: ResourceCase, stored: Resource) -> None:
    """Check what may change in an existing StoryRun (STY-049), including its token (STY-048)."""
    token = annotations_of(stored).get(TOKEN)
    if token is not None and annotations_of(case.resource).get(TOKEN) != token:
        case.root.at("metadata", "annotations").problem(INVALID, f"annotation {TOKEN} is immutable once set")
    old, new = dict(spec_of(stored)), dict(spec_of(case.resource))
    was, is_now = bool(old.pop("cancelRequested", False)), bool(new.pop("cancelRequested", False))
    old["inputs"], new["inputs"] = old.get("inputs") or {}, new.get("inputs") or {}
    if not same(old, new):
        case.spec.problem(INVALID, "spec of a StoryRun is immutable", hint="Only cancelRequested may change, to true.")
    elif was and not is_now:
        case.spec.problem(INVALID, "spec.cancelRequested cannot be reset once it is true")


def _token(case: ResourceCase, target: Reference) -> None:
    """Check name and input hash of a StoryRun that is started under a token (STY-048)."""
    annotations = annotations_of(case.resource)
    token = annotations.get(TOKEN)
    if not isinstance(token, str) or not token:
        return
    metadata = case.root.at("metadata")
    if metadata.at("generateName").value:
        metadata.at("generateName").problem(INVALID, f"metadata.generateName must be empty when {TOKEN} is set")
    expected_name = run_name(target.namespace, target.name, token)
    if case.name != expected_name:
        metadata.problem(INVALID, f'metadata.name must be "{expected_name}" when {TOKEN} is set, not "{case.name}"')
    recorded_hash = annotations.get(INPUT_HASH)
    inputs = case.spec.at("inputs").value
    if not recorded_hash:
        metadata.at("annotations").problem(INVALID, f"annotation {INPUT_HASH} is required when {TOKEN} is set")
    elif isinstance(inputs, dict | None) and not _has_references(inputs) and recorded_hash != input_hash(inputs):
        metadata.at("annotations", INPUT_HASH).problem(
            INVALID, f"annotation {INPUT_HASH} must match the inputs of the StoryRun"
        )


def check_beside(case: ResourceCase) -> None:
    """Check the annotation that the engine writes: some of the inputs, each with an additional `runID`."""
    noted = annotations_of(case.resource).get(BESIDE)
    if noted is None:
        return
    inputs = case.spec.at("inputs").value or {}
    try:
        beside = jsontext.read_strict(str(noted))
        is_fit = isinstance(noted, str) and all(
            isinstance(value["runID"], str) and value | inputs[name] == value and len(value) <= len(inputs[name]) + 1
            for name, value in beside.items()
        )
    except (jsontext.NotJson, AttributeError, KeyError, TypeError):
        is_fit = False
    if not is_fit:
        at = case.root.at("metadata", "annotations", BESIDE)
        at.problem(
            INVALID,
            f"annotation {BESIDE} is reserved for the engine (an object of inputs with their runID)",
            hint="Leave it out.",
        )


def _has_references(value: object) -> bool:
    """Whether part of the value is stored elsewhere; its hash is known only after reading that (STY-146)."""
    if isinstance(value, dict):
        return is_reference(value) or any(map(_has_references, value.values()))
    return isinstance(value, list) and any(map(_has_references, value))


def check_inputs(cursor: Cursor, case: ResourceCase, most: int) -> None:
    """Check the size limit of inputs and the form of references in them (STY-047)."""
    if not isinstance(cursor.value, dict):
        return
    size = len(jsontext.encode(cursor.value))
    if size > most:
        cursor.problem(INVALID, f"{cursor.spelled} too large ({size} bytes > {most}). {INSTEAD}")
    refuse_secrets(cursor)
    for path, problem in malformed(cursor.value, case.namespace):
        if not names_secret(cursor.at(*path).value):
            cursor.at(*path).problem(INVALID, problem)


def find_pinned(case: ResourceCase, kind: str, cursor: Cursor, target: Reference, code: str) -> Resource | None:
    """The resource that a run object names; reports a forbidden reference, a missing resource or another version."""
    referrer = str(case.resource.get("kind"))
    if not case.context.may_name(cursor, referrer, case.namespace, kind, target, code):
        return None
    word = kind.lower()
    resource = case.context.find(kind, target)
    if resource is None:
        cursor.problem(INVALID, f"referenced {word} '{target.key}' not found")
    elif (misfit := target.misfit(f"referenced {word}", resource)) is not None:
        cursor.problem(INVALID, misfit)
    return resource


def check_impulse(case: ResourceCase) -> None:
    """Check that the Impulse that a run or a request names is in its namespace, or may be named from there: its
    counters and places are used, and what it starts after a failure is started.
    """
    cursor = case.spec.at("impulseRef")
    target = read_reference(cursor.value, case.namespace)
    if target is not None:
        referrer = str(case.resource.get("kind"))
        case.context.may_name(cursor, referrer, case.namespace, "Impulse", target, INVALID)


def _fits(cursor: Cursor, story: Resource) -> None:
    """Check the inputs, with the Story's defaults filled in, against its schema (STY-210). References are checked
    later.
    """
    schema = spec_of(story).get("inputsSchema")
    inputs = {} if cursor.value is None else cursor.value
    if schema is None or not isinstance(inputs, dict):
        return
    try:
        compiled = CompiledSchema(schema)
    except BadSchema:
        return  # reported at the schema itself
    completed = compiled.complete(inputs)
    misfits = compiled.static_misfits(completed) if _has_references(completed) else compiled.misfits(completed)
    for misfit in misfits:
        cursor.at(*misfit.path).problem(INPUT_SCHEMA, f"StoryRun inputs failed schema validation: {misfit}")


def validate_step_run(case: ResourceCase) -> None:
    """Validate a StepRun (STY-050)."""
    spec = case.spec
    size = len(jsontext.encode(case.resource))
    if size > LARGEST:
        case.root.problem(INVALID, f"steprun size of {size} bytes exceeds maximum allowed size of {LARGEST} bytes")
    run = read_reference(spec.at("storyRunRef").value, case.namespace)
    if run is None:
        spec.problem(INVALID, "spec.storyRunRef.name is required")
    if not spec.at("stepId").value:
        spec.problem(INVALID, "spec.stepId is required")
    if case.stored is None or not same(spec_of(case.stored), spec_of(case.resource)):
        _work(case, run)
    _status(case)


def _work(case: ResourceCase, run: Reference | None) -> None:
    spec = case.spec
    if case.stored is not None:
        _same_step(case, case.stored)
    if run is not None:
        case.context.may_name(spec.at("storyRunRef"), "StepRun", case.namespace, "StoryRun", run, "ValidationFailed")
    engram = read_reference(spec.at("engramRef").value, case.namespace)
    if engram is not None:
        find_pinned(case, "Engram", spec.at("engramRef"), engram, ENGRAM_REFERENCE)
    check_inputs(spec.at("input"), case, case.context.settings.max_inline_size)
    check(spec.at("input"))


def _same_step(case: ResourceCase, stored: Resource) -> None:
    """A StepRun's name stands for one step of one run (STY-014)."""
    old, new = spec_of(stored), spec_of(case.resource)
    runs = [read_reference(spec.get("storyRunRef"), case.namespace) for spec in (old, new)]
    if runs[0] != runs[1] or old.get("stepId") != new.get("stepId"):
        owner = runs[0].key if runs[0] is not None else ""
        case.spec.problem(INVALID, f"the name is already used by step '{old.get('stepId')}' of run '{owner}'")


def _status(case: ResourceCase) -> None:
    status = case.root.at("status")
    needs = status.at("needs").value
    if isinstance(needs, list) and case.name in needs:
        status.at("needs").problem(INVALID, "status.needs must not name the StepRun itself")
    if status.at("error").value is not None:
        STRUCTURED_ERROR.validate(status.at("error"))
    check_generation(case)


def check_generation(case: ResourceCase) -> None:
    """Check that the observed generation never decreases (STY-050)."""
    now = case.root.at("status", "observedGeneration")
    before = ((case.stored or {}).get("status") or {}).get("observedGeneration")
    if isinstance(before, int) and isinstance(now.value, int) and now.value < before:
        now.problem(INVALID, f"status.observedGeneration must not decrease (was {before}, is {now.value})")
