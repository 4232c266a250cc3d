"""The door for whoever has a text: what it declares, what is wrong with it, and what of it can be run.

What a text refers to is looked for in the text itself, then beside it and in the catalog, then among what the code
that is loaded brings along.
"""

from collections.abc import Callable, Sequence
from typing import Any

from perdure.dialects.story.document.cursor import INVALID
from perdure.dialects.story.document.validation import tidied, validate
from perdure.dialects.story.plan.bundle import bundle, references, template_of
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import (
    DEFAULT_NAMESPACE,
    Resource,
    ResourceIndex,
    key_of,
    metadata_of,
    name_of,
    namespace_of,
    version_of,
)
from perdure.documents import UnreadableText, read_documents
from perdure.kernel.problems import Problem, guess
from perdure.kernel.validation import DeclaredResource, Validated, ValidationContext

Find = Callable[[str, str, str], Resource | None]
Implements = Callable[[str, str], bool]


Refusal = Callable[[str, str], str | None]


def _no_refusal(provider: str, namespace: str) -> str | None:
    return None


def _nothing(kind: str, namespace: str, name: str) -> Resource | None:
    return None


class ContextResources:
    """The resources known to a check: those of its context, and below them those that loaded code provides."""

    def __init__(
        self, around: ValidationContext, provided: Find, implements: Implements | None, refusal: Refusal = _no_refusal
    ) -> None:
        self._around = around
        self._provided = provided
        self._implements = implements
        self.refusal = refusal

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        place = "" if RESOURCE_KINDS[kind].is_global else namespace
        return self._around.find(kind, place, name) or self._provided(kind, place, name)

    def grants(self, namespace: str) -> list[Resource]:
        return self._around.list_resources("ReferenceGrant", namespace)

    def implements(self, template: str, version: str) -> bool | None:
        return None if self._implements is None else self._implements(template, version)


class StoredResources(ResourceIndex):
    """What requests would replace. Other kinds are judged anew whenever somebody looks at them."""

    def __init__(self, around: ValidationContext) -> None:
        super().__init__()
        self._around = around

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        return self._around.find_in_catalog(kind, namespace, name) if RESOURCE_KINDS[kind].is_request else None


def parse(
    text: bytes,
    around: ValidationContext | None,
    load: Callable[[bytes], Any],
    provided: Find = _nothing,
    implements: Implements | None = None,
    settings: Settings = DEFAULTS,
    refusal: Refusal = _no_refusal,
) -> Validated:
    """Every problem, and if there are no errors the program `load` makes of the bundle of the Story that is meant."""
    around = around or ValidationContext()
    known = ContextResources(around, provided, implements, refusal)
    found = validate(
        text, known, settings, stored=StoredResources(around), namespace=around.namespace, read=around.reading
    )
    problems = list(found.problems)
    stories = [resource for resource in found.resources if resource["kind"] == "Story"]
    story = _chosen(stories, around.chosen)
    if around.chosen and story is None:
        problems.append(_absent(around.chosen, stories))
    if story is None or found.has_errors:
        return Validated(None, problems)
    pinned = bundle(story, ResourceIndex(found.resources, known), settings)
    return Validated(load(pinned), problems, pinned, _identity(story))


def foresee(text: bytes, around: ValidationContext, provided: Find = _nothing) -> None:
    """Look up what `parse` will: Engrams and Stories that the text's Stories name in their own namespace."""
    try:
        around.reading = read_documents(text)
    except UnreadableText:
        return
    documents = [one.data for one in around.reading if isinstance(one.data, dict)]
    resources = [{**one, "metadata": {"namespace": around.namespace, **metadata_of(one)}} for one in documents]
    shelf = ResourceIndex(resources, ContextResources(around, provided, None))
    for story in resources:
        if story.get("kind") == "Story":
            named = {(kind, target.namespace, target.name) for kind, target in references(story)}
            for kind, namespace, name in sorted(named):
                found = shelf.find(kind, namespace, name) if namespace == namespace_of(story) else None
                if found is not None and kind == "Engram":
                    template_of(found, shelf)


def declares(text: bytes, file: str = "") -> list[DeclaredResource]:
    """The resources of a text that can be told apart, right or wrong."""
    try:
        documents = read_documents(text)
    except UnreadableText:
        return []
    found = []
    for document in documents:
        data = document.data
        if (
            isinstance(data, dict)
            and isinstance(data.get("kind"), str)
            and data["kind"] in RESOURCE_KINDS
            and _is_named(data)
        ):
            kind, namespace, name = key_of(data)
            found.append(DeclaredResource(kind, namespace, name, tidied(data), line=document.place_of()[0]))
    return found


def _is_named(data: Resource) -> bool:
    """A StoryRun may leave it to the engine how its name ends."""
    return bool(name_of(data) or (data["kind"] == "StoryRun" and metadata_of(data).get("generateName")))


def _chosen(stories: Sequence[Resource], name: str) -> Resource | None:
    """The Story to run: the one that is named; else the one that no other in the text starts, or the first."""
    if name:
        return next((story for story in stories if name in (name_of(story), _called(story))), None)
    if len(stories) < 2:
        return next(iter(stories), None)
    started = {
        (target.namespace, target.name) for story in stories for kind, target in references(story) if kind == "Story"
    }
    first = [story for story in stories if (namespace_of(story), name_of(story)) not in started]
    return next(iter(first or stories), None)


def _absent(name: str, stories: Sequence[Resource]) -> Problem:
    known = tuple(map(name_of, stories))
    hint = f"There are: {', '.join(known)}." if known else "There is none."
    return Problem(INVALID, f"there is no Story {name!r} in this text{guess(name, known)}", line=1, column=1, hint=hint)


def _called(story: Resource) -> str:
    return f"{namespace_of(story) or DEFAULT_NAMESPACE}/{name_of(story)}"


def _identity(story: Resource) -> bytes:
    """Starts under one token are the same when Story and version are (STY-148, STY-153), whatever they refer to."""
    return f"{_called(story)}@{version_of(story)}".encode()
