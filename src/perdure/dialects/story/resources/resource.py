"""Resources as plain data: their identity, their references, and an index to find them.

A resource is the `dict` that its author wrote. Nothing is validated here; that is done in `document`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.kernel.documents.resource_kinds import ResourceKind

# Merges objects: members are merged by key, everything else is replaced (STY-010).


def merged(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{name: merged(base[name], value) if name in base else value for name, value in over.items()}}


Resource = dict[str, Any]

DEFAULT_NAMESPACE = "default"


class KnownResources(Protocol):
    """The other resources that are known. Resources of a global kind are in the namespace ""."""

    def find(self, kind: str, namespace: str, name: str) -> Resource | None: ...

    def grants(self, namespace: str) -> Iterable[Resource]:
        """The ReferenceGrants of a namespace."""

    def implements(self, template: str, version: str) -> bool | None:
        """Whether code for an EngramTemplate is available; None if that is not known."""

    def refusal(self, provider: str, namespace: str) -> str | None:
        """Why the operator does not let a namespace use a provider; None if it may."""

    def document_kinds(self) -> Mapping[str, ResourceKind]:
        """By language: the kind of its documents in the catalog; empty if that is not known."""

    def find_document(self, kind: ResourceKind, namespace: str, name: str) -> Resource | None:
        """A document of another language."""


class ResourceIndex:
    """Resources by kind, namespace and name; a resource that is missing here is looked up in `fallback`."""

    def __init__(self, resources: Iterable[Resource] = (), fallback: KnownResources | None = None) -> None:
        self._fallback = fallback
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.put(resource)

    def put(self, resource: Resource) -> None:
        self._resources[key_of(resource)] = resource

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        resource = self._resources.get((kind, "" if RESOURCE_KINDS[kind].is_global else namespace, name))
        if resource is None and self._fallback is not None:
            return self._fallback.find(kind, namespace, name)
        return resource

    def grants(self, namespace: str) -> list[Resource]:
        indexed = {key[2]: grant for key, grant in self._resources.items() if key[:2] == ("ReferenceGrant", namespace)}
        others = self._fallback.grants(namespace) if self._fallback is not None else ()
        return [*(grant for grant in others if name_of(grant) not in indexed), *indexed.values()]

    def implements(self, template: str, version: str) -> bool | None:
        return None if self._fallback is None else self._fallback.implements(template, version)

    def refusal(self, provider: str, namespace: str) -> str | None:
        return None if self._fallback is None else self._fallback.refusal(provider, namespace)

    def document_kinds(self) -> Mapping[str, ResourceKind]:
        return {} if self._fallback is None else self._fallback.document_kinds()

    def find_document(self, kind: ResourceKind, namespace: str, name: str) -> Resource | None:
        return None if self._fallback is None else self._fallback.find_document(kind, namespace, name)


NO_RESOURCES: KnownResources = ResourceIndex()


def key_of(resource: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(resource.get("kind")), namespace_of(resource), name_of(resource)


def metadata_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = resource.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def name_of(resource: Mapping[str, Any]) -> str:
    name = metadata_of(resource).get("name")
    return name if isinstance(name, str) else ""


def is_streaming(story: Mapping[str, Any]) -> bool:
    """Whether a Story is a topology (STR-001)."""
    return spec_of(story).get("pattern") in ("streaming", "realtime")


def namespace_of(resource: Mapping[str, Any]) -> str:
    """The namespace of a resource: `default` if it has none, empty for a global kind (STY-001)."""
    kind = RESOURCE_KINDS.get(str(resource.get("kind")))
    if kind is not None and kind.is_global:
        return ""
    namespace = metadata_of(resource).get("namespace")
    return namespace if isinstance(namespace, str) and namespace else DEFAULT_NAMESPACE


def annotations_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    annotations = metadata_of(resource).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def spec_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = resource.get("spec")
    return spec if isinstance(spec, dict) else {}


def version_of(resource: Mapping[str, Any]) -> str:
    """The version that pins are compared with (STY-253)."""
    version = spec_of(resource).get("version")
    return version.strip() if isinstance(version, str) else ""


class Reference(msgspec.Struct, frozen=True, gc=False):
    """A reference to a resource (STY-002)."""

    name: str
    namespace: str
    version: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def fits(self, target: Mapping[str, Any]) -> bool:
        """Whether the pinned version, if any, is the target's (STY-253)."""
        return not self.version or self.version == version_of(target)

    def means(self, target: Mapping[str, Any]) -> bool:
        """Whether the uid, if any, is the target's (STY-002)."""
        return not self.uid or self.uid == metadata_of(target).get("uid")

    def misfit(self, subject: str, target: Mapping[str, Any]) -> str | None:
        """Why a target with this name is not the referenced one."""
        if not self.fits(target):
            return f"{subject} '{self.key}' has version '{version_of(target)}', expected '{self.version}'"
        if not self.means(target):
            return f"{subject} '{self.key}' is not the one with uid '{self.uid}'"
        return None


def read_reference(value: Any, namespace: str) -> Reference | None:
    """Read a name, or `{name, namespace?, version?, uid?}`; `namespace` is the default. None if there is no name."""
    members = value if isinstance(value, dict) else {"name": value}
    name = members.get("name")
    if not isinstance(name, str) or not (name := name.strip()):
        return None
    if len(members) == 1:
        return Reference(name, namespace)
    own_namespace, version, uid = (
        member.strip() if isinstance(member := members.get(field), str) else ""
        for field in ("namespace", "version", "uid")
    )
    return Reference(name, own_namespace or namespace, version, uid)
