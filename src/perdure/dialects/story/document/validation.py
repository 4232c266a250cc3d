"""Validation of resources, in a text or one by one; every problem is reported with its position."""

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
from perdure.kernel.documents.problems import Problem, Severity, guess

# The shape of each kind and its further checks: a new kind is one line here.


class ResourceRules(msgspec.Struct, frozen=True):
    spec: Shape
    validate: Callable[[ResourceCase], None] = lambda case: None
    is_run_object: bool = False  # written by programs: validated on every update, up to the first problem


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

METADATA = FieldsShape(
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


def resource_shape(kind: str) -> FieldsShape:
    """The shape of a complete resource (STY-001)."""
    return FieldsShape(
        {
            "apiVersion": AnyShape(),
            "kind": AnyShape(),
            "metadata": METADATA,
            "spec": RULES[kind].spec,
            "status": AnyShape(),
        },
        required=("metadata", "spec"),
    )


SHOWN = 200  # problems reported for one text


class ValidatedResources(msgspec.Struct, frozen=True):
    """The resources of a text in order, including invalid ones, and the problems sorted by position."""

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
    parsed: Sequence[Document] | None = None,
) -> ValidatedResources:
    """Validate all resources of a text against each other and the known ones; `stored` holds what they would replace.

    `namespace` applies to resources without one. `parsed` are the text's documents, if they were parsed before.
    """
    try:
        documents = read_resources(text) if parsed is None else parsed
    except UnreadableText as unreadable:
        return ValidatedResources((), unreadable.problems)
    if not documents:
        return ValidatedResources((), (Problem(INVALID, "the text contains no resource", line=1, column=1),))
    index = ResourceIndex(fallback=known)
    is_mixed = any(isinstance(document.data, dict) and _is_ours(document.data) for document in documents)
    seen: set[tuple[str, str, str]] = set()
    readable: list[tuple[Document, Resource, Report]] = []
    problems: list[Problem] = []
    for document in documents:
        report = Report(settings)
        root = Cursor(report, document.data)
        if is_mixed and _is_foreign(document.data):
            kind = shown(document.data["kind"])
            root.at("kind").warn(DOUBTFUL, f"the kind {kind} belongs to another API: this resource is passed over")
            problems += _with_namespace(document, report)
            continue
        resource = _recognized(root, namespace)
        if resource is None:
            problems += _with_namespace(document, report)
            continue
        key = key_of(resource)
        if key in seen and key[2]:
            root.at("metadata", "name").problem(INVALID, f"{_describe_key(key)} is defined twice in this text")
        seen.add(key)
        index.put(resource)
        readable.append((document, resource, report))
    context = CheckContext(index, settings)
    for document, resource, report in readable:
        older = stored.find(*key_of(resource)) if name_of(resource) else None
        _validate(Cursor(report, document.data), resource, context, older)
        problems += _with_namespace(document, report)
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
    return ValidatedResources(tuple(resource for _, resource, _ in readable), tuple(problems[:SHOWN]))


def read_resources(text: bytes) -> list[Document]:
    """The resources of a text; of a List, as `get -o yaml` prints one, those in it. Raises `UnreadableText`."""
    return [item for document in read_documents(text) for item in _items(document)]


