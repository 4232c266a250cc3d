"""Reads, each on a thread of its own; what concerns many runs or partitions is one question."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from perdure.kernel.documents.lookups import PermitQueue
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.postgres.batched_lookup import BatchedLookup
from perdure.stores.postgres.run_search import COLUMNS, LAST, search_rows
from perdure.stores.postgres.store_part import StorePart
from perdure.stores.postgres.wire import BLOB, BLOBS, INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.protocol import RunFilter, RunRow, StoredRun
from perdure.stores.rows import run_row

_FIND = Statement(f"SELECT {COLUMNS} FROM runs WHERE id = ANY({{}})", TEXTS)
_ENDED = Statement(
    f"SELECT {COLUMNS} FROM runs WHERE ended_at IS NOT NULL AND parent IS NULL AND (ended_at, id) > ({{}}, {{}})"
    " AND language = ANY({}) ORDER BY ended_at, id LIMIT {}",
    INT,
    TEXT,
    TEXTS,
    INT,
)
_NAMED = Statement(
    "SELECT coalesce(heir, run) FROM names WHERE language = {} AND namespace = {} AND name = {}", TEXT, TEXT, TEXT
)
_FIND_MANY = Statement(f"SELECT number, {COLUMNS} FROM runs WHERE id = ANY({{}})", TEXTS)
_BEGINS = Statement(
    "SELECT id FROM runs WHERE id >= {} AND id < {} AND strpos(substr(id, {}::integer), '.') = 0"
    " AND right(id, {}::integer) = {} LIMIT 3",
    TEXT,
    TEXT,
    INT,
    INT,
    TEXT,
)
_BEGINS_AMONG = Statement(
    "SELECT id FROM runs WHERE id >= {} AND id < {} AND strpos(substr(id, {}::integer), '.') = 0"
    " AND right(id, {}::integer) = {} AND namespace = ANY({}) LIMIT 3",
    TEXT,
    TEXT,
    INT,
    INT,
    TEXT,
    TEXTS,
)
_SNAPSHOTS = Statement("SELECT run, seq, body FROM snapshots WHERE run = ANY({})", INTS)
_TAILS = Statement(
    "SELECT log.run, log.seq, log.body FROM unnest({}, {}) AS wanted (run, after)"
    " JOIN log ON log.run = wanted.run AND log.seq > wanted.after ORDER BY log.run, log.seq",
    INTS,
    INTS,
)
_HISTORY = Statement(
    "SELECT seq, body FROM log WHERE run = (SELECT number FROM runs WHERE id = {}) AND seq > {} ORDER BY seq LIMIT {}",
    TEXT,
    INT,
    INT,
)
_PROGRAMS = Statement("SELECT digest, language, text FROM programs WHERE digest = ANY({})", BLOBS)
_VALUES = Statement(
    "SELECT digest, text FROM large_values WHERE run = (SELECT number FROM runs WHERE id = {}) AND digest = ANY({})",
    TEXT,
    BLOBS,
)
_VALUE_SIZES = Statement(
    "SELECT digest, octet_length(text) FROM large_values"
    " WHERE run = (SELECT number FROM runs WHERE id = {}) AND digest = ANY({})",
    TEXT,
    BLOBS,
)
_STREAM_ROWS = Statement(
    "SELECT key, body FROM stream_rows WHERE run = (SELECT number FROM runs WHERE id = {})"
    " AND key >= {} AND substr(key, 1, {}::integer) = {} ORDER BY key",
    TEXT,
    BLOB,
    INT,
    BLOB,
)
_WITH_WORK = Statement(
    "SELECT id FROM runs WHERE partition = ANY({}) AND has_work AND ended_at IS NULL ORDER BY number", INTS
)
_PARKED = "FROM runs WHERE partition = p AND NOT has_work AND ended_at IS NULL AND"
_DUE = Statement(
    "SELECT found.id FROM unnest({0}) AS p,"
    f" LATERAL ((SELECT due, id {_PARKED} due <= {{1}} ORDER BY due LIMIT {{2}})"
    f" UNION ALL (SELECT on_wall - {{3}}, id {_PARKED} on_wall <= {{1}} + {{3}} ORDER BY on_wall LIMIT {{2}})) AS found"
    " ORDER BY found.due, found.id LIMIT {2}",
    INTS,
    INT,
    INT,
    INT,
)
_NEXT_DUE = Statement(
    f"SELECT min(found.due) FROM unnest({{0}}) AS p, LATERAL ((SELECT due {_PARKED} due > {{1}} ORDER BY due LIMIT 1)"
    f" UNION ALL (SELECT on_wall - {{2}} {_PARKED} on_wall > {{1}} + {{2}} ORDER BY on_wall LIMIT 1)) AS found",
    INTS,
    INT,
    INT,
)
_INBOX = Statement(
    "SELECT found.*, runs.partition FROM unnest({}) AS p, LATERAL (SELECT position, partition, run, at, body FROM inbox"
    " WHERE partition = p ORDER BY position LIMIT {}) AS found LEFT JOIN runs ON runs.id = found.run"
    " ORDER BY found.position LIMIT {}",
    INTS,
    INT,
    INT,
)

_AWAITED = Statement(
    "SELECT permits.run, permits.permit, permits.scope FROM permits JOIN runs ON runs.id = permits.run"
    " WHERE NOT permits.granted AND starts_with(permits.scope, {}) AND runs.partition = ANY({})"
    " ORDER BY permits.scope, permits.run, permits.permit",
    TEXT,
    INTS,
)

_UNBORN = Statement(
    "SELECT DISTINCT run FROM inbox WHERE run >= {} AND run < {}"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = inbox.run)",
    TEXT,
    TEXT,
)
_IS_UNDECIDED = Statement(
    # Where it was sent to, where its run is, or anywhere between: a run may have moved twice.
    "SELECT 1 FROM inbox WHERE position = {} AND partition = ANY(ARRAY(SELECT {} UNION"
    " SELECT partition FROM runs WHERE id = {} UNION SELECT id FROM partitions))",
    INT,
    INT,
    TEXT,
)
_MESSAGES = Statement(
    # A message that was sent while its run was moved is in the old partition until it is forwarded.
    "SELECT position, partition, at, body FROM inbox WHERE run = {0} AND is_word = 1 UNION"
    " SELECT position, inbox.partition, at, body FROM runs JOIN inbox ON inbox.partition = runs.partition"
    " AND inbox.run = runs.id WHERE runs.id = {0} ORDER BY position",
    TEXT,
)

_LINE = Statement(
    "SELECT count(*) FILTER (WHERE granted), max(priority + CASE WHEN ageing > 0 AND NOT granted"
    " THEN ({} - asked_at) / ageing ELSE 0 END) FILTER (WHERE run <> {}) FROM permits WHERE scope = {}",
    INT,
    TEXT,
    TEXT,
)


_COUNTED = (
    "SELECT created_at / {0} * {0}, status, count(*) FROM (SELECT created_at, status FROM runs"
    " WHERE created_at + 0 >= {1} AND created_at + 0 < {2}%s ORDER BY created_at + 0 DESC LIMIT {3}) AS latest"
    " GROUP BY 1, 2"
)
_COUNT = Statement(_COUNTED % "", INT, INT, INT, INT)
_COUNT_AMONG = Statement(_COUNTED % " AND coalesce(namespace = ANY({4}), false)", INT, INT, INT, INT, TEXTS)
_PROGRAM_COUNTS = "SELECT program, name, count(*) FROM runs WHERE language = {} %sGROUP BY 1, 2"
_COUNT_PROGRAMS = Statement(_PROGRAM_COUNTS % "", TEXT)
_COUNT_PROGRAMS_CALLED = Statement(_PROGRAM_COUNTS % 'AND name COLLATE "C" = {} ', TEXT, TEXT)


_KEPT_COUNTS = (
    "SELECT hour / {0} * {0}, status, sum(number)::bigint FROM run_counts"
    " WHERE hour >= {1} AND hour < {2}%s GROUP BY 1, 2 HAVING sum(number) <> 0"
)
_KEPT = Statement(_KEPT_COUNTS % "", INT, INT, INT)
_KEPT_AMONG = Statement(_KEPT_COUNTS % " AND namespace = ANY({3})", INT, INT, INT, TEXTS)


class StoreReads(StorePart):
    """The reading verbs of a store that can answer a query."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = BatchedLookup(self._find_many)
        self._runs = BatchedLookup(self._load_many)
        self._programs = BatchedLookup(self._program_texts)

    @abstractmethod
    def _learn(self, numbers: dict[RunId, int]) -> None:
        """Short numbers of runs that are about to be written."""

    @abstractmethod
    async def _forward(self, strays: Sequence[int]) -> None:
        """Messages that were sent while their run was moved: bring them where it lives now."""

    async def find(self, run: RunId) -> RunRow | None:
        return (await self._rows.ask([run])).get(run)

    async def _find_many(self, runs: list[RunId]) -> dict[RunId, RunRow]:
        return {row.id: row for row in map(run_row, await self._read(_FIND, runs))}

    async def run_named(self, language: str, namespace: str, name: str) -> RunId | None:
        return next((id for (id,) in await self._read(_NAMED, language, namespace, name)), None)

    async def find_by_prefix(self, prefix: str, namespaces: Sequence[str] | None = None) -> list[RunId]:
        beginning, _, end = prefix.partition("…")
        values = (beginning, beginning + LAST, len(beginning) + 1, len(end), end)
        statement = _BEGINS if namespaces is None else _BEGINS_AMONG
        among = () if namespaces is None else (list(namespaces),)
        return [id for (id,) in await self._read(statement, *values, *among)]

    async def load(self, runs: Sequence[RunId]) -> list[StoredRun]:
        return list((await self._runs.ask(runs)).values())

    async def _load_many(self, runs: list[RunId]) -> dict[RunId, StoredRun]:
        rows = {number: run_row(tuple(rest)) for number, *rest in await self._read(_FIND_MANY, runs)}
        self._learn({row.id: number for number, row in rows.items()})
        snapshots = {run: (seq, body) for run, seq, body in await self._read(_SNAPSHOTS, list(rows))}
        tails: dict[int, list[tuple[int, bytes]]] = {number: [] for number in rows}
        after = [snapshots[number][0] if number in snapshots else 0 for number in rows]
        for run, seq, body in await self._read(_TAILS, list(rows), after):
            tails[run].append((seq, body))
        return {row.id: StoredRun(row, snapshots.get(number), tails[number]) for number, row in rows.items()}

    async def history(self, run: RunId, after: int = 0, limit: int | None = None) -> list[tuple[int, bytes]]:
        return [(seq, body) for seq, body in await self._read(_HISTORY, run, after, limit)]

    async def program(self, digest: bytes) -> tuple[str, bytes] | None:
        return (await self._programs.ask([digest])).get(digest)

    async def _program_texts(self, digests: list[bytes]) -> dict[bytes, tuple[str, bytes]]:
        return {digest: (language, text) for digest, language, text in await self._read(_PROGRAMS, digests)}

    async def values(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return dict(await self._read(_VALUES, run, digests)) if digests else {}

    async def value_sizes(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, int]:
        return dict(await self._read(_VALUE_SIZES, run, digests)) if digests else {}

    async def stream_rows(self, run: RunId, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        return await self._read(_STREAM_ROWS, run, prefix, len(prefix), prefix)

    async def search(self, filter: RunFilter) -> list[RunRow]:
        return [run_row(row) for row in await search_rows(self._read, filter)]

    async def count_runs(
        self, namespaces: Sequence[str] | None, begin: Instant, end: Instant, every: Instant, limit: int | None
    ) -> list[tuple[Instant, Status, int]]:
        statement, values = (
            _KEPT if limit is None else _COUNT,
            list[Any]([every, begin, end, *([] if limit is None else [limit])]),
        )
        if namespaces is not None:
            statement = _KEPT_AMONG if limit is None else _COUNT_AMONG
            values.append(list(namespaces))
        return [(start, Status(status), count) for start, status, count in await self._read(statement, *values)]

    async def count_programs(self, language: str, name: str | None = None) -> list[tuple[bytes, str, int]]:
        if name is None:
            return [tuple(row) for row in await self._read(_COUNT_PROGRAMS, language)]
        return [tuple(row) for row in await self._read(_COUNT_PROGRAMS_CALLED, language, name)]

    async def ended(self, languages: Sequence[str], after: tuple[Instant, RunId], limit: int) -> list[RunRow]:
        return [run_row(row) for row in await self._read(_ENDED, *after, languages, limit)]

    async def runs_with_work(self, partitions: Sequence[int]) -> list[RunId]:
        return [id for (id,) in await self._read(_WITH_WORK, partitions)]

    async def due(self, partitions: Sequence[int], until: Instant, limit: int, ahead: Instant = 0) -> list[RunId]:
        rows = await self._read(_DUE, partitions, until, limit, ahead)
        return list(dict.fromkeys(id for (id,) in rows))  # one may be due by both clocks

    async def next_due(self, partitions: Sequence[int], after: Instant, ahead: Instant = 0) -> Instant | None:
        rows = await self._read(_NEXT_DUE, partitions, after, ahead)
        due: Instant | None = rows[0][0]
        return due

    async def line(self, scope: str, run: RunId) -> PermitQueue:
        ((held, highest),) = await self._read(_LINE, self._now(), run, scope)
        return PermitQueue(held, highest)

    async def waiting_permits(self, prefix: str, partitions: Sequence[int]) -> list[tuple[RunId, int, str]]:
        return [(run, permit, scope) for run, permit, scope in await self._read(_AWAITED, prefix, partitions)]

    async def inbox(self, partitions: Sequence[int], limit: int) -> list[DeliveredMessage]:
        delivered, strays = [], []
        for position, partition, run, at, body, home in await self._read(_INBOX, partitions, limit, limit):
            if home is None or home == partition:
                delivered.append(DeliveredMessage(position, partition, Message(run, at, body)))
            else:
                strays.append(position)
        if strays:
            await self._forward(strays)
        return delivered

    async def unstarted_children(self, run: RunId) -> list[RunId]:
        return [id for (id,) in await self._read(_UNBORN, f"{run}.", f"{run}.{LAST}")]

    async def messages(self, run: RunId) -> list[DeliveredMessage]:
        rows = await self._read(_MESSAGES, run)
        return [DeliveredMessage(position, partition, Message(run, at, body)) for position, partition, at, body in rows]

    async def is_undecided(self, sent: DeliveredMessage) -> bool:
        return bool(await self._read(_IS_UNDECIDED, sent.position, sent.partition, sent.message.to))
