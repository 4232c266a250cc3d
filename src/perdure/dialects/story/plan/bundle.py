"""The text a run is pinned to: its Story and everything the Story refers to, as it was when the run began (STY-255).

    {"story": resource, "engrams": {"ns/name": resource}, "templates": {"name": resource},
     "stories": {"ns/name": resource}, "grants": [resource], "settings": {key: value}}

What is missing is absent; the run waits for it (STY-118). Sub-Stories come with all they need in turn, so that a run
of one can be bundled from here. Equal resources give equal bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.story.document import tidied
from perdure.dialects.story.plan.inline_stories import inline_stories
from perdure.dialects.story.plan.offload_policy import injects
from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.plan.step_graph import BLOCKS, branches_of, steps_of
from perdure.dialects.story.resources.resource import (
    KnownResources,
    Reference,
    Resource,
    ResourceIndex,
    key_of,
    metadata_of,
    namespace_of,
    read_reference,
    spec_of,
)
from perdure.dialects.story.steps import kinds_in
from perdure.kernel import jsontext

KEPT_METADATA = ("name", "namespace", "labels", "annotations", "uid", "generation")


def bundle(story: Resource, known: KnownResources, settings: Settings) -> bytes:
    found: dict[str, Any] = {
        "story": _snapshot(story),
        "engrams": {},
        "templates": {},
        "stories": {},
        "grants": [],
        "settings": settings.different(),
    }
    grants: dict[tuple[str, str, str], Resource] = {}
    waiting, seen = [story], {key_of(story)}
    while waiting:
        one = waiting.pop(0)
        namespace = namespace_of(one)
        helper = settings.materialize_engram if injects(one, settings) or _has_map(one) else ""
        if helper and (template := known.find("EngramTemplate", "", helper)) is not None:
            found["templates"][helper] = _snapshot(template)
        for kind, target in dict.fromkeys(references(one)):
            if target.namespace != namespace:
                grants.update((key_of(grant), _snapshot(grant)) for grant in known.grants(target.namespace))
            resource = known.find(kind, target.namespace, target.name)
            if resource is None:
                continue
            if kind == "Engram":
                if target.key not in found["engrams"]:
                    found["engrams"][target.key] = _snapshot(resource)
                    if (used := template_of(resource, known)) is not None:
                        found["templates"][used[0]] = _snapshot(used[1])
            elif key_of(resource) not in seen:
                seen.add(key_of(resource))
                found["stories"][target.key] = _snapshot(resource)
                waiting.append(resource)
    found["grants"] = [grants[key] for key in sorted(grants)]
    return jsontext.canonical(found)


def open_bundle(held: Mapping[str, Any]) -> ResourceIndex:
    """What a bundle holds, its Story included, to be found again by kind and name."""
    shelf = ResourceIndex([held["story"], *held["grants"]])
    for part in ("engrams", "templates", "stories"):
        for resource in held[part].values():
            shelf.put(resource)
    return shelf


def references(story: Resource) -> Iterator[tuple[str, Reference]]:
    """The Engrams and Stories that a Story names, in story order."""
    namespace, spec = namespace_of(story), spec_of(story)
    for block in BLOCKS:
        for step in steps_of(spec.get(block)):
            steps = (step, *branches_of(step))
            for one in steps:
                target = read_reference(one.get("ref"), namespace)
                if target is not None:
                    yield "Engram", target
            for one in steps:
                for given in _story_references(one):
                    target = read_reference(given, namespace)
                    if target is not None and "{{" not in target.key:
                        yield "Story", target
                for inside in inline_stories(one.get("with")).values():
                    yield from references({**story, "spec": inside})


def _story_references(step: Mapping[str, Any]) -> Iterator[Any]:
    """The Stories that a step may start, as written."""
    given = step.get("with")
    if not isinstance(given, dict):
        return
    for kind in kinds_in(step):
        yield from kind.story_references(given)


def _has_map(story: Resource) -> bool:
    """Whether a step may run a Story over items, which perhaps only a worker can read."""
    steps = [step for block in BLOCKS for step in steps_of(spec_of(story).get(block))]
    given = [one.get("with") for step in steps for one in (step, *branches_of(step))]
    return any(isinstance(one, dict) and "map" in one for one in given)


def template_of(engram: Resource, known: KnownResources) -> tuple[str, Resource] | None:
    """The name of an Engram's template, and the template, if it is known."""
    target = read_reference(spec_of(engram).get("templateRef"), "")
    template = None if target is None else known.find("EngramTemplate", "", target.name)
    return None if target is None or template is None else (target.name, template)


def _snapshot(resource: Resource) -> Resource:
    """Without what changes while nothing changes: status, timestamps, marks of whoever stored it."""
    kept = tidied(resource)
    metadata = {name: value for name, value in metadata_of(kept).items() if name in KEPT_METADATA}
    return {**{name: kept[name] for name in ("apiVersion", "kind", "spec") if name in kept}, "metadata": metadata}
