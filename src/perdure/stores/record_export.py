"""Reads a whole store as records, with SQL that all our databases understand."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import msgspec

from perdure.kernel import inputs
from perdure.kernel.errors import NewerRecord
from perdure.kernel.json_values.values import RunId
from perdure.stores import records as r
from perdure.stores.admin import OrphanRow
from perdure.stores.hook_deliveries import DELIVERY_COLUMNS, HOOK_COLUMNS

_RUN = (
    "id, language, name, program, parent, labels, key, status, has_work, due, created_at, ended_at, stuck, on_wall,"
    " namespace"
)
_ENTRY = (
    "kind, namespace, name, uid, generation, version, body, source, labels, status, created_at, updated_at, from_api,"
    " managers"
)
_TASK = (
    "run, task, delivery, pool, provider, state, recalled, worker, until, body, place, machine, namespace, opener,"
    " turn, offered_at, lease, request, holder, touched, releases, answer, lost_lease, lost_delivery,"
    " pipeline, number, reported"
)
_TASK_LOG = "task, attempt, delivery, path, first_line, lines, body"
_PERMIT = "scope, run, permit, priority, capacity, asked_at, granted, ageing"

_NOBODYS = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = {table}.run)"
_NUMBERLESS = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.number = {table}.run)"
_OVER = "EXISTS (SELECT 1 FROM runs WHERE runs.id = {table}.run AND runs.ended_at IS NOT NULL)"


ROWS_AT_ONCE = 100
LARGE_AT_ONCE = 8

WRONG_COUNTS = (
    "SELECT namespace, hour, status, sum(kept), sum(number) FROM (SELECT namespace, hour, status, number AS kept,"
    " 0 AS number FROM run_counts UNION ALL SELECT namespace, created_at - created_at % 3600000000, status, 0, count(*)"
    " FROM runs GROUP BY 1, 2, 3) AS counted GROUP BY namespace, hour, status HAVING sum(kept) <> sum(number)"
    " ORDER BY 1, 2, 3"
)
"""Counts that are kept with the runs, and do not fit them."""

COUNTED = "SELECT namespace, created_at - created_at % 3600000000, status, count(*) FROM runs GROUP BY 1, 2, 3"


class RecordExport(ABC):
    """Reads records from one snapshot of the store; `select` answers a query row by row."""

    last_version: str
    """The query for the last version that the catalog gave."""

    @abstractmethod
    def select(self, query: str, at_once: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows as they come; no more of them in memory than `at_once`."""

    def dump(self) -> Iterator[Sequence[r.Record]]:
        yield from r.batches(map(_entry, self.select(f"SELECT {_ENTRY} FROM resources")))
        yield from self._all(r.EditionRecord, "SELECT uid, generation, body, source, created_at FROM editions")
        yield from self._all(r.CatalogVersionRecord, self.last_version)
        yield from self._all(r.LimitRecord, "SELECT scope, capacity FROM limits")
        yield from r.batches(map(_memory, self.select("SELECT key, value, created_at, expires_at FROM memories")))
        yield from self._all(
            r.AccessTokenRecord,
            "SELECT name, digest, role, namespaces, pools, created_at, created_by, expires_at, revoked_at"
            " FROM access_tokens",
        )
        yield from self._all(r.SessionRecord, "SELECT digest, token, created_at, seen_at, is_code FROM sessions")
        yield from self._all(r.AuditRecord, "SELECT id, at, run, body, seal FROM audit")
        yield from self._all(r.AuditSealRecord, "SELECT number, server, at, rows, previous, hash FROM audit_seals")
        yield from self._all(r.RequestKeyRecord, "SELECT who, key, digest, at, status, answer FROM request_keys")
        hooks = self.select(f"SELECT {HOOK_COLUMNS} FROM hooks")
        yield from r.batches(
            r.HookRecord(name, address, position, bool(is_paused), seen_at)
            for name, address, position, is_paused, seen_at in hooks
        )
        yield from self._all(r.DeliveryRecord, f"SELECT {DELIVERY_COLUMNS} FROM hook_deliveries")
        yield from self._all(r.ProgramRecord, "SELECT digest, language, text FROM programs")
        yield from self._runs()
        yield from self._all(r.NameRecord, "SELECT language, namespace, name, run, heir FROM names")
        yield from r.batches(map(_message, self.select("SELECT run, at, body, is_word FROM inbox ORDER BY position")))
        yield from r.batches(map(_permit, self.select(f"SELECT {_PERMIT} FROM permits")))
        yield from r.batches(map(_task, self.select(f"SELECT {_TASK} FROM tasks")))
        yield from self._all(
            r.WorkerRecord, "SELECT pool, name, holder, providers, opens, slots, seen_at, left_at FROM workers"
        )

    def _all(self, kind: type[r.R], query: str) -> Iterator[Sequence[r.R]]:
        return r.batches(kind(*row) for row in self.select(query))

    def _runs(self) -> Iterator[Sequence[r.Record]]:
        """Some runs, then what belongs to them, then some more."""
        all_rows = self.select(f"SELECT number, {_RUN} FROM runs ORDER BY number")
        while rows := list(islice(all_rows, r.RUNS_AT_ONCE)):
            yield [_run(row[1:]) for row in rows]
            of_these = f"run BETWEEN {rows[0][0]:d} AND {rows[-1][0]:d}"
            ids = {number: id for number, id, *_ in rows}
            yield from r.batches(
                r.ValueRecord(ids[number], digest, text)
                for number, digest, text in self.select(
                    f"SELECT run, digest, text FROM large_values WHERE {of_these} ORDER BY run, digest", LARGE_AT_ONCE
                )
                if number in ids
            )
            yield from r.batches(
                r.LogRecord(ids[number], seq, body)
                for number, seq, body in self.select(
                    f"SELECT run, seq, body FROM log WHERE {of_these} ORDER BY run, seq", ROWS_AT_ONCE
                )
                if number in ids
            )
            yield from r.batches(
                r.StreamRowRecord(ids[number], key, body)
                for number, key, body in self.select(
                    f"SELECT run, key, body FROM stream_rows WHERE {of_these} ORDER BY run, key", ROWS_AT_ONCE
                )
                if number in ids
            )
            yield from r.batches(
                r.TaskLogRecord(ids[number], *rest)
                for number, *rest in self.select(
                    f"SELECT run, {_TASK_LOG} FROM task_logs WHERE {of_these} ORDER BY run, position", ROWS_AT_ONCE
                )
                if number in ids
            )

    def orphan_rows(self, limit: int) -> Iterator[OrphanRow]:
        yield from islice(self._strays(), limit)

    def _strays(self) -> Iterator[OrphanRow]:
        for table, name in (
            ("log", "log rows"),
            ("large_values", "large values"),
            ("snapshots", "snapshots"),
            ("stream_rows", "stream rows"),
            ("task_logs", "task logs"),
        ):
            query = f"SELECT run, count(*) FROM {table} WHERE {_NUMBERLESS.format(table=table)} GROUP BY run"
            for number, count in self.select(query):
                yield OrphanRow(name, None, f"{count} {name} of a run (number {number}) that is not there")
        lost = "SELECT id FROM runs WHERE NOT EXISTS (SELECT 1 FROM programs WHERE programs.digest = runs.program)"
        for (run,) in self.select(lost):
            yield OrphanRow("documents", run, "its pinned document is not there")
        doubles = "SELECT run, name FROM names WHERE namespace IS NULL ORDER BY run"
        for run, name in self.select(doubles):
            yield OrphanRow("runs", run, f"its name {name!r} belongs to another run, which was there before")
        for table, noun, which in (("permits", "permit", ""), ("tasks", "task", " AND state <> 'answered'")):
            for condition, why in ((_NOBODYS, "is not there"), (_OVER, "has ended")):
                query = f"SELECT run, {noun} FROM {table} WHERE {condition.format(table=table)}{which}"
                for run, number in self.select(query):
                    yield OrphanRow(table, run, f"{noun} {number} of a run that {why}")
        yield from self._strayed_messages()
        is_entry = "SELECT 1 FROM resources WHERE resources.uid = editions.uid"
        orphans = f"SELECT uid, generation FROM editions WHERE NOT EXISTS ({is_entry})"
        for uid, generation in self.select(orphans):
            yield OrphanRow("editions", None, f"generation {generation} of an entry ({uid}) that is not there")

        yield from self._wrong_counts()

    def _wrong_counts(self) -> Iterator[OrphanRow]:
        for namespace, hour, status, kept, number in self.select(WRONG_COUNTS):
            what = f"{status} runs of namespace {namespace} that began in the hour from {hour // 1_000_000}"
            yield OrphanRow("store", None, f"{kept} {what} are counted, there are {number}: `perdure db recount`")

    def _strayed_messages(self) -> Iterator[OrphanRow]:
        """Messages to nobody; a child that is about to start is somebody."""
        query = f"SELECT run, body FROM inbox WHERE {_NOBODYS.format(table='inbox')} ORDER BY run"
        for run, messages in groupby(self.select(query), lambda row: str(row[0])):
            kinds = [_kind(body) for _, body in messages]
            if "Start" not in kinds:
                yield OrphanRow("letters", RunId(run), f"{len(kinds)} messages ({kinds[0]}) to a run that is not there")


