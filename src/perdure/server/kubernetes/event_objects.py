"""Events: what happened in runs, from their histories. They live with the run; a name is the run's, with a number."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.engine.decision_threads import SMALL, ShortTurns, done_aside
from perdure.engine.runs import run_views
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.server.kubernetes.catalog_objects import not_found
from perdure.server.kubernetes.run_resources import in_seconds
from perdure.server.kubernetes.selectors import check_behind
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.api_errors import MethodNotAllowed

if TYPE_CHECKING:
    from perdure.engine.client import Client
    from perdure.server.calls import ApiCall
    from perdure.server.kubernetes.discovery import ApiResource
    from perdure.server.kubernetes.selectors import ObjectSelection

Object = dict[str, Any]
RUNS_AT_ONCE = 100  # whose events are listed
MOST_LISTED = 10_000  # in one answer
MANY = 100  # events of a run, which are then made into objects in a thread
LONGEST_MESSAGE = 1_000
WARNINGS = frozenset({"Failed", "Timeout", "Aborted", "Blocked"})


def kind_of_runs(client: "Client", language: Dialect) -> ResourceKind | None:
    return next((kind for kind in language.kinds if kind.of_runs and kind.is_request), None)


def event_object(row: RunRow, kind: ResourceKind, name: str, item: Mapping[str, Any]) -> Object:
    """One entry of a history."""
    payload = item.get("payload") or {}
    at = in_seconds(item["timestamp"])
    phase, step = payload.get("phase"), item.get("step")
    reason = payload.get("reason") or phase or _camel(item["event_type"])
    text = payload.get("message") or phase or ""
    if not text:
        text = jsontext.encode(payload).decode() if payload else item["event_type"]
    is_warning = phase in WARNINGS or payload.get("outcome") == "failed"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name}.{item['seq']}",
            "namespace": row.namespace,
            "uid": f"{row.id}.{item['seq']}",
            "resourceVersion": str(item["seq"]),
            "creationTimestamp": at,
        },
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": name,
            "namespace": row.namespace,
            "uid": row.id,
        },
        "reason": str(reason) if " " not in str(reason) else _camel(item["event_type"]),
        "message": (f"step {step}: {text}" if step else str(text))[:LONGEST_MESSAGE],
        "type": "Warning" if is_warning else "Normal",
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "perdure"},
        "reportingComponent": "perdure",
        "reportingInstance": str(item.get("actor") or ""),
    }


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("."))


class EventObjects:
    def __init__(self, call: "ApiCall", resource: "ApiResource") -> None:
        self._call = call
        self._resource = resource
        self._client: Client = call.engine

    def _languages(self) -> list[tuple[Dialect, ResourceKind]]:
        shown = [(language, kind_of_runs(self._client, language)) for language in self._client.languages.values()]
        return [
            (language, kind)
            for language, kind in shown
            if kind is not None and language.shows_resources and language.has_own_history
        ]

    async def get(self, namespace: str, name: str) -> Object:
        run, _, number = name.rpartition(".")
        for language, kind in self._languages():
            for row in await self._client.named(language.name_label, run, [namespace]):
                for _, item in await self._events(row, kind, language):
                    if item["metadata"]["name"] == name:
                        return item
        raise not_found(self._resource, f"{run}.{number}")

    async def page(
        self, namespace: str | None, selection: "ObjectSelection", limit: int, behind: Sequence[Any]
    ) -> tuple[list[Object], list[Any] | None]:
        """Those of the latest runs first, and the run and the event behind which the next page begins."""
        most = min(limit or MOST_LISTED, MOST_LISTED)
        check_behind(behind, int, str, int)
        events: list[Object] = []
        turns, last = ShortTurns(), list(behind)
        async for row, kind, language in self._runs(namespace, selection, behind):
            if behind and (row.created_at, row.id) > (behind[0], behind[1]):
                continue
            after = int(behind[2]) if behind and row.id == behind[1] else 0
            for number, item in await self._events(row, kind, language, after):
                await turns.pause()
                if selection.matches(item):
                    if len(events) == most:
                        return events, last
                    events.append(item)
                    last = [row.created_at, row.id, number]
        return events, None

    async def _runs(
        self, namespace: str | None, selection: "ObjectSelection", behind: Sequence[Any]
    ) -> AsyncIterator[tuple[RunRow, ResourceKind, Dialect]]:
        about = {name.removeprefix("involvedObject."): value for name, value in selection.fields.equal.items()}
        names = self._call.caller.narrowed(namespace)
        for language, kind in self._languages():
            if about.get("kind") not in (None, kind.name):
                continue
            rows: list[RunRow] = []
            if about.get("uid"):
                row = await self._client.store.find(RunId(about["uid"]))
                rows = [row] if row is not None and row.language == language.name else []
            elif about.get("name"):
                rows = await self._client.named(language.name_label, about["name"], names)
            else:
                among = RunFilter(language=language.name, namespaces=names, limit=RUNS_AT_ONCE)
                place = (int(behind[0]), RunId(f"{behind[1]} ")) if behind else None  # with the run that it ended in
                while True:
                    page = await self._client.search(replace(among, behind=place))
                    for row in page:
                        yield row, kind, language
                    if len(page) < RUNS_AT_ONCE:
                        break
                    place = (page[-1].created_at, page[-1].id)
            for row in sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True):
                if names is None or row.namespace in names:
                    yield row, kind, language

    async def _events(
        self, row: RunRow, kind: ResourceKind, language: Dialect, after: int = 0
    ) -> list[tuple[int, Object]]:
        """With their numbers."""
        name = row.labels.get(language.name_label, row.id)
        items = await self._client.history(row.id, after)
        size = SMALL + 1 if len(items) > MANY else 0
        return await done_aside(size, lambda: [(item["seq"], event_object(row, kind, name, item)) for item in items])

    async def create(self, body: Object, *, dry: bool) -> tuple[Object, list[str]]:
        raise _read_only()

    async def replace(
        self, before: Object, body: Object, *, part: str, dry: bool, version: int | None
    ) -> tuple[Object, list[str]]:
        raise _read_only()

    async def delete(self, item: Object, *, version: int | None) -> Object | None:
        raise _read_only()


def _read_only() -> MethodNotAllowed:
    return MethodNotAllowed("an Event is written by the engine, and can only be read", allow="GET")


async def new_events(client: "Client", row: RunRow, before: int, number: int) -> list[Object]:
    """Those of one commit: behind the event that was recorded last before it."""
    language = client.languages[row.language]
    kind = kind_of_runs(client, language)
    if kind is None or not language.has_own_history:
        return []
    recorded = await run_views.turns(client.store, language, row.id)
    mask = await run_views.mask_of_run(client.store, client.languages, row)
    name = row.labels.get(language.name_label, row.id)
    told_items = await run_views.told_aside(recorded, lambda: list(run_views.tell(language, row.id, recorded)))
    return [event_object(row, kind, name, mask.data(item)) for place, item in told_items if before < place <= number]
