"""Taking in what another store has dumped, by COPY. Runs inside a transaction that somebody else began and ends."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from msgspec.structs import astuple, replace
from psycopg.types.json import Jsonb

from perdure.kernel.json_values.values import RunId
from perdure.stores import records as r
from perdure.stores.postgres.batch_writer import NUMBERS_AT_ONCE, PARTITION_SHIFT
from perdure.stores.postgres.messages import birthplace
from perdure.stores.postgres.wire import storable

SOMEWHERE_SHARED = 1  # from there runs are spread over all that is shared


class RecordImport:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._numbers: dict[RunId, int] = {}  # of the runs that came last

    def import_batch(self, batch: Sequence[r.Record]) -> None:
        if isinstance(batch[0], r.CatalogVersionRecord):
            last = batch[0].last  # what a sequence is set to is not taken back, and does no harm
            self._connection.execute("SELECT setval('resource_versions', greatest(%s, 1), %s)", (last, last > 0))
            return
        table, columns, rows = _TABLES[type(batch[0])]
        names = ", ".join(columns)
        prepared = list(rows(self, batch))
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)".encode()) as copying,
        ):
            copying.set_types(list(columns.values()))
            for row in prepared:
                copying.write_row(row)

    def _plain(self, batch: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        return map(astuple, batch)

    def _entries(self, batch: Sequence[r.EntryRecord]) -> Iterator[tuple[Any, ...]]:
        for record in batch:
            *head, labels, status, created_at, updated_at, from_api, managers = astuple(record)
            yield (*head, _labels(labels), status, created_at, updated_at, from_api, managers)

    def _memories(self, batch: Sequence[r.MemoryRecord]) -> Iterator[tuple[Any, ...]]:
        return ((record.key.encode(), record.value, record.created_at, record.expires_at) for record in batch)

    def _runs(self, batch: Sequence[r.RunRecord]) -> Iterator[tuple[Any, ...]]:
        self._numbers = dict(zip([run.id for run in batch], self._fresh(len(batch)), strict=False))
        for record in batch:
            id, language, name, program, parent, labels, *rest = astuple(record)
            home = birthplace(record.id, SOMEWHERE_SHARED)
            self._numbers[record.id] |= home << PARTITION_SHIFT
            yield (self._numbers[record.id], id, home, language, name, program, parent, _labels(labels), *rest)

    def _fresh(self, count: int) -> list[int]:
        """Numbers that nobody has, in order."""
        steps = -(-count // NUMBERS_AT_ONCE)
        rows = self._connection.execute("SELECT nextval('run_numbers') FROM generate_series(1, %s)", (steps,))
        return [number for (last,) in sorted(rows) for number in range(last - NUMBERS_AT_ONCE + 1, last + 1)]

    def _of_runs(
        self, batch: Sequence[r.ValueRecord | r.LogRecord | r.StreamRowRecord | r.TaskLogRecord]
    ) -> Iterator[tuple[Any, ...]]:
        for record in batch:
            run, *rest = astuple(record)
            yield (self._numbers[run], *rest)

    def _messages(self, batch: Sequence[r.MessageRecord]) -> Iterator[tuple[Any, ...]]:
        row = self._connection.execute("SELECT nextval('inbox_positions')").fetchone()
        assert row is not None
        for place, record in enumerate(batch):
            yield (
                birthplace(record.to, SOMEWHERE_SHARED),
                row[0] + place,
                record.to,
                record.at,
                record.body,
                int(record.is_word),
            )


def storable_record(record: r.R) -> r.R:
    """As the store would write it itself; nearly always the same."""
    texts = {name: value for name in record.__struct_fields__ if isinstance(value := getattr(record, name), str | dict)}
    changed = {name: fixed for name, value in texts.items() if (fixed := _storable(value)) != value}
    return replace(record, **changed) if changed else record


def _storable(value: str | dict[str, str]) -> str | dict[str, str]:
    if isinstance(value, str):
        return storable(value)
    return {storable(name): storable(text) for name, text in value.items()}


def _labels(labels: dict[str, str]) -> Jsonb | None:
    return Jsonb(labels) if labels else None


def _typed(columns: str) -> dict[str, str]:
    """`name type, name type` as COPY takes them."""
    return dict(pair.split() for pair in columns.split(","))


_Rows = Callable[[RecordImport, Sequence[Any]], Iterator[tuple[Any, ...]]]

_TABLES: dict[type[r.Record], tuple[str, dict[str, str], _Rows]] = {
    r.EntryRecord: (
        "resources",
        _typed(
            "kind text, namespace text, name text, uid text, generation int8, version int8, body bytea, source bytea,"
            " labels jsonb, status bytea, created_at int8, updated_at int8, from_api bool, managers bytea"
        ),
        RecordImport._entries,
    ),
    r.EditionRecord: (
        "editions",
        _typed("uid text, generation int8, body bytea, source bytea, created_at int8"),
        RecordImport._plain,
    ),
    r.LimitRecord: ("limits", _typed("scope text, capacity int8"), RecordImport._plain),
    r.MemoryRecord: (
        "memories",
        _typed("key bytea, value bytea, created_at int8, expires_at int8"),
        RecordImport._memories,
    ),
    r.AccessTokenRecord: (
        "access_tokens",
        _typed(
            "name text, digest bytea, role text, namespaces text, pools text, created_at int8, created_by text,"
            " expires_at int8, revoked_at int8"
        ),
        RecordImport._plain,
    ),
    r.SessionRecord: (
        "sessions",
        _typed("digest bytea, token text, created_at int8, seen_at int8, is_code int8"),
        RecordImport._plain,
    ),
    r.AuditRecord: ("audit", _typed("id text, at int8, run text, body bytea, seal int8"), RecordImport._plain),
    r.AuditSealRecord: (
        "audit_seals",
        _typed("number int8, server text, at int8, rows int8, previous bytea, hash bytea"),
        RecordImport._plain,
    ),
    r.RequestKeyRecord: (
        "request_keys",
        _typed("who text, key text, digest bytea, at int8, status int8, answer bytea"),
        RecordImport._plain,
    ),
    r.HookRecord: (
        "hooks",
        _typed("name text, address text, position int8, is_paused bool, seen_at int8"),
        RecordImport._plain,
    ),
    r.DeliveryRecord: (
        "hook_deliveries",
        _typed(
            "hook text, position int8, run text, namespace text, body bytea, created_at int8, state text,"
            " attempts int8, next_at int8, answered_at int8, status int8, error text"
        ),
        RecordImport._plain,
    ),
    r.ProgramRecord: ("programs", _typed("digest bytea, language text, text bytea"), RecordImport._plain),
    r.RunRecord: (
        "runs",
        _typed(
            "number int8, id text, partition int4, language text, name text, program bytea, parent text, labels jsonb,"
            " key bytea, status text, has_work bool, due int8, created_at int8, ended_at int8, stuck text,"
            " on_wall int8, namespace text"
        ),
        RecordImport._runs,
    ),
    r.ValueRecord: ("large_values", _typed("run int8, digest bytea, text bytea"), RecordImport._of_runs),
    r.LogRecord: ("log", _typed("run int8, seq int8, body bytea"), RecordImport._of_runs),
    r.StreamRowRecord: ("stream_rows", _typed("run int8, key bytea, body bytea"), RecordImport._of_runs),
    r.TaskLogRecord: (
        "task_logs",
        _typed("run int8, task int8, attempt int8, delivery int8, path text, first_line int8, lines int8, body bytea"),
        RecordImport._of_runs,
    ),
    r.NameRecord: (
        "names",
        _typed("language text, namespace text, name text, run text, heir text"),
        RecordImport._plain,
    ),
    r.MessageRecord: (
        "inbox",
        _typed("partition int4, position int8, run text, at int8, body bytea, is_word int2"),
        RecordImport._messages,
    ),
    r.PermitRecord: (
        "permits",
        _typed(
            "scope text, run text, permit int8, priority int8, capacity int8, asked_at int8, granted bool, ageing int8"
        ),
        RecordImport._plain,
    ),
    r.TaskRecord: (
        "tasks",
        _typed(
            "run text, task int8, delivery int8, pool text, provider text, state text, recalled bool, worker text,"
            " until int8, body bytea, place int2, machine text, namespace text, opener text, turn int8,"
            " offered_at int8, lease text, request text, holder text, touched bool, releases int8, answer bytea,"
            " lost_lease text, lost_delivery int8, pipeline bytea, number int8, reported bytea"
        ),
        RecordImport._plain,
    ),
    r.WorkerRecord: (
        "workers",
        _typed("pool text, name text, holder text, providers text, opens text, slots int8, seen_at int8, left_at int8"),
        RecordImport._plain,
    ),
}
