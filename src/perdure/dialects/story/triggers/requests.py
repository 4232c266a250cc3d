"""StoryTriggers and the StoryRuns they ask for: names, hashes and marks follow from the request (STY-147, 150, 273)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.names import input_hash, run_name, trigger_name
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
from perdure.kernel import jsontext

STORY_COUNTED = "story"
IMPULSE_COUNTED = ("impulse", "impulse-success")


class Delivery(msgspec.Struct, frozen=True):
    """What is to be started, and what tells this delivery from others. Without a key each submission is another."""

    story: Mapping[str, Any]  # a reference, as StoryTriggers write it
    inputs: dict[str, Any] | None
    submission: str
    mode: str = "none"
    key: str = ""
    impulse: Mapping[str, Any] | None = None


def compose_trigger(delivery: Delivery, namespace: str) -> Resource:
    """The StoryTrigger of a delivery, as admission wants it (STY-051)."""
    target = read_reference(delivery.story, namespace)
    assert target is not None
    identity: dict[str, Any] = {"mode": delivery.mode, "submissionId": delivery.submission}
    if delivery.key:
        identity |= {"key": delivery.key, "inputHash": input_hash(delivery.inputs)}
    spec: dict[str, Any] = {"storyRef": dict(delivery.story), "deliveryIdentity": identity}
    if delivery.impulse is not None:
        spec["impulseRef"] = dict(delivery.impulse)
    if delivery.inputs is not None:
        spec["inputs"] = delivery.inputs
    name = trigger_name(target.namespace, target.name, delivery.key or delivery.submission)
    return {
        "apiVersion": RESOURCE_KINDS["StoryTrigger"].api_version,
        "kind": "StoryTrigger",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def asks_the_same(one: Resource, other: Resource) -> bool:
    """Whether two requests of one identity converge: equal Story and inputs decide, not who asks (STY-148)."""
    return _target(one) == _target(other) and input_hash(spec_of(one).get("inputs")) == input_hash(
        spec_of(other).get("inputs")
    )


def identity_of(trigger: Resource) -> tuple[str, str]:
    """Its key, and what its run is named after (STY-147)."""
    identity = spec_of(trigger).get("deliveryIdentity") or {}
    key = str(identity.get("key") or "")
    return key, key or str(identity.get("submissionId") or "")


def compose_run(trigger: Resource) -> Resource:
    """The StoryRun that a StoryTrigger asks for (STY-147, STY-150)."""
    spec, target = spec_of(trigger), _target(trigger)
    assert target is not None
    key, identity = identity_of(trigger)
    notes = {labels.REQUEST_NAME: name_of(trigger), labels.REQUEST_UID: str(metadata_of(trigger).get("uid", ""))}
    if key:
        notes |= {labels.TOKEN: key, labels.INPUT_HASH: input_hash(spec.get("inputs"))}
    asked = {name: spec[name] for name in ("storyRef", "impulseRef", "inputs") if spec.get(name) is not None}
    return {
        "apiVersion": RESOURCE_KINDS["StoryRun"].api_version,
        "kind": "StoryRun",
        "metadata": {
            "name": run_name(target.namespace, target.name, identity),
            "namespace": namespace_of(trigger),
            "annotations": _passed_on(trigger) | notes,
        },
        "spec": asked,
    }


class RunStart(msgspec.Struct, frozen=True):
    """A StoryRun as the engine starts it: the Story is found by `story`."""

    story: Reference
    name: str
    namespace: str
    inputs: Any
    token: str | None
    labels: dict[str, str]
    options: dict[str, Any]


def read_start(run: Resource, *, is_offloaded: bool = False) -> RunStart:
    """What a StoryRun that was found in order asks for."""
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
    marks = {key: str(value) for key, value in (metadata_of(run).get("labels") or {}).items()}
    marks[labels.RUN] = name
    if isinstance(token, str) and token:
        marks[labels.TOKEN] = token
    return RunStart(target, name, namespace, spec.get("inputs"), token or None, marks, options)


def same_start(program: Any, given: bytes, options: Mapping[str, Any]) -> bytes:
    """Two starts under one name agree in Story, pin and logical inputs (STY-146, STY-148); not in who asked."""
    inputs = jsontext.decode(given)
    pin = (options.get("storyRef") or {}).get("version") or ""
    said = input_hash(inputs) if isinstance(inputs, dict | None) else jsontext.canonical(inputs).decode()
    return f"{program.namespace}/{program.name}@{pin}#{said}".encode()


def trigger_tokens(options: Mapping[str, Any]) -> list[str]:
    """Where the run was counted (STY-158): every run for its Story, once for the Impulse it names. A trigger that
    failed has no run, so none shows `impulse-failed`.
    """
    return [STORY_COUNTED, *(IMPULSE_COUNTED if options.get("impulseRef") else ())]


def _target(trigger: Resource) -> Reference | None:
    return read_reference(spec_of(trigger).get("storyRef"), namespace_of(trigger))


def _passed_on(trigger: Resource) -> dict[str, str]:
    """What the author of a request has noted is noted on its run too; what identifies the run is not the author's."""
    own = (labels.TOKEN, labels.INPUT_HASH)
    return {
        name: value for name, value in annotations_of(trigger).items() if isinstance(value, str) and name not in own
    }
