"""What tasks of this process print and log, on its way into the store: in batches, at most once a second.

No result waits for it, and a store that cannot take it costs nothing but the lines. Of one attempt, and of all that
waits to be written, the latest lines are kept.
"""

import asyncio
import logging
from collections import deque
from typing import Any

import msgspec

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.clock import Clock
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.assignments import Assignment
from perdure.stores.commit_types import LOG_BYTES_PER_ATTEMPT, TaskLogRow
from perdure.stores.errors import StoreError
from perdure.stores.protocol import Store
from perdure.stores.records import TaskLogRecord

_log = logging.getLogger("perdure.engine")

EVERY = 1.0  # seconds between two writes
SOON = 0.1  # seconds after the first line, in which others may follow
ROW_BYTES = 128 * 1024
LONGEST_LINE = 64 * 1024  # characters
MOST_WAITING = 32 << 20  # bytes


class LogLine(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    at: Instant
    level: str
    text: str
    stream: str = ""  # stdout, stderr: it was printed
    fields: dict[str, Any] = {}


_encoder = msgspec.json.Encoder(enc_hook=str)

_Key = tuple[RunId, int, int, int, str]


class _Waiting:
    __slots__ = ("lines", "size")

    def __init__(self) -> None:
        self.lines: deque[tuple[int, bytes]] = deque()  # with their numbers
        self.size = 0


class TaskLogs:
    def __init__(self, store: Store, clock: Clock, tasks: BackgroundTasks) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._waiting: dict[_Key, _Waiting] = {}
        self._size = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._written_at = 0.0
        self._is_failing = False

    def add(self, assignment: Assignment, number: int, level: str, text: str, fields: dict[str, Any]) -> None:
        """Line `number` of this delivery; called on the event loop."""
        if len(text) > LONGEST_LINE:
            text = f"{text[:LONGEST_LINE]}… ({len(text) - LONGEST_LINE} more characters)"
        stream = fields["stream"] if isinstance(fields.get("stream"), str) else ""
        if stream:
            fields = {name: value for name, value in fields.items() if name != "stream"}
        text = text.encode("utf-8", "backslashreplace").decode()
        line = _encoder.encode(LogLine(self._clock.now(), level, text, stream, fields))
        key = (assignment.run, assignment.task, assignment.attempt, assignment.delivery, assignment.path)
        waiting = self._waiting.get(key) or self._waiting.setdefault(key, _Waiting())
        waiting.lines.append((number, line))
        waiting.size += len(line)
        self._size += len(line)
        while waiting.size > LOG_BYTES_PER_ATTEMPT:
            self._drop_oldest(waiting)
        while self._size > MOST_WAITING:
            self._drop_oldest(next(iter(self._waiting.values())))
        if self._alarm is None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(SOON, self._written_at + EVERY - loop.time()), self._write_waiting)

    def _drop_oldest(self, waiting: _Waiting) -> None:
        _, line = waiting.lines.popleft()
        waiting.size -= len(line)
        self._size -= len(line)
        if not waiting.lines:
            self._waiting = {key: kept for key, kept in self._waiting.items() if kept is not waiting}

    def _write_waiting(self) -> None:
        self._tasks.spawn(self.write())

    async def write(self) -> None:
        """Write what waits."""
        if self._alarm is not None:
            self._alarm.cancel()
        waiting, self._waiting, self._size = self._waiting, {}, 0
        rows = [row for key, lines in waiting.items() for row in _rows(key, lines.lines)]
        try:
            if rows:
                await self._store.write_task_logs(rows)
            self._is_failing = False
        except StoreError as error:
            if not self._is_failing:
                _log.warning("what tasks have logged cannot be stored and is lost: %s", error)
            self._is_failing = True
        self._written_at = asyncio.get_running_loop().time()
        self._alarm = None
        if self._waiting:
            self._alarm = asyncio.get_running_loop().call_later(EVERY, self._write_waiting)


def _rows(key: _Key, lines: deque[tuple[int, bytes]]) -> list[TaskLogRow]:
    rows = []
    run, task, attempt, delivery, path = key
    piece: list[bytes] = []
    first = size = 0
    for number, line in lines:
        if piece and size + len(line) > ROW_BYTES:
            rows.append(TaskLogRow(run, task, attempt, delivery, path, first, len(piece), _body(piece)))
            piece, size = [], 0
        if not piece:
            first = number
        piece.append(line)
        size += len(line)
    if piece:
        rows.append(TaskLogRow(run, task, attempt, delivery, path, first, len(piece), _body(piece)))
    return rows


def _body(lines: list[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"


_decoder = msgspec.json.Decoder(list[LogLine])


def read_lines(row: TaskLogRow | TaskLogRecord) -> list[LogLine]:
    return _decoder.decode(row.body)
