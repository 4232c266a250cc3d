"""What runs show as resources, as complete objects: with versions, owners and identities."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from perdure.engine.runs import run_views

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.kernel.execution import Execution
    from perdure.kernel.json_values.values import RunId
    from perdure.stores.protocol import StoredRun

Object = dict[str, Any]
VIEWS_KEPT = 2_000


class RunViews:
    """What ended runs show, as far as it was asked for lately: they are listed again and again, and rarely change."""

    def __init__(self) -> None:
        self._kept: OrderedDict[RunId, tuple[int, list[Object]]] = OrderedDict()

    async def of(self, client: "Client", stored: "StoredRun") -> list[Object]:
        """The run itself and its parts, as they are recorded."""
        seq = stored.rows[-1][0] if stored.rows else stored.snapshot[0] if stored.snapshot else 0
        row = stored.row
        kept = self._kept.get(row.id)
        if kept is not None and kept[0] == seq:
            self._kept.move_to_end(row.id)
            return kept[1]
        dialect = run_views.dialect_of(client.languages, row.language)
        program = await run_views.program_of(client.store, dialect, row)
        execution = await run_views.fold_stored(client.store, stored, dialect, program)
        views = await shown_resources(client, execution)
        if row.status.is_final:
            self._kept[row.id] = seq, views
            if len(self._kept) > VIEWS_KEPT:
                self._kept.popitem(last=False)
        return views


async def shown_resources(client: "Client", execution: "Execution") -> list[Object]:
    """Complete objects: with a version, an owner and an identity, also where the language gives none."""
    shown = await run_views.show(client.store, execution)
    itself, *parts = execution.dialect.resources(shown)
    version = {"resourceVersion": str(execution.state.seq)}
    head: Object = {**itself, "metadata": {**itself["metadata"], **version}}
    if execution.state.disowned:
        head["metadata"]["deletionTimestamp"] = head["metadata"]["creationTimestamp"]
        head["metadata"]["deletionGracePeriodSeconds"] = 0
    owner = {
        "apiVersion": head["apiVersion"],
        "kind": head["kind"],
        "name": head["metadata"]["name"],
        "uid": head["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return [head, *(_part(part, owner, head["metadata"]["creationTimestamp"], version) for part in parts)]


def _part(part: Object, owner: Object, created: str, version: Object) -> Object:
    metadata = part["metadata"]
    identity = uuid5(NAMESPACE_URL, f"{owner['uid']}/{part['kind']}/{metadata['name']}")
    facts = {"uid": str(identity), "creationTimestamp": created, "generation": 1}
    return {**part, "metadata": {**facts, **metadata, **version, "ownerReferences": [owner]}}
