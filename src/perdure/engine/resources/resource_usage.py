"""Who uses an entry of the catalog: counted when it is looked at, so that no start has to write it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.resources.lookup_answers import entries, read_document
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import Resource

if TYPE_CHECKING:
    from perdure.engine.client import Client

Place = tuple[str | None, str]

PLACES_KEPT = 10_000
_namespaces: dict[bytes, str | None] = {}  # of documents, by their hash: they never change


async def with_usage(client: "Client", kind: ResourceKind, resources: Sequence[Resource]) -> list[Resource]:
    language = client.languages[client.catalog.language_of(kind).name]
    kinds = language.users(kind.name)
    if not kinds or not resources:
        return list(resources)
    users = [await read_document(row) for kind_name in kinds async for row in entries(client.store, kind_name)]
    names = {str(resource["metadata"]["name"]) for resource in resources}
    runs = await _runs(client, language.name, names.pop() if len(names) == 1 else None)
    return [language.with_usage(item, users, runs[_place(item)]) for item in resources]


async def _runs(client: "Client", language: str, name: str | None) -> Counter[Place]:
    """How many runs there are of each document, by its namespace and name."""
    counts: Counter[Place] = Counter()
    for program, called, count in await client.store.count_programs(language, name):
        counts[await _namespace_of(client, client.languages[language], program), called] += count
    return counts


async def _namespace_of(client: "Client", language: Dialect, program: bytes) -> str | None:
    if program not in _namespaces:
        pinned = await client.store.program(program)
        if pinned is None:
            return None
        text = pinned[1]
        loaded = await done_aside(WORK_OF_TEXT * len(text), lambda: language.load(text))
        if len(_namespaces) == PLACES_KEPT:
            _namespaces.clear()
        _namespaces[program] = getattr(loaded, "namespace", None)
    return _namespaces[program]


def _place(resource: Resource) -> Place:
    metadata = resource["metadata"]
    return metadata.get("namespace"), str(metadata["name"])
