"""The bundle that a run is pinned to: its Story and everything the Story refers to, as of the run's start (STY-255).

    {"story": resource, "engrams": {"ns/name": resource}, "templates": {"name": resource},
     "stories": {"ns/name": resource}, "grants": [resource], "settings": {key: value},
     "transports": {"name": resource},                                only if a streaming Story names some
     "lines": {"ns/name": {step: line}}}                              of Stories whose text was read, or was applied

Missing resources are left out; the run waits for them (STY-118). Sub-Stories are included with everything they
need, so that their runs can be bundled from here. Equal resources on equal lines give equal bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure.dialects.story.document import tidied
from perdure.dialects.story.plan.inline_stories import inline_stories
from perdure.dialects.story.plan.offload_policy import injects
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.plan.step_graph import BLOCKS, branches_of, steps_of
from perdure.dialects.story.resources.resource import (
    KnownResources,
    Reference,
    Resource,
    annotations_of,
    key_of,
    metadata_of,
    namespace_of,
    read_reference,
    spec_of,
)
from perdure.dialects.story.steps import kinds_in
from perdure.kernel.documents.lookups import ORIGIN
from perdure.kernel.documents.resource_kinds import STEP_LINES
from perdure.kernel.json_values import jsontext

KEPT_METADATA = ("name", "namespace", "labels", "annotations", "uid", "generation", ORIGIN)


StepLines = dict[str, dict[str, int]]


def bundle(story: Resource, known: KnownResources, settings: Settings, lines: StepLines | None = None) -> bytes:
    all_lines: StepLines = {}
    contents: dict[str, Any] = {
        "story": _snapshot(story),
        "engrams": {},
        "templates": {},
        "stories": {},
        "grants": [],
        "settings": settings.different(),
    }
    grants: dict[tuple[str, str, str], Resource] = {}
    transports: dict[str, Resource] = {}
    waiting, seen = [story], {key_of(story)}
    while waiting:
        current = waiting.pop(0)
        namespace = namespace_of(current)
        all_lines |= _applied_lines(current)
        helper = settings.materialize_engram if injects(current, settings) or _has_map(current) else ""
        if helper:
            _add_helper(contents, helper, namespace, known)
        for name in transports_of(current):
            if (transport := known.find("Transport", "", name)) is not None:
                transports[name] = _snapshot(transport)
        for kind, target in dict.fromkeys(references(current)):
            if target.namespace != namespace:
                grants.update((key_of(grant), _snapshot(grant)) for grant in known.grants(target.namespace))
            resource = known.find(kind, target.namespace, target.name)
            if resource is None:
                continue
            if kind == "Engram":
                _add_engram(contents, target.key, resource, known)
            elif key_of(resource) not in seen:
                seen.add(key_of(resource))
                contents["stories"][target.key] = _snapshot(resource)
                waiting.append(resource)
    if transports:
        contents["transports"] = transports
    if all_lines := {**all_lines, **(lines or {})}:
        contents["lines"] = all_lines
    contents["grants"] = [grants[key] for key in sorted(grants)]
    return jsontext.canonical(contents)


def _add_helper(contents: dict[str, Any], name: str, namespace: str, known: KnownResources) -> None:
    """The Engram that evaluates templates; without one, the template of its name stands for it."""
    if (engram := known.find("Engram", namespace, name)) is not None:
        _add_engram(contents, f"{namespace}/{name}", engram, known)
    elif (template := known.find("EngramTemplate", "", name)) is not None:
        contents["templates"][name] = _snapshot(template)


def _add_engram(contents: dict[str, Any], key: str, engram: Resource, known: KnownResources) -> None:
    if key not in contents["engrams"]:
        contents["engrams"][key] = _snapshot(engram)
        if (used := template_of(engram, known)) is not None:
            contents["templates"][used[0]] = _snapshot(used[1])


def in_namespace(lines: StepLines, namespace: str) -> StepLines:
    return {f"{namespace}/{story}": steps for story, steps in lines.items()}


def _applied_lines(story: Resource) -> StepLines:
    """Where the steps of a Story from the catalog are in the text that was applied."""
    try:
        lines = msgspec.json.decode(str(annotations_of(story).get(STEP_LINES, "{}")), type=StepLines)
    except msgspec.DecodeError:  # somebody has written it by hand
        return {}
    return in_namespace(lines, namespace_of(story))


def transports_of(story: Resource) -> Iterator[str]:
    """The Transports that a streaming Story names."""
    if spec_of(story).get("pattern") not in ("streaming", "realtime"):
        return
    for entry in spec_of(story).get("transports") or ():
        if isinstance(entry, dict) and isinstance(name := entry.get("transportRef"), str) and name.strip():
            yield name.strip()


def references(story: Resource) -> Iterator[tuple[str, Reference]]:
    """The Engrams and Stories that a Story names, in story order."""
    namespace, spec = namespace_of(story), spec_of(story)
    for block in BLOCKS:
        for step in steps_of(spec.get(block)):
            steps = (step, *branches_of(step))
            for member in steps:
                target = read_reference(member.get("ref"), namespace)
                if target is not None:
                    yield "Engram", target
            for member in steps:
                for story_ref in _story_references(member):
                    target = read_reference(story_ref, namespace)
                    if target is not None and "{{" not in target.key:
                        yield "Story", target
                for inside in inline_stories(member.get("with")).values():
                    yield from references({**story, "spec": inside})


def _story_references(step: Mapping[str, Any]) -> Iterator[Any]:
    """The references to Stories that a step may start, as written."""
    with_block = step.get("with")
    if not isinstance(with_block, dict):
        return
    for kind in kinds_in(step):
        yield from kind.story_references(with_block)


def _has_map(story: Resource) -> bool:
    """Whether a step may run a Story over items, which perhaps only a worker can read."""
    steps = [step for block in BLOCKS for step in steps_of(spec_of(story).get(block))]
    with_blocks = [item.get("with") for step in steps for item in (step, *branches_of(step))]
    return any(isinstance(item, dict) and "map" in item for item in with_blocks)


def template_of(engram: Resource, known: KnownResources) -> tuple[str, Resource] | None:
    """The name of an Engram's template and the template, if it is known."""
    target = read_reference(spec_of(engram).get("templateRef"), "")
    template = None if target is None else known.find("EngramTemplate", "", target.name)
    return None if target is None or template is None else (target.name, template)


def _snapshot(resource: Resource) -> Resource:
    """A resource without what changes on its own: status, timestamps and the store's bookkeeping."""
    tidy = tidied(resource)
    metadata = {name: value for name, value in metadata_of(tidy).items() if name in KEPT_METADATA}
    notes = {name: note for name, note in annotations_of(tidy).items() if name != STEP_LINES}
    if len(notes) < len(annotations_of(tidy)):
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        metadata |= {"annotations": notes} if notes else {}
    return {**{name: tidy[name] for name in ("apiVersion", "kind", "spec") if name in tidy}, "metadata": metadata}


def unpin(bundle_text: bytes) -> tuple[bytes, list[bytes]]:
    """The Story of a bundle, and everything that was bundled with it."""
    contents = jsontext.decode(bundle_text)
    parts = ("engrams", "templates", "stories", "transports")
    resources = [resource for part in parts for resource in contents.get(part, {}).values()]
    return jsontext.canonical(contents["story"]), [
        jsontext.canonical(item) for item in (*resources, *contents["grants"])
    ]
