"""How resources are named on the command line: `KIND`, `KIND NAME…`, `KIND/NAME…`, `KIND,KIND`."""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.cli.errors import BadUsage
from perdure.engine.catalog import Catalog
from perdure.kernel.resource_kinds import ResourceKind


@dataclass(frozen=True, slots=True)
class Wanted:
    kind: ResourceKind
    name: str | None  # None: all of them


def wanted(catalog: Catalog, words: Sequence[str]) -> list[Wanted]:
    first, *rest = words
    if "/" in first:
        split = [word.partition("/") for word in words]
        bad = next((word for word, (_, _, name) in zip(words, split, strict=True) if not name), None)
        if bad is not None:
            raise BadUsage(f"{bad!r} is not of the form KIND/NAME, as the first one is")
        return [Wanted(catalog.kind(kind), name) for kind, _, name in split]
    kinds = [catalog.kind(word) for word in first.split(",")]
    if rest and len(kinds) > 1:
        raise BadUsage("names need one kind; say KIND/NAME for several")
    return [Wanted(kinds[0], name) for name in rest] if rest else [Wanted(kind, None) for kind in kinds]


def named(catalog: Catalog, words: Sequence[str]) -> list[Wanted]:
    """The same where all of a kind cannot be meant."""
    found = wanted(catalog, words)
    if any(one.name is None for one in found):
        raise BadUsage("say which: KIND NAME or KIND/NAME")
    return found
