"""Names of resources as people give them: `KIND`, `KIND NAME…`, `KIND/NAME…`, `KIND,KIND`."""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.engine.resources.catalog import Catalog
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.views.errors import BadRequest


@dataclass(frozen=True, slots=True)
class ResourceName:
    kind: ResourceKind
    name: str | None  # None: all resources of the kind


def resource_names(catalog: Catalog, words: Sequence[str]) -> list[ResourceName]:
    first, *rest = words
    if "/" in first:
        pairs = [word.partition("/") for word in words]
        malformed = next((word for word, (_, _, name) in zip(words, pairs, strict=True) if not name), None)
        if malformed is not None:
            raise BadRequest(f"{malformed!r} is not of the form KIND/NAME, as the first one is")
        return [ResourceName(catalog.kind(kind), name) for kind, _, name in pairs]
    kinds = [catalog.kind(word) for word in first.split(",")]
    if rest and len(kinds) > 1:
        raise BadRequest("names need exactly one kind; use KIND/NAME for resources of several kinds")
    return [ResourceName(kinds[0], name) for name in rest] if rest else [ResourceName(kind, None) for kind in kinds]


def full_resource_names(catalog: Catalog, words: Sequence[str]) -> list[ResourceName]:
    """The same, where each resource must be named."""
    names = resource_names(catalog, words)
    if any(resource.name is None for resource in names):
        raise BadRequest("a name is required: KIND NAME or KIND/NAME")
    return names
