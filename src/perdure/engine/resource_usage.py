"""Who uses an entry of the catalog: counted when it is looked at, so that no start has to write it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.engine.lookup_answers import document
from perdure.kernel.resource_kinds import ResourceKind
from perdure.kernel.validation import Resource
from perdure.stores.protocol import RunFilter

if TYPE_CHECKING:
    from perdure.engine.client import Client

Place = tuple[str | None, str]


async def with_usage(client: "Client", kind: ResourceKind, resources: Sequence[Resource]) -> list[Resource]:
    language = client.languages[client.catalog.language_of(kind).name]
    kinds = language.users(kind.name)
    if not kinds or not resources:
        return list(resources)
    users = [document(row) for kind_name in kinds for row in await client.store.list_resources(kind_name)]
    names = {str(resource["metadata"]["name"]) for resource in resources}
    runs = await _runs(client, language.name, names.pop() if len(names) == 1 else None)
    return [language.with_usage(item, users, runs[_place(item)]) for item in resources]


async def _runs(client: "Client", language: str, name: str | None) -> Counter[Place]:
    """How many runs there are of each document, by its namespace and name."""
    rows = await client.search(RunFilter(language=language, name=name))
    places: dict[bytes, str | None] = {}
    for row in rows:
        if row.program not in places:
            pinned = await client.store.program(row.program)
            loaded = None if pinned is None else client.languages[language].load(pinned[1])
            places[row.program] = getattr(loaded, "namespace", None)
    return Counter((places[row.program], row.name) for row in rows)


def _place(resource: Resource) -> Place:
    metadata = resource["metadata"]
    return metadata.get("namespace"), str(metadata["name"])
