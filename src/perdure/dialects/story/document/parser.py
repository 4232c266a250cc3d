"""Parsing and validating the text of resources.

References are looked up in the text itself, then in the validation context (files beside it and the catalog), then
in the resources that loaded code provides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perdure.dialects.story.document.cursor import INVALID
from perdure.dialects.story.document.validation import read_resources, tidied, validate
from perdure.dialects.story.plan import step_graph
from perdure.dialects.story.plan.bundle import StepLines, bundle, in_namespace, references, template_of
from perdure.dialects.story.plan.inline_stories import inline_stories
from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.plan.step_graph import BLOCKS, branches_of, steps_of
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import (
    DEFAULT_NAMESPACE,
    Resource,
    ResourceIndex,
    key_of,
    metadata_of,
    name_of,
    namespace_of,
    spec_of,
    version_of,
)
from perdure.dialects.story.steps import branches_member
from perdure.documents import Document, Path, UnreadableText
from perdure.documents.paths import spell
from perdure.kernel.documents.problems import Problem, guess
from perdure.kernel.documents.resource_kinds import STEP_LINES, ResourceKind
from perdure.kernel.documents.validation import DeclaredResource, Validated, ValidationContext
from perdure.kernel.json_values import jsontext

Find = Callable[[str, str, str], Resource | None]
Implements = Callable[[str, str], bool]
Refusal = Callable[[str, str], str | None]
DocumentKinds = Callable[[], Mapping[str, ResourceKind]]


def _no_refusal(provider: str, namespace: str) -> str | None:
    return None


def _nothing(kind: str, namespace: str, name: str) -> Resource | None:
    return None


class ContextResources:
    """The resources known to a check: those of its validation context, then those that loaded code provides."""

    def __init__(
        self,
        around: ValidationContext,
        provided: Find,
        implements: Implements | None,
        refusal: Refusal = _no_refusal,
        document_kinds: DocumentKinds = dict,
    ) -> None:
        self._around = around
        self._provided = provided
        self._implements = implements
        self.refusal = refusal
        self.document_kinds = document_kinds

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        place = "" if RESOURCE_KINDS[kind].is_global else namespace
        return self._around.find(kind, place, name) or self._provided(kind, place, name)

    def grants(self, namespace: str) -> list[Resource]:
        return self._around.list_resources("ReferenceGrant", namespace)

    def implements(self, template: str, version: str) -> bool | None:
        return None if self._implements is None else self._implements(template, version)

    def find_document(self, kind: ResourceKind, namespace: str, name: str) -> Resource | None:
        return self._around.find(kind.name, namespace if kind.has_namespace else "", name)


class StoredResources(ResourceIndex):
    """The stored version of requests. Resources of other kinds are validated without it."""

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
    document_kinds: DocumentKinds = dict,
) -> Validated:
    """Validate a text. If it has no errors, the result contains the program that `load` makes of the chosen Story's
    bundle.
    """
    around = around or ValidationContext()
    known = ContextResources(around, provided, implements, refusal, document_kinds)
    validated = validate(
        text, known, settings, stored=StoredResources(around), namespace=around.namespace, parsed=around.reading
    )
    problems = list(validated.problems)
    stories = [resource for resource in validated.resources if resource["kind"] == "Story"]
    story = _chosen(stories, around.chosen)
    if around.chosen and story is None:
        problems.append(_absent(around.chosen, stories))
    if story is None or validated.has_errors:
        return Validated(None, problems)
    lines = _lines(around.reading or read_resources(text), around.namespace) if b"\n" in text.strip() else None
    pinned = bundle(story, ResourceIndex(validated.resources, known), settings, lines)
    return Validated(load(pinned), problems, pinned, _identity(story))


def _lines(documents: Sequence[Document], namespace: str) -> StepLines:
    """The line of every step, by Story and name: a run that fails says where."""
    lines: StepLines = {}
    for document in documents:
        story = document.data
        if isinstance(story, dict) and story.get("kind") == "Story":
            lines |= in_namespace(_lines_of(document), metadata_of(story).get("namespace") or namespace)
    return lines


def _lines_of(document: Document) -> StepLines:
    """Of one Story and those inside it, by their names."""
    lines: StepLines = {}
    _add_lines(lines, name_of(document.data), document, spec_of(document.data), ("spec",))
    return lines


def _add_lines(lines: StepLines, story: str, document: Document, spec: Mapping[str, Any], path: Path) -> None:
    own = lines.setdefault(story, {})
    for block in BLOCKS:
        for index, step in enumerate(steps_of(spec.get(block))):
            here = (*path, block, index)
            name = step_graph.name_of(step)
            if name is None:
                continue
            own[name] = document.place_of(here)[0]
            for stage, inside in inline_stories(step.get("with")).items():
                _add_lines(lines, compose("mapreduce", name), document, inside, (*here, "with", stage, "story"))
            for position, branch in enumerate(branches_of(step)):
                if (branch_name := step_graph.name_of(branch)) is not None:
                    own[branch_name] = document.place_of((*here, "with", branches_member(step), position))[0]


def foresee(text: bytes, context: ValidationContext, provided: Find = _nothing) -> None:
    """Look up in advance what `parse` will need: Engrams and Stories in the same namespace that the text's Stories
    name.
    """
    try:
        context.reading = read_resources(text)
    except UnreadableText:
        return
    documents = [document.data for document in context.reading if isinstance(document.data, dict)]
    resources = [
        {**document, "metadata": {"namespace": context.namespace, **metadata_of(document)}} for document in documents
    ]
    index = ResourceIndex(resources, ContextResources(context, provided, None))
    for story in resources:
        if story.get("kind") == "Story":
            targets = {(kind, target.namespace, target.name) for kind, target in references(story)}
            for kind, namespace, name in sorted(targets):
                resource = index.find(kind, namespace, name) if namespace == namespace_of(story) else None
                if resource is not None and kind == "Engram":
                    template_of(resource, index)


def declares(text: bytes, file: str = "") -> list[DeclaredResource]:
    """The resources that a text declares with kind and name, valid or not."""
    try:
        documents = read_resources(text)
    except UnreadableText:
        return []
    declared = []
    for document in documents:
        data = document.data
        if (
            isinstance(data, dict)
            and isinstance(data.get("kind"), str)
            and data["kind"] in RESOURCE_KINDS
            and _is_named(data)
        ):
            kind, namespace, name = key_of(data)
            body = tidied(data)
            if kind == "Story" and b"\n" in text.strip():
                body = _with_lines(body, _lines_of(document))
            declared.append(DeclaredResource(kind, namespace, name, body, line=document.place_of()[0]))
    return declared


def _with_lines(story: Resource, lines: StepLines) -> Resource:
    """The catalog keeps a Story as data: where its steps were written goes with it."""
    metadata = metadata_of(story)
    notes = metadata.get("annotations", {})
    if not isinstance(notes, dict):
        return story  # which is refused
    written = jsontext.canonical(lines).decode()
    return {**story, "metadata": {**metadata, "annotations": {**notes, STEP_LINES: written}}}


def _is_named(data: Resource) -> bool:
    """Whether a resource has a name; for a StoryRun, generateName is enough."""
    return bool(name_of(data) or (data["kind"] == "StoryRun" and metadata_of(data).get("generateName")))


def _chosen(stories: Sequence[Resource], name: str) -> Resource | None:
    """The Story to run: the named one; otherwise one that no other Story of the text starts, or the first."""
    if name:
        return next((story for story in stories if name in (name_of(story), _full_name(story))), None)
    if len(stories) < 2:
        return next(iter(stories), None)
    started = {
        (target.namespace, target.name) for story in stories for kind, target in references(story) if kind == "Story"
    }
    first = [story for story in stories if (namespace_of(story), name_of(story)) not in started]
    return next(iter(first or stories), None)


def _absent(name: str, stories: Sequence[Resource]) -> Problem:
    names = tuple(map(name_of, stories))
    hint = f"Its Stories: {', '.join(names)}." if names else "It has no Stories."
    return Problem(INVALID, f"there is no Story {name!r} in this text{guess(name, names)}", line=1, column=1, hint=hint)


def _full_name(story: Resource) -> str:
    return f"{namespace_of(story) or DEFAULT_NAMESPACE}/{name_of(story)}"


def _identity(story: Resource) -> bytes:
    """What makes two starts under one token the same: Story and version, regardless of what they refer to (STY-148,
    STY-153).
    """
    return f"{_full_name(story)}@{version_of(story)}".encode()


def find_places(text: bytes, program: Program, places: Sequence[Path]) -> Iterator[tuple[str, int | None]]:
    """The path of each part as people write it, and its line in the Story of the program."""
    stories = (document for document in read_resources(text) if _is_story(document.data, program.name))
    story = next(stories, None)
    return ((spell(place), None if story is None else story.place_of(place)[0]) for place in places)


def _is_story(data: Any, name: str) -> bool:
    metadata = data.get("metadata") if isinstance(data, dict) and data.get("kind") == "Story" else None
    return isinstance(metadata, dict) and metadata.get("name") == name