def _items(document: Document) -> list[Document]:
    data = document.data
    kind, items = (data.get("kind"), data.get("items")) if isinstance(data, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(items, list) or not kind.endswith("List"):
        return [document]
    is_list = kind == "List" or kind.removesuffix("List") in RESOURCE_KINDS
    return [document.part("items", index) for index in range(len(items))] if is_list else [document]


def _is_ours(data: Resource) -> bool:
    kind = data.get("kind")
    return isinstance(kind, str) and kind in RESOURCE_KINDS and data.get("apiVersion") in API_VERSIONS


def _is_foreign(data: Any) -> bool:
    """Whether it is of another API: a file for a cluster may have a Namespace or a Role beside its Stories."""
    kind, version = (data.get("kind"), data.get("apiVersion")) if isinstance(data, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(version, str) or kind in RESOURCE_KINDS:
        return False
    return "bubustack.io" not in version.partition("/")[0]


def validate_resource(
    data: Any, known: KnownResources = NO_RESOURCES, settings: Settings = DEFAULTS, stored: Resource | None = None
) -> tuple[Resource | None, list[Problem]]:
    """Validate one resource that does not come from a text: its normalized form and its problems."""
    report = Report(settings)
    root = Cursor(report, data)
    resource = _recognized(root)
    if resource is not None:
        _validate(root, resource, CheckContext(ResourceIndex([resource], known), settings), stored)
    return resource, [finding.to_problem() for finding in report.findings]


def tidied(data: Resource) -> Resource:
    """A resource in normal form: `realtime` becomes `streaming`, a bare name a reference; null members are dropped."""
    tidy: Resource = resource_shape(data["kind"]).tidy(data)
    return tidy


def _recognized(root: Cursor, namespace: str = DEFAULT_NAMESPACE) -> Resource | None:
    """The normalized resource if its kind exists; reports a problem otherwise (STY-001)."""
    data = root.value
    if not isinstance(data, dict):
        root.problem(INVALID, "a resource must be a JSON object", hint="It begins with apiVersion, kind and metadata.")
        return None
    kind, version = data.get("kind"), data.get("apiVersion")
    resource_kind = RESOURCE_KINDS.get(kind) if isinstance(kind, str) else None
    if resource_kind is None:
        if version not in API_VERSIONS:
            _unknown(root, "apiVersion", API_VERSIONS)
        _unknown(root, "kind", tuple(RESOURCE_KINDS))
        return None
    if version != resource_kind.api_version:
        _unknown(root, "apiVersion", (resource_kind.api_version,))
        return None
    resource = tidied(data)
    if namespace != DEFAULT_NAMESPACE and resource_kind.has_namespace and isinstance(resource.get("metadata"), dict):
        resource["metadata"] = {"namespace": namespace, **resource["metadata"]}
    return resource


def _unknown(root: Cursor, field: str, allowed: Sequence[str]) -> None:
    value = root.value.get(field)
    if value is None:
        root.problem(INVALID, f"{field} is required", hint=f"Expected one of: {', '.join(allowed)}.")
        return
    near = guess(value, allowed) if isinstance(value, str) else ""
    root.at(field).problem(
        INVALID, f"unknown {field} {shown(value)}{near}", hint=f"Expected one of: {', '.join(allowed)}."
    )


def _validate(root: Cursor, resource: Resource, context: CheckContext, stored: Resource | None) -> None:
    kind = resource["kind"]
    rules = RULES[kind]
    stored = None if stored is None else tidied(stored)
    if not rules.is_run_object and stored is not None and same(spec_of(stored), spec_of(resource)):
        return  # STY-020
    if kind == "Story" and (problem := too_large(root.value)) is not None:
        root.problem(INVALID, problem)
        return
    resource_shape(kind).validate(root)
    _metadata(root, resource)
    if isinstance(root.value.get("spec"), dict):
        rules.validate(ResourceCase(root, resource, context, stored))
    _ignored(root)
    if rules.is_run_object:
        _keep_first(root.report)


def _metadata(root: Cursor, resource: Resource) -> None:
    metadata = metadata_of(resource)
    if not metadata.get("name") and not metadata.get("generateName"):
        root.at("metadata").problem(INVALID, "metadata.name is required")
    if RESOURCE_KINDS[resource["kind"]].is_global and metadata.get("namespace"):
        namespace = root.at("metadata", "namespace")
        namespace.warn(DOUBTFUL, f"a {resource['kind']} has no namespace: this one is ignored")


def _ignored(root: Cursor) -> None:
    """Warn once about all fields that only Kubernetes uses (STY-004)."""
    paths = root.report.ignored
    if paths:
        names = ", ".join(spell(path) for path in paths)
        first_field = root.at(*paths[0])
        first_field.warn(KUBERNETES_ONLY, f"these fields only apply to Kubernetes and are ignored: {names}")


def _keep_first(report: Report) -> None:
    """Drop all errors but the first: run objects report only one (STY-019)."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    report.findings[:] = [
        finding for finding in report.findings if finding.severity is not Severity.ERROR or finding is errors[0]
    ]


def _with_namespace(document: Document, report: Report) -> list[Problem]:
    return [finding.to_problem(document) for finding in report.findings[:SHOWN]]


def _describe_key(key: tuple[str, str, str]) -> str:
    kind, namespace, name = key
    return f"{kind} '{namespace}/{name}'" if namespace else f"{kind} '{name}'"
