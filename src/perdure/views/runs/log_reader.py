"""What the tasks of a run printed and logged, line by line, and where older lines are gone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import done_aside
from perdure.engine.runs import run_views
from perdure.engine.tasks.task_log_writer import LogLine, read_lines
from perdure.kernel.errors import RunNotFound
from perdure.kernel.json_values.values import RunId
from perdure.kernel.secrets.secret_masking import Mask
from perdure.stores.commit_types import LOG_BYTES_PER_ATTEMPT, LOG_BYTES_PER_RUN, TaskLogRow
from perdure.views.runs.progress_events import step_of_path
from perdure.views.times import iso

LOOK_EVERY = 0.25  # seconds
LAST_LINES = 1.5  # seconds after the end of a run in which its owner writes the last ones

GONE = (
    f"{{count}} older lines are gone: {LOG_BYTES_PER_ATTEMPT >> 20} MiB of an attempt"
    f" and {LOG_BYTES_PER_RUN >> 20} MiB of a run are kept"
)


class TaskLine(msgspec.Struct, frozen=True):
    path: str
    task: int
    attempt: int
    delivery: int
    line: LogLine
    place: tuple[int, int] = (0, 0)  # the position of its row, and its number there

    @property
    def step(self) -> str:
        """`each[2] › one`."""
        return step_of_path(self.path)

    def plain(self) -> dict[str, Any]:
        return {
            "at": iso(self.line.at),
            "step": self.step,
            "path": self.path,
            "task": self.task,
            "attempt": self.attempt,
            "delivery": self.delivery,
            "level": self.line.level,
            "stream": self.line.stream or None,
            "text": self.line.text,
            "fields": self.line.fields,
        }


def step_names(path: str) -> list[str]:
    """The names of steps and tasks in the path of a task."""
    return [part.partition("[")[0] for part in step_of_path(path).split(" › ")]


class TaskLogReader:
    """Reads on from where it was; knows which lines should come next."""

    def __init__(self, client: Client, run: RunId, step: str | None = None) -> None:
        self._client = client
        self._run = run
        self._step = step
        self._after = 0
        self._next: dict[tuple[int, int, int], int] = {}
        self._mask: Mask | None = None

    async def read(self) -> list[TaskLine]:
        if self._mask is None:
            row = await self._client.find(self._run)
            self._mask = await run_views.mask_of_run(self._client.store, self._client.languages, row)
        rows, mask = await self._client.store.task_logs(self._run, self._after), self._mask
        size = sum(len(row.body) for row in rows)
        return await done_aside(size, lambda: [line for row in rows for line in self._lines(row, mask)])

    def _lines(self, row: TaskLogRow, mask: Mask) -> Iterator[TaskLine]:
        self._after = row.position
        if self._step is not None and self._step != row.path and self._step not in step_names(row.path):
            return
        key = (row.task, row.attempt, row.delivery)
        lines = read_lines(row)
        missing = row.first_line - self._next.get(key, 1)
        if missing > 0 and lines:
            gone = LogLine(lines[0].at, "warning", GONE.format(count=missing))
            yield TaskLine(row.path, *key, gone, (row.position, 0))
        self._next[key] = row.first_line + row.lines
        for number, line in enumerate(lines, 1):
            hidden = LogLine(line.at, line.level, mask.text(line.text), line.stream, mask.data(line.fields))
            yield TaskLine(row.path, *key, hidden, (row.position, number))

    async def follow(self) -> AsyncIterator[TaskLine]:
        """Lines as they come, until the run has ended and its last lines are written."""
        quiet = 0.0
        while True:
            is_over = True
            with suppress(RunNotFound):  # it may be removed meanwhile
                is_over = (await self._client.find(self._run)).status.is_final
            lines = await self.read()
            for line in lines:
                yield line
            quiet = quiet + LOOK_EVERY if is_over and not lines else 0.0
            if quiet >= LAST_LINES:
                return
            await asyncio.sleep(LOOK_EVERY)
