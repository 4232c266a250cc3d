"""Taking in what another store has dumped. Runs inside a transaction that somebody else began and ends."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw
from msgspec.structs import astuple

from perdure.kernel.json_values.values import RunId
from perdure.stores import records as r
from perdure.stores.hook_deliveries import DELIVERY_COLUMNS, HOOK_COLUMNS

HOME = 1  # the partition where everything lives from now on, as if one engine had left it behind


class RecordImport:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._last = 0
        self._numbers: dict[RunId, int] = {}  # of the runs that came last

    def import_batch(self, batch: Sequence[r.Record]) -> None:
        statement, rows = _STATEMENTS[type(batch[0])]
        self._connection.executemany(statement, list(rows(self, batch)))

    def _plain(self, batch: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        return map(astuple, batch)

    def _entries(self, batch: Sequence[r.EntryRecord]) -> Iterator[tuple[Any, ...]]:
        for record in batch:
            *head, labels, status, created_at, updated_at, from_api, managers = astuple(record)
            yield (*head, _labels(labels), status, created_at, updated_at, from_api, managers)

    def _runs(self, batch: Sequence[r.RunRecord]) -> Iterator[tuple[Any, ...]]:
        self._numbers = {run.id: number for number, run in enumerate(batch, start=self._last + 1)}
        self._last += len(batch)
        for record in batch:
            id, language, name, program, parent, labels, *rest = astuple(record)
            yield (self._numbers[record.id], id, HOME, language, name, program, parent, _labels(labels), *rest)

    def _of_runs(
        self, batch: Sequence[r.ValueRecord | r.LogRecord | r.StreamRowRecord | r.TaskLogRecord]
    ) -> Iterator[tuple[Any, ...]]:
        for record in batch:
            run, *rest = astuple(record)
            yield (self._numbers[run], *rest)

    def _messages(self, batch: Sequence[r.MessageRecord]) -> Iterator[tuple[Any, ...]]:
        return ((HOME, *astuple(record)) for record in batch)


def _labels(labels: dict[str, str]) -> str | None:
    return json.dumps(labels) if labels else None


def _insert(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(columns.split(',')))})"


_Rows = Callable[[RecordImport, Sequence[Any]], Iterator[tuple[Any, ...]]]

_STATEMENTS: dict[type[r.Record], tuple[str, _Rows]] = {
    r.EntryRecord: (
        _insert(
            "resources",
            "kind, namespace, name, uid, generation, version, body, source, labels, status, created_at, updated_at,"
            " from_api, managers",
        ),
        RecordImport._entries,
    ),
    r.EditionRecord: (_insert("editions", "uid, generation, body, source, created_at"), RecordImport._plain),
    r.CatalogVersionRecord: ("UPDATE catalog_version SET last = ?", RecordImport._plain),
    r.LimitRecord: (_insert("limits", "scope, capacity"), RecordImport._plain),
    r.MemoryRecord: (_insert("memories", "key, value, created_at, expires_at"), RecordImport._plain),
    r.AccessTokenRecord: (
        _insert(
            "access_tokens",
            "name, digest, role, namespaces, pools, created_at, created_by, expires_at, revoked_at",
        ),
        RecordImport._plain,
    ),
    r.SessionRecord: (_insert("sessions", "digest, token, created_at, seen_at, is_code"), RecordImport._plain),
    r.AuditRecord: (_insert("audit", "id, at, run, body, seal"), RecordImport._plain),
    r.AuditSealRecord: (_insert("audit_seals", "number, server, at, rows, previous, hash"), RecordImport._plain),
    r.RequestKeyRecord: (_insert("request_keys", "who, key, digest, at, status, answer"), RecordImport._plain),
    r.HookRecord: (_insert("hooks", HOOK_COLUMNS), RecordImport._plain),
    r.DeliveryRecord: (_insert("hook_deliveries", DELIVERY_COLUMNS), RecordImport._plain),
    r.ProgramRecord: (_insert("programs", "digest, language, text"), RecordImport._plain),
    r.RunRecord: (
        _insert(
            "runs",
            "number, id, partition, language, name, program, parent, labels, key, status, has_work, due, created_at,"
            " ended_at, stuck, on_wall, namespace",
        ),
        RecordImport._runs,
    ),
    r.ValueRecord: (_insert("large_values", "run, digest, text"), RecordImport._of_runs),
    r.LogRecord: (_insert("log", "run, seq, body"), RecordImport._of_runs),
    r.StreamRowRecord: (_insert("stream_rows", "run, key, body"), RecordImport._of_runs),
    r.TaskLogRecord: (
        _insert("task_logs", "run, task, attempt, delivery, path, first_line, lines, body"),
        RecordImport._of_runs,
    ),
    r.NameRecord: (_insert("names", "language, namespace, name, run, heir"), RecordImport._plain),
    r.MessageRecord: (_insert("inbox", "partition, run, at, body, is_word"), RecordImport._messages),
    r.PermitRecord: (
        _insert("permits", "scope, run, permit, priority, capacity, asked_at, granted, ageing"),
        RecordImport._plain,
    ),
    r.TaskRecord: (
        _insert(
            "tasks",
            "run, task, delivery, pool, provider, state, recalled, worker, until, body, place, machine, namespace,"
            " opener, turn, offered_at, lease, request, holder, touched, releases, answer, lost_lease, lost_delivery,"
            " pipeline, number, reported",
        ),
        RecordImport._plain,
    ),
    r.WorkerRecord: (
        _insert("workers", "pool, name, holder, providers, opens, slots, seen_at, left_at"),
        RecordImport._plain,
    ),
}
