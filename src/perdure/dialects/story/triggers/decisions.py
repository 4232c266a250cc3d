"""What becomes of a StoryTrigger (STY-148, STY-149).

    Pending ─▶ Created | Reused | Rejected        decided once, kept for ever

A decision follows from the request, the Story it names and the run that has the name already, if there is one.
"""

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
from perdure.dialects.story.triggers.requests import identity_of
from perdure.kernel import jsontext
from perdure.kernel.problems import Severity
from perdure.kernel.values import Instant


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


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    answer: TriggerAnswer
    why: str
    message: str
    run: Resource | None = None  # the one that was created or found

    @property
    def is_final(self) -> bool:
        return self.answer is not TriggerAnswer.PENDING


def answer_of(trigger: Resource) -> TriggerAnswer:
    found = (trigger.get("status") or {}).get("decision")
    return TriggerAnswer(found) if found in set(TriggerAnswer) else TriggerAnswer.PENDING


def refuse_request(trigger: Resource, known: KnownResources, settings: Settings) -> TriggerDecision | None:
    """Why no run can come of it; None when one can."""
    spec, namespace = spec_of(trigger), namespace_of(trigger)
    target = read_reference(spec.get("storyRef"), namespace)
    if target is None:
        return _reject(TriggerReason.INVALID, "spec.storyRef.name is required")
    key, identity = identity_of(trigger)
    if not identity or name_of(trigger) != trigger_name(target.namespace, target.name, identity):
        return _reject(TriggerReason.INVALID, "name and deliveryIdentity of the request do not belong together")
    refusal = refuse("StoryTrigger", namespace, "Story", target, known, settings)
    if refusal is not None:
        return _reject(TriggerReason.INVALID, refusal)
    story = known.find("Story", target.namespace, target.name)
    if story is None:
        return _reject(TriggerReason.NO_STORY, f"referenced story '{target.key}' not found")
    if not target.fits(story):
        return _reject(TriggerReason.OTHER_VERSION, str(target.misfit("referenced story", story)))
    if not target.means(story):
        return _reject(TriggerReason.INVALID, str(target.misfit("referenced story", story)))
    given = (spec.get("deliveryIdentity") or {}).get("inputHash")
    if (key or given) and given != input_hash(spec.get("inputs")):
        return _reject(TriggerReason.OTHER_HASH, "spec.deliveryIdentity.inputHash does not match spec.inputs")
    return None


def has_to_offload(run: Resource, settings: Settings) -> bool:
    """Whether the inputs are too large to stand in the run (STY-151)."""
    return len(jsontext.encode(spec_of(run).get("inputs") or {})) > settings.max_inline_inputs_size


def refuse_run(run: Resource, known: KnownResources, settings: Settings) -> TriggerDecision | None:
    """What admission has against the run that would be created; or that its inputs cannot be kept yet."""
    if has_to_offload(run, settings):
        if not settings.storage_drivers:
            message = "the inputs are above the inline limit and there is no storage to put them into"
            return TriggerDecision(TriggerAnswer.PENDING, TriggerReason.NO_STORAGE, message)
        settings = replace(settings, max_inline_inputs_size=len(jsontext.encode(spec_of(run).get("inputs"))))
    _, problems = validate_resource(run, known, settings)
    errors = [problem.message for problem in problems if problem.severity is Severity.ERROR]
    return _reject(TriggerReason.INVALID, errors[0]) if errors else None


def compare(wanted: Resource, found: Resource) -> TriggerDecision:
    """The name is taken: is it the run that was asked for?"""
    if _essence(wanted) != _essence(found):
        message = f"StoryRun '{name_of(found)}' exists with another Story, version or other inputs"
        return TriggerDecision(TriggerAnswer.REJECTED, TriggerReason.RUN_CONFLICT, message)
    if _request(wanted) == _request(found):
        return created(found)
    return TriggerDecision(
        TriggerAnswer.REUSED, TriggerReason.RUN_REUSED, f"StoryRun '{name_of(found)}' exists and is the same", found
    )


def created(run: Resource) -> TriggerDecision:
    return TriggerDecision(TriggerAnswer.CREATED, TriggerReason.RUN_CREATED, f"StoryRun '{name_of(run)}' created", run)


def status_of(decision: TriggerDecision, accepted: Instant, now: Instant) -> dict[str, Any]:
    """How the decision is kept."""
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
    return status


def _reject(why: TriggerReason, message: str) -> TriggerDecision:
    return TriggerDecision(TriggerAnswer.REJECTED, why, message)


def _essence(run: Resource) -> tuple[Any, ...]:
    spec = spec_of(run)
    target = read_reference(spec.get("storyRef"), namespace_of(run))
    assert target is not None
    # What is too large to be shown is told apart by its hash (STY-146, STY-151).
    return target.key, target.version, annotations_of(run).get(labels.INPUT_HASH) or input_hash(spec.get("inputs"))


def _request(run: Resource) -> tuple[Any, Any]:
    notes = annotations_of(run)
    return notes.get(labels.REQUEST_NAME), notes.get(labels.REQUEST_UID)
