"""What runs show as resources, as complete objects: with versions, owners and identities."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5
from zlib import crc32

from perdure.engine.resources.resource_views import shown_resources
from perdure.engine.runs import run_views
from perdure.server.kubernetes.selectors import FIRST_POSITION

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.kernel.execution import Execution
    from perdure.kernel.json_values.values import RunId
    from perdure.stores.protocol import StoredRun

Object = dict[str, Any]
VIEWS_KEPT = 2_000
EVENTS_TOLD = 1 << 24  # in a version; the rest of it, up to `FIRST_POSITION`, is about the run


def run_version(run: "RunId", events: int) -> int:
    """The version of a run that was read: another one after each event, and for most other runs."""
    return crc32(run.encode()) % (FIRST_POSITION // EVENTS_TOLD) * EVENTS_TOLD + events % EVENTS_TOLD


def is_before(run: "RunId", events: int, version: int) -> bool:
    """Whether the run had so many events in this version, or when it was read had some more."""
    own = run_version(run, events)
    return own <= version and own // EVENTS_TOLD == version // EVENTS_TOLD


def events_seen(version: int | None, events: int) -> int:
    """How many events the run had in this version; 0: it is not known."""
    return 0 if version is None or events >= EVENTS_TOLD else version % EVENTS_TOLD


def without_version(item: Object) -> Object:
    return {**item, "metadata": {name: value for name, value in item["metadata"].items() if name != "resourceVersion"}}


class RunViews:
    """What runs show, as far as it was asked for lately: they are listed again and again, and most have ended."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[RunId, bool], tuple[int, list[Object]]] = OrderedDict()
        self.folds = 0  # runs that were folded: what was kept was not enough

    def kept(self, run: "RunId", seq: int) -> list[Object] | None:
        """What the run showed after so many events, if somebody has asked for that lately."""
        kept = (self._kept.get((run, with_parts)) for with_parts in (True, False))
        return next((views for last, views in filter(None, kept) if last == seq), None)

    async def of(self, client: "Client", stored: "StoredRun", *, with_parts: bool) -> list[Object]:
        """The run itself and its parts, as they are recorded."""
        seq = stored.rows[-1][0] if stored.rows else stored.snapshot[0] if stored.snapshot else 0
        row = stored.row
        for key in ((row.id, True), (row.id, False))[: 1 if with_parts else 2]:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == seq:
                self._kept.move_to_end(key)
                return kept[1]
        self.folds += 1
        dialect = run_views.dialect_of(client.languages, row.language)
        program = await run_views.program_of(client.store, dialect, row)
        execution = await run_views.fold_stored(client.store, stored, dialect, program)
        views = await shown_objects(client, execution, with_parts=with_parts)
        if not dialect.has_streams(execution):  # whose numbers change without an event
            self._kept[row.id, with_parts] = seq, views
            if len(self._kept) > VIEWS_KEPT:
                self._kept.popitem(last=False)
        return views


async def shown_objects(client: "Client", execution: "Execution", *, with_parts: bool = True) -> list[Object]:
    resources = await shown_resources(client.store, execution, with_parts=with_parts)
    return complete(resources, run_version(execution.id, execution.state.seq))


def complete(resources: list[Object], number: int) -> list[Object]:
    """Complete objects: with a version, an owner and an identity, also where the language gives none."""
    itself, *parts = resources
    version = {"resourceVersion": str(number)}
    created = in_seconds(itself["metadata"]["creationTimestamp"])
    head: Object = {**itself, "metadata": {**itself["metadata"], "creationTimestamp": created, **version}}
    owner = {
        "apiVersion": head["apiVersion"],
        "kind": head["kind"],
        "name": head["metadata"]["name"],
        "uid": head["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return [head, *(_part(part, owner, created, version) for part in parts)]


def in_seconds(timestamp: str) -> str:
    """Times of metadata are whole seconds in Kubernetes."""
    return f"{timestamp[:19]}Z"


def _part(part: Object, owner: Object, created: str, version: Object) -> Object:
    metadata = part["metadata"]
    identity = uuid5(NAMESPACE_URL, f"{owner['uid']}/{part['kind']}/{metadata['name']}")
    facts = {"uid": str(identity), "generation": 1, **metadata, **version, "ownerReferences": [owner]}
    return {**part, "metadata": {**facts, "creationTimestamp": in_seconds(metadata.get("creationTimestamp", created))}}
