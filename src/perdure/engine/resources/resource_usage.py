"""Who uses an entry of the catalog: counted when it is looked at, so that no start has to write it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.resources.lookup_answers import entries, read_document
from perdure.engine.resources.resource_views import all_runs
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import Resource
from perdure.stores.protocol import RunFilter

if TYPE_CHECKING:
    from perdure.engine.client import Client

Place = tuple[str | None, str]


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
    places: dict[bytes, str | None] = {}
    async for row in all_runs(client, RunFilter(language=language)):  # by name each page would sort all of that name
        if name not in (None, row.name):
            continue
        if row.program not in places:
            pinned = await client.store.program(row.program)
            loaded = None if pinned is None else await _load(client.languages[language], pinned[1])
            places[row.program] = getattr(loaded, "namespace", None)
        counts[places[row.program], row.name] += 1
    return counts


async def _load(language: Dialect, text: bytes) -> Any:
    return await done_aside(WORK_OF_TEXT * len(text), lambda: language.load(text))


def _place(resource: Resource) -> Place:
    metadata = resource["metadata"]
    return metadata.get("namespace"), str(metadata["name"])
