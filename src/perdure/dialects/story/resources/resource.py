"""Resources as plain data: who they are, whom they name, and where others are found.

A resource is the `dict` its author wrote. Nothing here judges; what is wrong with one is told in `document`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from perdure.dialects.story.resources.kinds import RESOURCE_KINDS

# Objects laid over objects: members merge by key, everything else is replaced (STY-010).


def merged(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{name: merged(base[name], value) if name in base else value for name, value in over.items()}}


Resource = dict[str, Any]

DEFAULT_NAMESPACE = "default"


class KnownResources(Protocol):
    """What else there is. A global kind is looked for in the namespace ""."""

    def find(self, kind: str, namespace: str, name: str) -> Resource | None: ...

    def grants(self, namespace: str) -> Iterable[Resource]:
        """The ReferenceGrants of a namespace."""

    def implements(self, template: str, version: str) -> bool | None:
        """Whether there is something to run for an EngramTemplate; None when nobody can tell."""

    def refusal(self, provider: str, namespace: str) -> str | None:
        """Why the operator does not let a namespace use a provider; None where it may."""


class ResourceIndex:
    """Resources by kind, namespace and name; what is not here is looked for in what lies beneath."""

    def __init__(self, resources: Iterable[Resource] = (), beneath: KnownResources | None = None) -> None:
        self._beneath = beneath
        self._held: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.put(resource)

    def put(self, resource: Resource) -> None:
        self._held[key_of(resource)] = resource

    def find(self, kind: str, namespace: str, name: str) -> Resource | None:
        found = self._held.get((kind, "" if RESOURCE_KINDS[kind].is_global else namespace, name))
        if found is None and self._beneath is not None:
            return self._beneath.find(kind, namespace, name)
        return found

    def grants(self, namespace: str) -> list[Resource]:
        here = {key[2]: one for key, one in self._held.items() if key[:2] == ("ReferenceGrant", namespace)}
        beneath = self._beneath.grants(namespace) if self._beneath is not None else ()
        return [*(one for one in beneath if name_of(one) not in here), *here.values()]

    def implements(self, template: str, version: str) -> bool | None:
        return None if self._beneath is None else self._beneath.implements(template, version)

    def refusal(self, provider: str, namespace: str) -> str | None:
        return None if self._beneath is None else self._beneath.refusal(provider, namespace)


NO_RESOURCES: KnownResources = ResourceIndex()


def key_of(resource: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(resource.get("kind")), namespace_of(resource), name_of(resource)


def metadata_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    found = resource.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(resource: Mapping[str, Any]) -> str:
    found = metadata_of(resource).get("name")
    return found if isinstance(found, str) else ""


def namespace_of(resource: Mapping[str, Any]) -> str:
    """Missing means `default`; a global kind has none (STY-001)."""
    kind = RESOURCE_KINDS.get(str(resource.get("kind")))
    if kind is not None and kind.is_global:
        return ""
    found = metadata_of(resource).get("namespace")
    return found if isinstance(found, str) and found else DEFAULT_NAMESPACE


def annotations_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata_of(resource).get("annotations")
    return found if isinstance(found, dict) else {}


def spec_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    found = resource.get("spec")
    return found if isinstance(found, dict) else {}


def version_of(resource: Mapping[str, Any]) -> str:
    """What pins are compared with (STY-253)."""
    found = spec_of(resource).get("version")
    return found.strip() if isinstance(found, str) else ""


class Reference(msgspec.Struct, frozen=True, gc=False):
    """One resource named by another (STY-002)."""

    name: str
    namespace: str
    version: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def fits(self, target: Mapping[str, Any]) -> bool:
        """Whether the pin, if there is one, is the target's version (STY-253)."""
        return not self.version or self.version == version_of(target)

    def means(self, target: Mapping[str, Any]) -> bool:
        """Whether the uid, if there is one, is the target's (STY-002)."""
        return not self.uid or self.uid == metadata_of(target).get("uid")

    def misfit(self, what: str, target: Mapping[str, Any]) -> str | None:
        """Why the target, though of that name, is not the one that is meant."""
        if not self.fits(target):
            return f"{what} '{self.key}' has version '{version_of(target)}', expected '{self.version}'"
        if not self.means(target):
            return f"{what} '{self.key}' is not the one with uid '{self.uid}'"
        return None


def read_reference(value: Any, namespace: str) -> Reference | None:
    """A name alone, or `{name, namespace?, version?, uid?}`; without namespace that of the referrer. None if none."""
    given = value if isinstance(value, dict) else {"name": value}
    name = given.get("name")
    if not isinstance(name, str) or not (name := name.strip()):
        return None
    if len(given) == 1:
        return Reference(name, namespace)
    place, version, uid = (
        member.strip() if isinstance(member := given.get(word), str) else "" for word in ("namespace", "version", "uid")
    )
    return Reference(name, place or namespace, version, uid)
