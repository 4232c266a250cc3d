"""StoryTriggers and the runs they request: names, hashes and labels follow from it (STY-147, 150, 273).

A request names a Story (`storyRef`) or a document of another language (`documentRef`, SRV-041).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.names import document_trigger_name, input_hash, run_name, trigger_name
from perdure.dialects.story.resources.resource import (
    Reference,
    Resource,
    annotations_of,
    metadata_of,
    name_of,
    namespace_of,
    read_reference,
    spec_of,
)
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.ids import reserved_label
from perdure.kernel.json_values import jsontext

LANGUAGE = "story"
STORY_COUNTED = "story"
IMPULSE_COUNTED = ("impulse", "impulse-success")


class DocumentReference(msgspec.Struct, frozen=True):
    """A document of any language in the catalog. `version` is one of its generations."""

    language: str
    name: str
    version: str = ""


def read_document_reference(value: Any) -> DocumentReference | None:
    """Read `{language, name, version?}`; None if a part is missing."""
    if not isinstance(value, dict):
        return None
    language, name, version = (value.get(member) for member in ("language", "name", "version"))
    if not (isinstance(language, str) and language.strip() and isinstance(name, str) and name.strip()):
        return None
    return DocumentReference(language.strip(), name.strip(), "" if version is None else str(version).strip())


def target_of(members: Mapping[str, Any]) -> dict[str, Any]:
    """`storyRef` or `documentRef` of an Impulse or of its `onFailure`; a document that is a Story counts as one."""
    document = read_document_reference(members.get("documentRef"))
    if document is None:
        story = members.get("storyRef")
        return {"storyRef": {"name": story} if isinstance(story, str) else story}
    if document.language == LANGUAGE:
        return {"storyRef": {"name": document.name, **({"version": document.version} if document.version else {})}}
    return {"documentRef": members["documentRef"]}


def target_name(target: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Name and namespace of what is started, for key templates (STY-155)."""
    document = read_document_reference(target.get("documentRef"))
    if document is not None:
        return document.name, namespace
    story = read_reference(target.get("storyRef"), namespace)
    assert story is not None
    return story.name, story.namespace


def name_of_request(target: Mapping[str, Any], namespace: str, identity: str) -> str:
    """The name of a StoryTrigger with this target, in this namespace (STY-147)."""
    document = read_document_reference(target.get("documentRef"))
    if document is not None:
        return document_trigger_name(namespace, document.language, document.name, identity)
    story = read_reference(target.get("storyRef"), namespace)
    assert story is not None
    return trigger_name(story.namespace, story.name, identity)


class Delivery(msgspec.Struct, frozen=True):
    """What to start, and what identifies this delivery. Without a key, each submission is a new one."""

    story: Mapping[str, Any] | None  # a reference, as StoryTriggers write it
    inputs: dict[str, Any] | None
    submission: str
    mode: str = "none"
    key: str = ""
    impulse: Mapping[str, Any] | None = None
    document: Mapping[str, Any] | None = None  # instead of a Story, a document of another language

    @property
    def target(self) -> dict[str, Any]:
        return {"storyRef": dict(self.story)} if self.story is not None else {"documentRef": dict(self.document or {})}


