"""The decision on a StoryTrigger (STY-148, STY-149).

    Pending ─▶ Created | Reused | Rejected        decided once, kept forever

A decision depends on the request, the Story that it names, and the run that already has the name, if any.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from perdure.dialects.story.document.validation import validate_resource
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.names import input_hash, trigger_name
from perdure.dialects.story.resources.reference_grants import refuse
from perdure.dialects.story.resources.resource import (
    KnownResources,
    Resource,
    annotations_of,
    metadata_of,
    name_of,
    namespace_of,
    read_reference,
    spec_of,
)
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.triggers.requests import identity_of, name_of_request
from perdure.kernel.documents.problems import Severity
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant


class TriggerAnswer(StrEnum):
    PENDING = "Pending"
    CREATED = "Created"
    REUSED = "Reused"
    REJECTED = "Rejected"


class TriggerReason(StrEnum):
    RUN_CREATED = "StoryRunCreated"
    RUN_REUSED = "StoryRunReused"
    RUN_CONFLICT = "StoryRunConflict"
    INVALID = "ValidationFailed"
    NO_STORY = "StoryNotFound"
    OTHER_VERSION = "StoryVersionMismatch"
    OTHER_HASH = "InputHashMismatch"
    NO_STORAGE = "StorageUnavailable"
    NO_DOCUMENT = "DocumentNotFound"
    DOCUMENT_RUN_CREATED = "RunCreated"
    DOCUMENT_RUN_REUSED = "RunReused"
    DOCUMENT_RUN_CONFLICT = "RunConflict"


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    answer: TriggerAnswer
    why: str
    message: str
    run: Resource | None = None  # the created or existing run
    run_ref: Mapping[str, Any] | None = None  # the same for a run of another language: id, language, name

    @property
    def is_final(self) -> bool:
        return self.answer is not TriggerAnswer.PENDING


def answer_of(trigger: Resource) -> TriggerAnswer:
    decision = (trigger.get("status") or {}).get("decision")
    return TriggerAnswer(decision) if decision in set(TriggerAnswer) else TriggerAnswer.PENDING


def refuse_request(trigger: Resource, known: KnownResources, settings: Settings) -> TriggerDecision | None:
    """Why the request cannot start a run; None if it can."""
    spec, namespace = spec_of(trigger), namespace_of(trigger)
    target = read_reference(spec.get("storyRef"), namespace)
    if target is None:
        return reject(TriggerReason.INVALID, "spec.storyRef.name is required")
    key, identity = identity_of(trigger)
    if not identity or name_of(trigger) != trigger_name(target.namespace, target.name, identity):
        return reject(TriggerReason.INVALID, "name and deliveryIdentity of the request do not match")
    refusal = refuse("StoryTrigger", namespace, "Story", target, known, settings)
    if refusal is not None:
        return reject(TriggerReason.INVALID, refusal)
    if (refused := _refuse_impulse(trigger, known, settings)) is not None:
        return refused
    story = known.find("Story", target.namespace, target.name)
    if story is None:
        return reject(TriggerReason.NO_STORY, f"referenced story '{target.key}' not found")
    if not target.fits(story):
        return reject(TriggerReason.OTHER_VERSION, str(target.misfit("referenced story", story)))
    if not target.means(story):
        return reject(TriggerReason.INVALID, str(target.misfit("referenced story", story)))
    return _refuse_hash(spec, key)


def _refuse_impulse(trigger: Resource, known: KnownResources, settings: Settings) -> TriggerDecision | None:
    """An Impulse of another namespace is not counted, and starts nothing, for a request that may not name it."""
    impulse = read_reference(spec_of(trigger).get("impulseRef"), namespace_of(trigger))
    if impulse is None:
        return None
    refusal = refuse("StoryTrigger", namespace_of(trigger), "Impulse", impulse, known, settings)
    return None if refusal is None else reject(TriggerReason.INVALID, refusal)


def refuse_document_request(trigger: Resource, known: KnownResources, settings: Settings) -> TriggerDecision | None:
    """The same for a document of another language, as far as the request itself tells (SRV-041)."""
    key, identity = identity_of(trigger)
    if not identity or name_of(trigger) != name_of_request(spec_of(trigger), namespace_of(trigger), identity):
        return reject(TriggerReason.INVALID, "name and deliveryIdentity of the request do not match")
    return _refuse_impulse(trigger, known, settings) or _refuse_hash(spec_of(trigger), key)


def _refuse_hash(spec: Mapping[str, Any], key: str) -> TriggerDecision | None:
    recorded_hash = (spec.get("deliveryIdentity") or {}).get("inputHash")
    if (key or recorded_hash) and recorded_hash != input_hash(spec.get("inputs")):
        return reject(TriggerReason.OTHER_HASH, "spec.deliveryIdentity.inputHash does not match spec.inputs")
    return None


def decide_document_run(id: str, language: str, name: str, *, is_ours: bool) -> TriggerDecision:
    """The decision about a request whose run exists: started by it, or found."""
    run_ref = {"id": id, "language": language, "name": name}
    if is_ours:
        return TriggerDecision(
            TriggerAnswer.CREATED, TriggerReason.DOCUMENT_RUN_CREATED, f"run {id} created", run_ref=run_ref
        )
    message = f"run {id} exists and is the same"
    return TriggerDecision(TriggerAnswer.REUSED, TriggerReason.DOCUMENT_RUN_REUSED, message, run_ref=run_ref)


def has_to_offload(run: Resource, settings: Settings) -> bool:
    """Whether the inputs are too large to be stored in the run (STY-151)."""
    return len(jsontext.encode(spec_of(run).get("inputs") or {})) > settings.max_inline_inputs_size


def refuse_run(run: Resource, known: KnownResources, settings: Settings) -> TriggerDecision | None:
    """Why admission refuses the run that would be created, or why its inputs cannot be stored yet."""
    if has_to_offload(run, settings):
        if not settings.storage_drivers:
            message = "the inputs exceed the inline limit, and no storage is configured"
            return TriggerDecision(TriggerAnswer.PENDING, TriggerReason.NO_STORAGE, message)
        settings = replace(settings, max_inline_inputs_size=len(jsontext.encode(spec_of(run).get("inputs"))))
    _, problems = validate_resource(run, known, settings)
    errors = [problem.message for problem in problems if problem.severity is Severity.ERROR]
    return reject(TriggerReason.INVALID, errors[0]) if errors else None


def compare(requested: Resource, existing: Resource) -> TriggerDecision:
    """Decide a request whose run name exists: is it the requested run?"""
    if _identity(requested) != _identity(existing):
        message = f"StoryRun '{name_of(existing)}' exists with another Story, version or other inputs"
        return TriggerDecision(TriggerAnswer.REJECTED, TriggerReason.RUN_CONFLICT, message)
    if _request(requested) == _request(existing):
        return created(existing)
    return TriggerDecision(
        TriggerAnswer.REUSED,
        TriggerReason.RUN_REUSED,
        f"StoryRun '{name_of(existing)}' exists and is the same",
        existing,
    )


def created(run: Resource) -> TriggerDecision:
    return TriggerDecision(TriggerAnswer.CREATED, TriggerReason.RUN_CREATED, f"StoryRun '{name_of(run)}' created", run)


def status_of(decision: TriggerDecision, accepted: Instant, now: Instant) -> dict[str, Any]:
    """The status that records a decision."""
    status: dict[str, Any] = {
        "decision": decision.answer.value,
        "reason": str(decision.why),
        "message": decision.message,
        "acceptedAt": timestamp(accepted),
        "conditions": [
            {
                "type": "Ready",
                "status": {TriggerAnswer.PENDING: "Unknown", TriggerAnswer.REJECTED: "False"}.get(
                    decision.answer, "True"
                ),
                "reason": str(decision.why),
                "message": decision.message,
                "lastTransitionTime": timestamp(now),
            }
        ],
    }
    if decision.is_final:
        status["completedAt"] = timestamp(now)
    if decision.run is not None:
        metadata = metadata_of(decision.run)
        status["storyRunRef"] = {"name": name_of(decision.run), "namespace": namespace_of(decision.run)}
        if metadata.get("uid"):
            status["storyRunRef"]["uid"] = metadata["uid"]
    if decision.run_ref is not None:
        status["runRef"] = dict(decision.run_ref)
    return status


def reject(why: TriggerReason, message: str) -> TriggerDecision:
    return TriggerDecision(TriggerAnswer.REJECTED, why, message)


def _identity(run: Resource) -> tuple[Any, ...]:
    spec = spec_of(run)
    target = read_reference(spec.get("storyRef"), namespace_of(run))
    assert target is not None
    # Inputs that are too large to be shown are identified by their hash (STY-146, STY-151).
    return target.key, target.version, annotations_of(run).get(labels.INPUT_HASH) or input_hash(spec.get("inputs"))


def _request(run: Resource) -> tuple[Any, Any]:
    notes = annotations_of(run)
    return notes.get(labels.REQUEST_NAME), notes.get(labels.REQUEST_UID)
