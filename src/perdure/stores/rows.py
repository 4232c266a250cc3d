"""Rows as every store reads them: which columns, in which order, and what they are to the engine."""

import json
from typing import Any

from perdure.kernel.outcomes import Status
from perdure.kernel.questions import Named
from perdure.stores.protocol import ResourceRow, RunRow

RUN_COLUMNS = (
    "id, partition, language, name, program, parent, labels, key, status, has_work, due, created_at, ended_at, stuck,"
    " EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id AND inbox.is_word = 1), on_wall"
)
RESOURCE_COLUMNS = (
    "kind, namespace, name, uid, generation, version, body, source, labels, status, created_at, updated_at"
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
        more[1],
    )


def resource_row(row: tuple[Any, ...]) -> ResourceRow:
    kind, namespace, name, uid, generation, version, body, source, labels, status, created, updated = row
    return ResourceRow(
        Named(kind, namespace, name),
        uid,
        generation,
        version,
        body,
        source,
        read_labels(labels),
        status,
        created,
        updated,
    )


def read_labels(text: str | None) -> dict[str, str]:
    return json.loads(text) if text else {}


def written_labels(labels: dict[str, str]) -> str | None:
    return json.dumps(labels) if labels else None
