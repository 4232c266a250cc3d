"""A run as a capsule: its documents, its history and values, and what its tasks printed, without secrets.

Secrets of the host are in no history. What a run's language hides of its input is replaced in everything that is
written, also in the runs above and below it, and the capsule says where.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.decision_threads import WORK_OF_TEXT, ShortTurns, done_aside
from perdure.engine.runs import run_views
from perdure.engine.runs.capsules import CapsuleChain, CapsuleHead
from perdure.engine.runs.run_documents import begin_folding, moves_in, read_former
from perdure.kernel.codec import decode_turns, encode_turns, fold
from perdure.kernel.dialect import Dialect
from perdure.kernel.events import Event
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Ref, RunId
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.versions import read_pinned
from perdure.stores.commit_types import TaskLogRow
from perdure.stores.protocol import RunFilter, RunRow
from perdure.stores.records import (
    LogRecord,
    ProgramRecord,
    Record,
    RunRecord,
    StreamRowRecord,
    TaskLogRecord,
    ValueRecord,
)

if TYPE_CHECKING:
    from perdure.engine.client import Client

READ_AT_ONCE = 1 << 20  # bytes of values
MOST_LOG_BYTES = 8 << 20
"""What tasks of all runs of a capsule printed: the latest of each run, as far as there is room for it."""


async def write_capsule(client: "Client", run: RunId, version: str) -> AsyncIterator[bytes]:
    """The lines of the file, each with its end."""
    row = await client.find(run)
    head = CapsuleHead(
        engine=version,
        run=row.id,
        name=row.name,
        language=row.language,
        namespace=row.namespace,
        exported_at=client.clock.wall(),
    )
    async for line in CapsuleWriter(client).write(head, row):
        yield line


class CapsuleWriter:
    def __init__(self, client: "Client") -> None:
        self._client = client
        self._chain = CapsuleChain()
        self._mask = Mask()  # of all runs of the family that are read: a secret may be handed on
        self._redacted: list[str] = []
        self._room = MOST_LOG_BYTES
        self._lines_left_out = 0

    async def write(self, head: CapsuleHead, row: RunRow) -> AsyncIterator[bytes]:
        chain = self._chain
        yield chain.add(msgspec.to_builtins(head))
        rows = await self._family(row)
        programs: set[bytes] = set()
        short_turns = ShortTurns()
        for row in rows:
            pinned = await self._client.store.program(row.program)
            assert pinned is not None, "a run keeps its document"
            if row.program not in programs:
                programs.add(row.program)
                yield await self._write("document", ProgramRecord(row.program, *pinned), pinned[1])
            yield chain.record("run", self._run_record(row))
            for part in (self._write_history(row, pinned), self._write_streams(row), self._write_logs(row)):
                async for line in part:
                    yield line
                    await short_turns.pause()
        yield chain.add({"redacted": self._redacted})
        if self._lines_left_out:
            yield chain.add({"lines_left_out": self._lines_left_out})
        yield chain.add({"end": chain.count})

    async def _family(self, row: RunRow) -> list[RunRow]:
        """The run and all below it; what any of them hides, and those above it, is known afterwards."""
        client, rows = self._client, [row]
        for below in rows:
            rows += await client.search(RunFilter(parent=below.id))
        above, parent = list[RunRow](), row.parent
        while parent is not None and (higher := await client.store.find(parent)) is not None:
            above.append(higher)
            parent = higher.parent
        for member in (*above, *rows):
            self._mask.include(await run_views.mask_of_run(client.store, client.languages, member))
        return rows

    async def _write_history(self, row: RunRow, pinned: tuple[str, bytes]) -> AsyncIterator[bytes]:
        store, mask = self._client.store, self._mask
        with run_views.naming(row.id):
            dialect = run_views.dialect_of(self._client.languages, row.language)
            rows = await store.history(row.id)
            large: dict[bytes, int] = {}
            former = await read_former(store, row.id, moves_in(await run_views.turns(store, dialect, row.id)))

            def prepare() -> tuple[list[tuple[int, bytes]], str]:
                kept = [(last, self._redact(row.id, dialect, last, body, large)) for last, body in rows]
                program = read_pinned(dialect, *pinned)
                execution = begin_folding(row.id, dialect, former, program)
                return kept, run_views.checksum(fold(execution, kept))

            kept, checksum = await done_aside(run_views.bytes_of(rows) + WORK_OF_TEXT * len(pinned[1]), prepare)
        for last, body in kept:
            yield await self._write("events", LogRecord(row.id, last, body), body)
        for digests in _portions(large):
            for digest, value in (await store.values(row.id, digests)).items():
                hidden = await done_aside(len(value), partial(mask.json, value))
                if hidden is not value:
                    self._redacted.append(f"{row.id} value {digest.hex()}")
                yield await self._write("value", ValueRecord(row.id, digest, hidden), hidden)
        yield self._chain.add({"checksum": checksum, "run": row.id})

    async def _write_streams(self, row: RunRow) -> AsyncIterator[bytes]:
        """The numbers of its streams; packets on their way are not part of what happened."""
        for key, body in await self._client.store.stream_rows(row.id, run_views.STREAM_NUMBERS):
            yield await self._write("stream", StreamRowRecord(row.id, key, body), body)

    async def _write_logs(self, row: RunRow) -> AsyncIterator[bytes]:
        """The latest lines that its tasks printed, as many as there is room for."""
        logs = await self._client.store.task_logs(row.id)
        kept: list[TaskLogRow] = []
        for log in reversed(logs):
            if len(log.body) > self._room:
                break
            self._room -= len(log.body)
            kept.append(log)
        self._lines_left_out += sum(log.lines for log in logs[: len(logs) - len(kept)])
        for log in reversed(kept):
            body = await done_aside(len(log.body), partial(self._mask.json, log.body))
            if not body.startswith(b"["):  # hidden as a whole
                self._lines_left_out += log.lines
                continue
            if body is not log.body:
                self._redacted.append(f"{row.id} output of task {log.task}")
            members = log.task, log.attempt, log.delivery, log.path, log.first_line, log.lines
            yield await self._write("log", TaskLogRecord(row.id, *members, body), body)

    async def _write(self, kind: str, record: Record, text: bytes) -> bytes:
        """A line of the file; a long one is made in a thread."""
        return await done_aside(len(text), lambda: self._chain.record(kind, record))

    def _run_record(self, row: RunRow) -> RunRecord:
        return RunRecord(
            row.id,
            row.language,
            row.name,
            row.program,
            row.parent,
            self._mask.data(row.labels),
            row.key,
            row.status.value,
            row.has_work,
            row.due,
            row.created_at,
            row.ended_at,
            None if row.stuck is None else self._mask.text(row.stuck),
            row.on_wall,
            row.namespace,
        )

    def _redact(self, run: RunId, dialect: Dialect, last: int, body: bytes, large: dict[bytes, int]) -> bytes:
        """A row of the log without secrets; noted are the large values it refers to, and where something was hidden."""
        turns = decode_turns(dialect, body)
        for _, events in turns:
            for event in events:
                for name in event.__struct_fields__:
                    large.update(_references(getattr(event, name)))
        if not self._mask.hides:
            return body
        number = last - sum(len(events) for _, events in turns)
        hidden_turns: list[tuple[Instant, list[Event]]] = []
        for instant, events in turns:
            hidden: list[Event] = []
            for event in events:
                number += 1
                hidden.append(_hide(event, self._mask))
                if hidden[-1] != event:
                    self._redacted.append(f"{run} event {number} {type(event).__name__}")
            hidden_turns.append((instant, hidden))
        return encode_turns(hidden_turns)


def _portions(sizes: Mapping[bytes, int]) -> Iterator[list[bytes]]:
    """Digests of values that are read together."""
    portion: list[bytes] = []
    size = 0
    for digest, length in sizes.items():
        if portion and size + length > READ_AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(digest)
        size += length
    if portion:
        yield portion


def _references(value: Any) -> Iterator[tuple[bytes, int]]:
    if isinstance(value, Ref):
        yield value.digest, value.size
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _references(getattr(value, name))
    elif isinstance(value, dict):
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _references(member)


def _hide(value: Any, mask: Mask) -> Any:
    if isinstance(value, Ref):
        return value
    if isinstance(value, msgspec.Struct):
        return type(value)(*(_hide(getattr(value, name), mask) for name in value.__struct_fields__))
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, bytes):
        try:
            jsontext.decode(value)
        except (msgspec.DecodeError, ValueError):
            return mask.raw(value) if value.isascii() else value
        return mask.json(value)
    if isinstance(value, dict):
        return {_hide(name, mask): _hide(member, mask) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_hide(member, mask) for member in value)
    return value