def compose_trigger(delivery: Delivery, namespace: str) -> Resource:
    """The StoryTrigger of a delivery, in the form that admission requires (STY-051)."""
    identity: dict[str, Any] = {"mode": delivery.mode, "submissionId": delivery.submission}
    if delivery.key:
        identity |= {"key": delivery.key, "inputHash": input_hash(delivery.inputs)}
    spec: dict[str, Any] = {**delivery.target, "deliveryIdentity": identity}
    if delivery.impulse is not None:
        spec["impulseRef"] = dict(delivery.impulse)
    if delivery.inputs is not None:
        spec["inputs"] = delivery.inputs
    name = name_of_request(delivery.target, namespace, delivery.key or delivery.submission)
    return {
        "apiVersion": RESOURCE_KINDS["StoryTrigger"].api_version,
        "kind": "StoryTrigger",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def is_same_request(first: Resource, second: Resource) -> bool:
    """Whether two requests with one identity are the same: Story and inputs decide, not the sender (STY-148)."""
    return (_target(first), document_of(first)) == (_target(second), document_of(second)) and input_hash(
        spec_of(first).get("inputs")
    ) == input_hash(spec_of(second).get("inputs"))


def identity_of(trigger: Resource) -> tuple[str, str]:
    """The key of a request, and what its run is named after (STY-147)."""
    identity = spec_of(trigger).get("deliveryIdentity") or {}
    key = str(identity.get("key") or "")
    return key, key or str(identity.get("submissionId") or "")


def impulse_of(trigger: Resource) -> ResourceKey | None:
    """The Impulse that a request or run names."""
    target = read_reference(spec_of(trigger).get("impulseRef"), namespace_of(trigger))
    return None if target is None else ResourceKey("Impulse", target.namespace, target.name)


def compose_run(trigger: Resource) -> Resource:
    """The StoryRun that a StoryTrigger requests (STY-147, STY-150)."""
    spec, target = spec_of(trigger), _target(trigger)
    assert target is not None
    key, identity = identity_of(trigger)
    notes = {labels.REQUEST_NAME: name_of(trigger), labels.REQUEST_UID: str(metadata_of(trigger).get("uid", ""))}
    if key:
        notes |= {labels.TOKEN: key, labels.INPUT_HASH: input_hash(spec.get("inputs"))}
    run_spec = {name: spec[name] for name in ("storyRef", "impulseRef", "inputs") if spec.get(name) is not None}
    return {
        "apiVersion": RESOURCE_KINDS["StoryRun"].api_version,
        "kind": "StoryRun",
        "metadata": {
            "name": run_name(target.namespace, target.name, identity),
            "namespace": namespace_of(trigger),
            "annotations": _inherited_annotations(trigger) | notes,
        },
        "spec": run_spec,
    }


class RunStart(msgspec.Struct, frozen=True):
    """A StoryRun as the engine starts it; the Story is found by `story`."""

    story: Reference
    name: str
    namespace: str
    inputs: Any
    token: str | None
    labels: dict[str, str]
    options: dict[str, Any]
    system_labels: dict[str, str] = {}


def read_start(run: Resource, *, is_offloaded: bool = False) -> RunStart:
    """Read what a valid StoryRun requests."""
    spec, namespace, name = spec_of(run), namespace_of(run), name_of(run)
    target = read_reference(spec.get("storyRef"), namespace)
    assert target is not None
    notes = dict(annotations_of(run))
    token = notes.pop(labels.TOKEN, None)
    notes.pop(labels.INPUT_HASH, None)
    beside = notes.pop(labels.BESIDE, None)
    options: dict[str, Any] = {"name": name, "namespace": namespace, "storyRef": spec["storyRef"]}
    if spec.get("impulseRef"):
        options["impulseRef"] = spec["impulseRef"]
    if notes:
        options["annotations"] = notes
    if is_offloaded:
        options["inputsOfAnySize"] = True
    if beside:
        options["beside"] = jsontext.decode(beside.encode())
    caller_labels = {key: str(value) for key, value in (metadata_of(run).get("labels") or {}).items()}
    own_labels = {labels.RUN: name}
    if isinstance(token, str) and token:
        own_labels[labels.TOKEN] = token
    if labels.CORRELATION in caller_labels:
        own_labels[labels.CORRELATION] = caller_labels[labels.CORRELATION]
    caller_labels = {
        key: value for key, value in caller_labels.items() if not reserved_label([key])
    }  # those are not given by callers
    return RunStart(target, name, namespace, spec.get("inputs"), token or None, caller_labels, options, own_labels)


def same_start(program: Any, input: bytes, options: Mapping[str, Any]) -> bytes:
    """What two starts under one name must have in common: Story, pin and inputs, not the sender (STY-146, STY-148)."""
    inputs = jsontext.decode(input)
    pin = (options.get("storyRef") or {}).get("version") or ""
    inputs_hash = input_hash(inputs) if isinstance(inputs, dict | None) else jsontext.canonical(inputs).decode()
    return f"{program.namespace}/{program.name}@{pin}#{inputs_hash}".encode()


def trigger_tokens(options: Mapping[str, Any]) -> list[str]:
    """Where the run was counted (STY-158): every run for its Story, once for the Impulse it names. A failed trigger
    has no run, so there is no `impulse-failed`.
    """
    return [STORY_COUNTED, *(IMPULSE_COUNTED if options.get("impulseRef") else ())]


def document_of(trigger: Resource) -> DocumentReference | None:
    """The document of another language that is requested; None: a Story."""
    return read_document_reference(spec_of(trigger).get("documentRef"))


def _target(trigger: Resource) -> Reference | None:
    return read_reference(spec_of(trigger).get("storyRef"), namespace_of(trigger))


def _inherited_annotations(trigger: Resource) -> dict[str, str]:
    """Annotations of a request that its run gets too, except those that identify the run."""
    reserved = (labels.TOKEN, labels.INPUT_HASH)
    return {
        name: value
        for name, value in annotations_of(trigger).items()
        if isinstance(value, str) and name not in reserved
    }