def _kind(body: bytes) -> str:
    try:
        return type(inputs.decode(body)).__name__
    except (msgspec.DecodeError, NewerRecord):
        return "unreadable"


def _labels(stored: str | dict[str, str] | None) -> dict[str, str]:
    if isinstance(stored, str):
        labels: dict[str, str] = json.loads(stored)
        return labels
    return stored or {}


def _run(row: tuple[Any, ...]) -> r.RunRecord:
    id, language, name, program, parent, labels, key, status, has_work, *rest = row
    return r.RunRecord(id, language, name, program, parent, _labels(labels), key, status, bool(has_work), *rest)


def _entry(row: tuple[Any, ...]) -> r.EntryRecord:
    *head, labels, status, created_at, updated_at, from_api, managers = row
    kind, namespace, name, uid, generation, version, body, source = head
    return r.EntryRecord(
        kind,
        namespace,
        name,
        uid,
        generation,
        version,
        body,
        source,
        _labels(labels),
        status,
        created_at,
        updated_at,
        bool(from_api),
        managers,
    )


def _memory(row: tuple[Any, ...]) -> r.MemoryRecord:
    key, *rest = row
    return r.MemoryRecord(key.decode() if isinstance(key, bytes) else key, *rest)


def _message(row: tuple[Any, ...]) -> r.MessageRecord:
    to, at, body, is_word = row
    return r.MessageRecord(to, at, body, bool(is_word))


def _permit(row: tuple[Any, ...]) -> r.PermitRecord:
    scope, run, permit, priority, capacity, asked_at, granted, ageing = row
    return r.PermitRecord(scope, run, permit, priority, capacity, asked_at, bool(granted), ageing)


def _task(row: tuple[Any, ...]) -> r.TaskRecord:
    recalled, touched = row[6], row[19]
    return r.TaskRecord(*(*row[:6], bool(recalled), *row[7:19], bool(touched), *row[20:]))
