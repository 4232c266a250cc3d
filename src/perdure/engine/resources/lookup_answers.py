"""What decisions and validation ask for: entries of the catalog as documents, what runs remember, large values."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import UTC, datetime

from perdure.engine.decision_threads import ShortTurns, done_aside
from perdure.engine.slot import Slot
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import (
    FROM_API,
    ORIGIN,
    CacheLookup,
    Lookup,
    LookupAnswers,
    PermitQueueLookup,
    QueuedTaskLookup,
    ResourceKey,
    ResourcesInNamespace,
    StrandedRunLookup,
)
from perdure.kernel.documents.validation import Resource
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.stores.protocol import Labels, ResourceRow, SizedKey, Store

KEYS_AT_ONCE = 50  # entries that are read together
BYTES_AT_ONCE = 1 << 20


async def answer(store: Store, lookups: Sequence[Lookup], dialects: Iterable[Dialect] = ()) -> LookupAnswers:
    """From the store; what the catalog does not have may be one of the dialects' own."""
    keys = [resource_key for resource_key in lookups if isinstance(resource_key, ResourceKey)]
    resources = {row.key: await _used_document(row) async for row in _rows(store, [(key, 0) for key in keys])}
    turns = ShortTurns()
    memories = await store.memories([lookup.key for lookup in lookups if isinstance(lookup, CacheLookup)])
    answers: LookupAnswers = {}
    for lookup in lookups:
        await turns.pause()
        match lookup:
            case ResourceKey():
                answers[lookup] = resources[lookup] if lookup in resources else _provided(dialects, lookup)
            case CacheLookup(key):
                answers[lookup] = memories.get(key)
            case QueuedTaskLookup(run, task):
                answers[lookup] = await store.is_offered(run, task)
            case StrandedRunLookup(parent, run):
                answers[lookup] = await _is_stranded(store, parent, run)
            case PermitQueueLookup(scope, run):
                answers[lookup] = await store.line(scope, run)
            case ResourcesInNamespace(kind, namespace):
                answers[lookup] = [await read_document(row) async for row in entries(store, kind, namespace)]
    return answers


async def fetch_values(store: Store, slot: Slot, names: Collection[bytes]) -> dict[bytes, bytes]:
    """Large values of a run by digest: those that no disk has yet, its own, and those that its inputs have borrowed."""
    texts = {name: slot.unsynced[name] for name in names if name in slot.unsynced}
    texts.update(await store.values(slot.id, [name for name in names if name not in texts]))
    for mail in slot.taken:
        for source, name in mail.borrowed:
            if name is not None and name in names and name not in texts:
                texts.update(await store.values(source, [name]))
    return texts


async def _is_stranded(store: Store, parent: RunId, run: RunId) -> bool:
    row = await store.find(run)
    if row is None:
        return run not in await store.unstarted_children(parent)
    return not row.status.is_final and (bool(row.stuck) or not await store.owned([row.partition]))


def _provided(dialects: Iterable[Dialect], key: ResourceKey) -> Resource | None:
    stocked = (dialect.provided(key.kind, key.namespace, key.name) for dialect in dialects)
    return next((resource for resource in stocked if resource is not None), None)


async def entries(
    store: Store, kind: str, namespace: str | None = None, labels: Labels = None
) -> AsyncIterator[ResourceRow]:
    """Entries of a kind, in order of namespace and name, read some at a time: all together may be very much."""
    async for row in _rows(store, await store.list_keys(kind, namespace, labels)):
        yield row


async def _rows(store: Store, keys: Sequence[SizedKey]) -> AsyncIterator[ResourceRow]:
    """Those of the entries that are there, in this order; read together as far as that is not too much."""
    turns = ShortTurns()
    group: list[ResourceKey] = []
    size = 0
    for number, (key, bytes_of_it) in enumerate(keys, 1):
        group.append(key)
        size += bytes_of_it
        if len(group) < KEYS_AT_ONCE and size < BYTES_AT_ONCE and number < len(keys):
            continue
        rows = await store.resources(group)
        for key in group:
            if key in rows:
                yield rows[key]
                await turns.pause()
        group, size = [], 0
        await turns.pause()


async def _used_document(row: ResourceRow) -> Resource:
    """An entry that a run uses, with where it came from: what the policy allows depends on it."""
    resource = await read_document(row)
    return {**resource, "metadata": {**resource["metadata"], ORIGIN: FROM_API}} if row.from_api else resource


async def read_document(row: ResourceRow) -> Resource:
    """As `document`; of a large entry in a thread."""
    return await done_aside(len(row.body) + len(row.status or b""), lambda: document(row))


def document(row: ResourceRow) -> Resource:
    """An entry as people know it: what was declared, with what the catalog knows of it."""
    body: Resource = jsontext.decode(row.body)
    metadata = {
        **body.get("metadata", {}),
        **({"namespace": row.key.namespace} if row.key.namespace else {}),
        "uid": row.uid,
        "generation": row.generation,
        "resourceVersion": str(row.version),
        "creationTimestamp": to_second(row.created_at),
    }
    whole = {**body, "metadata": metadata}
    return whole if row.status is None else {**whole, "status": jsontext.decode(row.status)}


def to_second(at: Instant) -> str:
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
