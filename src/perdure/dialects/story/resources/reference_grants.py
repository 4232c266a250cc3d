"""Whether a resource may name one in another namespace (STY-250, STY-251)."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import KnownResources, Reference, spec_of


def refuse(
    referrer: str,
    namespace: str,
    kind: str,
    target: Reference,
    known: KnownResources,
    settings: Settings,
    label: str = "",
) -> str | None:
    """Why a resource of kind `referrer` in `namespace` must not name `target` of kind `kind`; None if it may."""
    if target.namespace == namespace or settings.cross_namespace == "allow":
        return None
    label = label or f"{kind}Ref"
    if settings.cross_namespace == "deny":
        return f"cross-namespace {label} references are not allowed"
    if any(grants(grant, referrer, namespace, kind, target.name) for grant in known.grants(target.namespace)):
        return None
    return f"cross-namespace {label} reference to {target.key} is not permitted (no ReferenceGrant)"


def grants(grant: Mapping[str, Any], referrer: str, namespace: str, kind: str, name: str) -> bool:
    """Whether a grant allows a referrer of another namespace to name a resource in the grant's namespace."""
    spec = spec_of(grant)
    return any(
        (entry.get("group"), entry.get("kind"), entry.get("namespace"))
        == (RESOURCE_KINDS[referrer].group, referrer, namespace)
        for entry in _entries(spec.get("from"))
    ) and any(
        (entry.get("group"), entry.get("kind")) == (RESOURCE_KINDS[kind].group, kind)
        and (entry.get("name") or name) == name
        for entry in _entries(spec.get("to"))
    )


def _entries(value: Any) -> Iterable[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else ()
