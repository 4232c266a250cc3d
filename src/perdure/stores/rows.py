"""Rows as every store reads them: which columns, in which order, and what they are to the engine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.ids import is_family, root_of
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.access import AccessTokenRow
from perdure.stores.protocol import EditionRow, ResourceRow, RunFilter, RunRow, SizedKey

RUN_COLUMNS = (
    "id, partition, language, name, program, parent, labels, key, status, has_work, due, created_at, ended_at, stuck,"
    " EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id AND inbox.is_word = 1), on_wall,"
    " namespace"
)
RESOURCE_COLUMNS = (
    "kind, namespace, name, uid, generation, version, body, source, labels, status, created_at, updated_at, from_api,"
    " managers"
)
EDITION_COLUMNS = "r.kind, r.namespace, r.name, e.uid, e.generation, length(e.body), e.created_at, r.from_api"
SIZED_KEY_COLUMNS = "kind, namespace, name, length(body) + length(source) + coalesce(length(status), 0)"
EDITION_ORDER = "ORDER BY e.created_at, r.name, e.generation"
TOKEN_COLUMNS = "name, digest, role, namespaces, pools, created_at, created_by, expires_at, revoked_at"


def token_row(row: tuple[Any, ...]) -> AccessTokenRow:
    name, digest, role, namespaces, pools, *rest = row
    allowed = None if namespaces is None else tuple(json.loads(namespaces))
    return AccessTokenRow(name, digest, role, allowed, tuple(json.loads(pools)), *rest)


RELABEL = "UPDATE runs SET labels = json_patch(coalesce(labels, '{}'), ?) WHERE number = ?"
NAMESPACES = (  # of runs from one to the next along an index
    "WITH RECURSIVE used (namespace) AS (SELECT min(namespace) FROM runs UNION ALL SELECT"
    " (SELECT min(namespace) FROM runs WHERE namespace > used.namespace) FROM used WHERE used.namespace IS NOT NULL)"
    " SELECT namespace FROM used WHERE namespace IS NOT NULL"
    " UNION SELECT namespace FROM resources WHERE namespace <> '' ORDER BY 1"
)


def run_row(row: tuple[Any, ...]) -> RunRow:
    id, partition, language, name, program, parent, labels, key, status, has_work, due, created, ended, stuck, *more = (
        row
    )
    return RunRow(
        id,
        partition,
        language,
        name,
        program,
        parent,
        read_labels(labels),
        key,
        Status(status),
        bool(has_work),
        due,
        created,
        ended,
        stuck,
        bool(more[0]),
        *more[1:],
    )


MOST_WALKS = 100  # along an index that one page is merged from

RUN_NAMESPACES = (
    "WITH RECURSIVE found (namespace) AS (SELECT min(namespace) FROM runs UNION ALL"
    " SELECT (SELECT min(namespace) FROM runs WHERE namespace > found.namespace) FROM found"
    " WHERE found.namespace IS NOT NULL)"
    f" SELECT namespace FROM found WHERE namespace IS NOT NULL LIMIT {MOST_WALKS}"
)
"""Those that runs are in: one look into an index for each."""


def needs_namespaces(filter: RunFilter) -> bool:
    """Whether runs are found by walking along an index for each namespace there is, and not along one for all."""
    return bool(filter.namespaces is None and filter.statuses and filter.behind) and not (filter.name or filter.parent)


def split_filter(filter: RunFilter) -> list[RunFilter]:
    """The filters whose runs, merged, are those of this one: each is answered by walking along an index.

    There are indexes by name and status, by language, by namespace, and by namespace and status.
    """
    if filter.behind is None:
        return [filter]
    statuses: list[Sequence[Status]] = [[status] for status in filter.statuses]
    if filter.name is not None:
        return [replace(filter, statuses=these) for these in statuses or [[status] for status in Status]]
    if filter.namespaces is None or not 0 < len(filter.namespaces) * len(statuses or [()]) <= MOST_WALKS:
        return [filter]
    return [
        replace(filter, namespaces=[namespace], statuses=these)
        for namespace in filter.namespaces
        for these in statuses or [()]
    ]


def sized_key(row: tuple[Any, ...]) -> SizedKey:
    return ResourceKey(*row[:3]), row[3]


def edition_row(row: tuple[Any, ...]) -> EditionRow:
    kind, namespace, name, uid, generation, size, created_at, from_api = row
    return EditionRow(ResourceKey(kind, namespace, name), uid, generation, size, created_at, bool(from_api))


def resource_row(row: tuple[Any, ...]) -> ResourceRow:
    kind, namespace, name, uid, generation, version, body, source, labels, status, created, updated, *rest = row
    return ResourceRow(
        ResourceKey(kind, namespace, name),
        uid,
        generation,
        version,
        body,
        source,
        read_labels(labels),
        status,
        created,
        updated,
        bool(rest[0]),
        rest[1],
    )


SUMMARIZE = "UPDATE runs SET status = ?, has_work = ?, due = ?, ended_at = ?, on_wall = ? WHERE number = ?"

HAS_NO_NAME = (
    "EXISTS (SELECT 1 FROM runs e WHERE e.id IN ({elders}) AND e.language = {language} AND NOT EXISTS"
    " (SELECT 1 FROM names m WHERE m.run = e.id AND m.heir IS NULL AND m.namespace IS NOT NULL))"
)
"""Whether a run above is without a name: a fork, one that is disowned, one that came second. It has none to give."""


def elders(run: RunId) -> tuple[str, str, str]:
    """Runs above that may be without a name: the root, its parent, and the one above, should that not be there yet."""
    parent = run.rpartition(".")[0]
    return (root_of(run) if parent else "", parent, parent.rpartition(".")[0])


def may_take(run: str, holder: str, heir: str | None) -> bool:
    """Whether a run may have the name of such a row: it has it, or is a later one below the heir."""
    if heir is None:
        return run == holder
    return run != heir and is_family(run, heir) and not is_family(run, holder)


def read_labels(text: str | None) -> dict[str, str]:
    return json.loads(text) if text else {}


def encode_labels(labels: Mapping[str, str | None]) -> str | None:
    return json.dumps(labels) if labels else None
