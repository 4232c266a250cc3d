"""StoryTriggers and EffectClaims: requests and leases that programs write (STY-051, STY-052)."""

from perdure.dialects.story.document.context import ResourceCase
from perdure.dialects.story.document.cursor import INVALID, STORY_REFERENCE
from perdure.dialects.story.document.document_references import DOCUMENT_REFERENCE, check_document
from perdure.dialects.story.document.runs import check_beside, check_impulse, find_pinned
from perdure.dialects.story.document.sameness import same
from perdure.dialects.story.document.shapes import (
    ChoiceShape,
    FieldsShape,
    IntegerShape,
    ObjectShape,
    ReferenceShape,
    TextShape,
    TimestampShape,
    read_timestamp,
)
from perdure.dialects.story.resources.names import claim_name, input_hash
from perdure.dialects.story.resources.resource import Reference, Resource, read_reference, spec_of
from perdure.dialects.story.triggers.requests import name_of_request, read_document_reference

STORY_TRIGGER = FieldsShape(
    {
        "storyRef": ReferenceShape(),
        "documentRef": DOCUMENT_REFERENCE,
        "impulseRef": ReferenceShape(),
        "inputs": ObjectShape(),
        "deliveryIdentity": FieldsShape(
            {
                "mode": ChoiceShape(("none", "token", "key")),
                "key": TextShape(most=256),
                "inputHash": TextShape(most=64),
                "submissionId": TextShape(most=253),
            }
        ),
    }
)

EFFECT_CLAIM = FieldsShape(
    {
        "stepRunRef": ReferenceShape(),
        "effectKey": TextShape(most=256),
        "idempotencyKey": TextShape(most=256),
        "holderIdentity": TextShape(most=253),
        "leaseDurationSeconds": IntegerShape(1),
        "acquireTime": TimestampShape(),
        "renewTime": TimestampShape(),
        "leaseTransitions": IntegerShape(0),
        "completionStatus": ChoiceShape(("completed", "released", "abandoned")),
        "completedAt": TimestampShape(),
        "details": ObjectShape(),
    }
)

_IDENTITY = ("stepRunRef", "effectKey", "idempotencyKey")
_LEASE = ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions")


def validate_story_trigger(case: ResourceCase) -> None:
    spec = case.spec
    if case.stored is not None and not same(spec_of(case.stored), spec_of(case.resource)):
        spec.problem(INVALID, "spec of a StoryTrigger is immutable")
        return
    target = read_reference(spec.at("storyRef").value, case.namespace)
    document = read_document_reference(spec.at("documentRef").value)
    if document is None and target is None:
        spec.problem(INVALID, "spec.storyRef.name is required")
        return
    if document is not None and not check_document(
        spec, document, case.namespace, case.context, must_exist=case.stored is None
    ):
        return
    check_beside(case)
    if case.stored is None:
        check_impulse(case)
    identity = spec.at("deliveryIdentity")
    mode, key, recorded_hash = (identity.at(field).value or "" for field in ("mode", "key", "inputHash"))
    submission = identity.at("submissionId").value
    if not submission:
        spec.problem(INVALID, "spec.deliveryIdentity.submissionId is required")
        return
    if mode == "none" and key:
        identity.at("key").problem(INVALID, "spec.deliveryIdentity.key must be empty when its mode is none")
    elif mode in ("token", "key") and not key:
        identity.problem(INVALID, f"spec.deliveryIdentity.key is required when its mode is {mode}")
    elif key and not recorded_hash:
        identity.problem(INVALID, "spec.deliveryIdentity.inputHash is required when a key is set")
    inputs = spec.at("inputs").value
    if recorded_hash and isinstance(inputs, dict | None) and recorded_hash != input_hash(inputs):
        identity.at("inputHash").problem(INVALID, "spec.deliveryIdentity.inputHash does not match spec.inputs")
    members = spec.value if document is None else {"documentRef": spec.value["documentRef"]}
    _check_name(case, name_of_request(members, case.namespace, str(key or submission)))
    if case.stored is None and document is None and target is not None:
        find_pinned(case, "Story", spec.at("storyRef"), target, STORY_REFERENCE)


