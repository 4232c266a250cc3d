"""May a resource name one of another namespace? (STY-250, STY-251)"""

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
    """Why a `referrer` (a kind) in `namespace` may not name `target`, a `kind`; None when it may."""
    if target.namespace == namespace or settings.cross_namespace == "allow":
        return None
    label = label or f"{kind}Ref"
    if settings.cross_namespace == "deny":
        return f"cross-namespace {label} references are not allowed"
    if any(grants(one, referrer, namespace, kind, target.name) for one in known.grants(target.namespace)):
        return None
    return f"cross-namespace {label} reference to {target.key} is not permitted (no ReferenceGrant)"


def grants(grant: Mapping[str, Any], referrer: str, namespace: str, kind: str, name: str) -> bool:
    """Whether a grant lets a referrer of one namespace name a resource beside the grant."""
    spec = spec_of(grant)
    return any(
        (one.get("group"), one.get("kind"), one.get("namespace"))
        == (RESOURCE_KINDS[referrer].group, referrer, namespace)
        for one in _entries(spec.get("from"))
    ) and any(
        (one.get("group"), one.get("kind")) == (RESOURCE_KINDS[kind].group, kind) and (one.get("name") or name) == name
        for one in _entries(spec.get("to"))
    )


def _entries(value: Any) -> Iterable[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else ()
