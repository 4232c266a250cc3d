"""From text to resources and every problem they have, each with its place; or from one resource to its problems."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.dialects.story.document import engrams, impulses, runs, story, transports, triggers
from perdure.dialects.story.document.context import CheckContext, ResourceCase
from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, KUBERNETES_ONLY, Cursor, Report
from perdure.dialects.story.document.policies import LABELS
from perdure.dialects.story.document.sameness import same
from perdure.dialects.story.document.shapes import (
    AnyShape,
    FieldsShape,
    IntegerShape,
    KubernetesShape,
    NameShape,
    Shape,
    TextShape,
    shown,
)
from perdure.dialects.story.document.story import too_large
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.resources.kinds import API_VERSIONS, RESOURCE_KINDS
from perdure.dialects.story.resources.resource import (
    DEFAULT_NAMESPACE,
    NO_RESOURCES,
    KnownResources,
    Resource,
    ResourceIndex,
    key_of,
    metadata_of,
    name_of,
    spec_of,
)
from perdure.documents import Document, UnreadableText, read_documents, spell
from perdure.kernel.problems import Problem, Severity, guess

# Which form each kind has, and what else is asked of it: a new kind is one line here.


class ResourceRules(msgspec.Struct, frozen=True):
    spec: Shape
    validate: Callable[[ResourceCase], None] = lambda case: None
    is_run_object: bool = False  # written by programs: judged up to the first problem, and on every update


RULES: dict[str, ResourceRules] = {
    "Story": ResourceRules(story.STORY, story.validate_story),
    "Engram": ResourceRules(engrams.ENGRAM, engrams.validate_engram),
    "EngramTemplate": ResourceRules(engrams.ENGRAM_TEMPLATE, engrams.validate_template),
    "Impulse": ResourceRules(impulses.IMPULSE, impulses.validate_impulse),
    "ImpulseTemplate": ResourceRules(impulses.IMPULSE_TEMPLATE, impulses.validate_impulse_template),
    "Transport": ResourceRules(transports.TRANSPORT, transports.validate_transport),
    "TransportBinding": ResourceRules(transports.BINDING),
    "ReferenceGrant": ResourceRules(transports.GRANT),
    "StoryRun": ResourceRules(runs.STORY_RUN, runs.validate_story_run, is_run_object=True),
    "StepRun": ResourceRules(runs.STEP_RUN, runs.validate_step_run, is_run_object=True),
    "StoryTrigger": ResourceRules(triggers.STORY_TRIGGER, triggers.validate_story_trigger, is_run_object=True),
    "EffectClaim": ResourceRules(triggers.EFFECT_CLAIM, triggers.validate_effect_claim, is_run_object=True),
}

_METADATA = FieldsShape(
    {
        "name": NameShape(253),
        "namespace": NameShape(),
        "labels": LABELS,
        "annotations": LABELS,
        "generateName": TextShape(most=253),
        "uid": TextShape(),
        "generation": IntegerShape(0),
        "creationTimestamp": TextShape(),
        "resourceVersion": TextShape(),
        **dict.fromkeys(
            ("managedFields", "ownerReferences", "finalizers", "deletionTimestamp", "selfLink"),
            KubernetesShape(AnyShape()),
        ),
    }
)


def whole(kind: str) -> FieldsShape:
    """The form of a whole resource (STY-001)."""
    return FieldsShape(
        {
            "apiVersion": AnyShape(),
            "kind": AnyShape(),
            "metadata": _METADATA,
            "spec": RULES[kind].spec,
            "status": AnyShape(),
        },
        required=("metadata", "spec"),
    )


SHOWN = 200  # problems of one text; nobody repairs more at a time


class ValidatedResources(msgspec.Struct, frozen=True):
    """The resources of a text in order, those with problems too, and the problems sorted by place."""

    resources: tuple[Resource, ...]
    problems: tuple[Problem, ...]

    @property
    def has_errors(self) -> bool:
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def validate(
    text: bytes,
    known: KnownResources = NO_RESOURCES,
    settings: Settings = DEFAULTS,
    *,
    stored: KnownResources = NO_RESOURCES,
    namespace: str = DEFAULT_NAMESPACE,
    read: Sequence[Document] | None = None,
) -> ValidatedResources:
    """All resources of a text, each beside the others and what is known; `stored` holds what they would replace.

    `namespace` is that of resources that name none. `read` are the text's documents, where they were read before.
    """
    try:
        documents = read_documents(text) if read is None else read
    except UnreadableText as unreadable:
        return ValidatedResources((), unreadable.problems)
    if not documents:
        return ValidatedResources(
            (), (Problem(INVALID, "there is no resource: the text is empty or all comment", line=1, column=1),)
        )
    shelf = ResourceIndex(beneath=known)
    seen: set[tuple[str, str, str]] = set()
    readable: list[tuple[Document, Resource, Report]] = []
    problems: list[Problem] = []
    for document in documents:
        report = Report(settings)
        resource = _recognized(Cursor(report, document.data), namespace)
        if resource is None:
            problems += _with_namespace(document, report)
            continue
        key = key_of(resource)
        if key in seen and key[2]:
            Cursor(report, document.data).at("metadata", "name").problem(
                INVALID, f"{_called(key)} stands twice in this text"
            )
        seen.add(key)
        shelf.put(resource)
        readable.append((document, resource, report))
    around = CheckContext(shelf, settings)
    for document, resource, report in readable:
        older = stored.find(*key_of(resource)) if name_of(resource) else None
        _validate(Cursor(report, document.data), resource, around, older)
        problems += _with_namespace(document, report)
    problems.sort(key=lambda one: (one.line or 0, one.column or 0))
    return ValidatedResources(tuple(resource for _, resource, _ in readable), tuple(problems[:SHOWN]))


def validate_resource(
    data: Any, known: KnownResources = NO_RESOURCES, settings: Settings = DEFAULTS, stored: Resource | None = None
) -> tuple[Resource | None, list[Problem]]:
    """One resource without a text, `stored` the one it would replace: how it is kept, and its problems."""
    report = Report(settings)
    root = Cursor(report, data)
    resource = _recognized(root)
    if resource is not None:
        _validate(root, resource, CheckContext(ResourceIndex([resource], known), settings), stored)
    return resource, [finding.to_problem() for finding in report.findings]


def tidied(data: Resource) -> Resource:
    """A resource as it is kept: `realtime` is `streaming`, a bare name is a reference, null members are none."""
    kept: Resource = whole(data["kind"]).tidy(data)
    return kept


def _recognized(root: Cursor, namespace: str = DEFAULT_NAMESPACE) -> Resource | None:
    """The resource, if it is of a kind that exists; reports if not (STY-001)."""
    data = root.value
    if not isinstance(data, dict):
        root.problem(INVALID, "a resource must be a JSON object", hint="It begins with apiVersion, kind and metadata.")
        return None
    kind, version = data.get("kind"), data.get("apiVersion")
    found = RESOURCE_KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        if version not in API_VERSIONS:
            _unknown(root, "apiVersion", API_VERSIONS)
        _unknown(root, "kind", tuple(RESOURCE_KINDS))
        return None
    if version != found.api_version:
        _unknown(root, "apiVersion", (found.api_version,))
        return None
    kept = tidied(data)
    if namespace != DEFAULT_NAMESPACE and found.has_namespace and isinstance(kept.get("metadata"), dict):
        kept["metadata"] = {"namespace": namespace, **kept["metadata"]}
    return kept


def _unknown(root: Cursor, word: str, known: Sequence[str]) -> None:
    value = root.value.get(word)
    if value is None:
        root.problem(INVALID, f"{word} is required", hint=f"One of: {', '.join(known)}.")
        return
    near = guess(value, known) if isinstance(value, str) else ""
    root.at(word).problem(INVALID, f"unknown {word} {shown(value)}{near}", hint=f"There are: {', '.join(known)}.")


def _validate(root: Cursor, resource: Resource, around: CheckContext, stored: Resource | None) -> None:
    kind = resource["kind"]
    rules = RULES[kind]
    stored = None if stored is None else tidied(stored)
    if not rules.is_run_object and stored is not None and same(spec_of(stored), spec_of(resource)):
        return  # STY-020
    if kind == "Story" and (problem := too_large(root.value)) is not None:
        root.problem(INVALID, problem)
        return
    whole(kind).validate(root)
    _metadata(root, resource)
    if isinstance(root.value.get("spec"), dict):
        rules.validate(ResourceCase(root, resource, around, stored))
    _ignored(root)
    if rules.is_run_object:
        _keep_first(root.report)


def _metadata(root: Cursor, resource: Resource) -> None:
    metadata = metadata_of(resource)
    if not metadata.get("name") and not metadata.get("generateName"):
        root.at("metadata").problem(INVALID, "metadata.name is required")
    if RESOURCE_KINDS[resource["kind"]].is_global and metadata.get("namespace"):
        at = root.at("metadata", "namespace")
        at.warn(DOUBTFUL, f"a {resource['kind']} belongs to no namespace: this one is ignored")


def _ignored(root: Cursor) -> None:
    """STY-004: one warning, however many fields."""
    paths = root.report.ignored
    if paths:
        named = ", ".join(spell(path) for path in paths)
        at = root.at(*paths[0])
        at.warn(KUBERNETES_ONLY, f"only Kubernetes gives these a meaning, here they are ignored: {named}")


def _keep_first(report: Report) -> None:
    """Run objects stop at the first problem (STY-019)."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    report.findings[:] = [
        finding for finding in report.findings if finding.severity is not Severity.ERROR or finding is errors[0]
    ]


def _with_namespace(document: Document, report: Report) -> list[Problem]:
    return [finding.to_problem(document) for finding in report.findings[:SHOWN]]


def _called(key: tuple[str, str, str]) -> str:
    kind, namespace, name = key
    return f"{kind} '{namespace}/{name}'" if namespace else f"{kind} '{name}'"