def validate_effect_claim(case: ResourceCase) -> None:
    spec = case.spec
    target = read_reference(spec.at("stepRunRef").value, case.namespace)
    if target is None:
        spec.problem(INVALID, "spec.stepRunRef.name is required")
        return
    effect = spec.at("effectKey").value
    if not isinstance(effect, str) or not effect:
        spec.problem(INVALID, "spec.effectKey is required")
        return
    _check_name(case, claim_name(case.namespace, target.name, effect))
    _times(case)
    if case.stored is not None:
        _transition(case, case.stored)
    else:
        _owner(case, target)


def _check_name(case: ResourceCase, expected_name: str) -> None:
    kind = case.resource.get("kind")
    metadata = case.root.at("metadata")
    if metadata.at("generateName").value:
        metadata.at("generateName").problem(INVALID, f"metadata.generateName must be empty for a {kind}")
    if case.name != expected_name:
        metadata.problem(INVALID, f'metadata.name must be "{expected_name}" for this {kind}, not "{case.name}"')


def _owner(case: ResourceCase, target: Reference) -> None:
    """Check that a claim and its StepRun are in the same namespace, whatever the policy allows (STY-250)."""
    reference = case.spec.at("stepRunRef")
    if target.namespace != case.namespace:
        reference.problem(INVALID, "cross-namespace StepRunRef references are not allowed")
        return
    step_run = case.context.find("StepRun", target)
    if step_run is None:
        reference.problem(INVALID, f"referenced steprun '{target.key}' not found")
    elif (misfit := target.misfit("referenced steprun", step_run)) is not None:
        reference.problem(INVALID, misfit)


def _times(case: ResourceCase) -> None:
    spec = case.spec
    status = spec.at("completionStatus").value
    acquired, renewed, completed = (
        read_timestamp(spec.value.get(field)) for field in ("acquireTime", "renewTime", "completedAt")
    )
    if completed is not None and not status:
        spec.at("completedAt").problem(INVALID, "spec.completedAt needs a spec.completionStatus")
    if completed is None and status in ("completed", "abandoned"):
        spec.problem(INVALID, f"spec.completedAt is required when spec.completionStatus is {status}")
    if renewed is not None and acquired is None:
        spec.at("renewTime").problem(INVALID, "spec.renewTime needs a spec.acquireTime")
    if renewed is not None and acquired is not None and renewed < acquired:
        spec.at("renewTime").problem(INVALID, "spec.renewTime cannot be before spec.acquireTime")
    for field, timestamp in (("acquireTime", acquired), ("renewTime", renewed)):
        if completed is not None and timestamp is not None and completed < timestamp:
            spec.at("completedAt").problem(INVALID, f"spec.completedAt cannot be before spec.{field}")


def _transition(case: ResourceCase, stored: Resource) -> None:
    spec = case.spec
    old, new = spec_of(stored), spec_of(case.resource)
    if any(not same(old.get(field), new.get(field)) for field in _IDENTITY):
        spec.problem(INVALID, f"{', '.join(_IDENTITY)} of an EffectClaim are immutable")
    before, now = read_timestamp(old.get("completedAt")), read_timestamp(new.get("completedAt"))
    if before is not None and now is None:
        spec.problem(INVALID, "spec.completedAt cannot be cleared")
    elif before is not None and now is not None and now < before:
        spec.at("completedAt").problem(INVALID, "spec.completedAt cannot be moved back")
    if old.get("completionStatus") == "completed":
        if new.get("completionStatus") != "completed":
            spec.problem(INVALID, "an EffectClaim that is completed stays completed")
        elif any(not same(old.get(field), new.get(field)) for field in _LEASE):
            spec.problem(INVALID, "holder and lease of a completed EffectClaim cannot change")
