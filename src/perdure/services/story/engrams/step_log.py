"""The log of one execution of an Engram, reported to the run at its end if it is not empty (STY-263).

Its size is bounded: the latest lines are kept, with the number of lines that were dropped.
"""

from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.secrets.secret_masking import cut, data_without_secrets, without_secrets
from perdure.providers.context import BlockingContext, SecretSource, TaskContext
from perdure.providers.text import MARGIN

MAX_REPORT_BYTES = 64 * 1024
MOST_LINES = MAX_REPORT_BYTES // 60  # none takes less
LONGEST_LINE = 4 * 1024
MAX_BUFFERED_BYTES = 32 * MAX_REPORT_BYTES
"""Until it is reported: whole lines, because secrets are removed from a line before it is shortened."""


class StepLog:
    def __init__(self) -> None:
        self._lines: deque[dict[str, Any]] = deque()
        self._size = 0
        self._dropped = 0

    def add(self, message: str, level: str = "info", fields: dict[str, Any] | None = None) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"at": at, "level": level, "message": message[: LONGEST_LINE + MARGIN]}
        if fields:
            line["fields"] = {name: str(value)[: LONGEST_LINE + MARGIN] for name, value in fields.items()}
        self._lines.append(line)
        self._size += _size_of(line)
        while self._size > MAX_BUFFERED_BYTES:
            self._size -= _size_of(self._lines.popleft())
            self._dropped += 1

    def add_text(self, text: str, level: str = "info") -> None:
        """Add the output of a process, line by line; only as many as can be reported."""
        lines = [line for line in text.splitlines() if line.strip()]
        self._dropped += max(0, len(lines) - MOST_LINES)
        for line in lines[-MOST_LINES:]:
            self.add(line, level)

    def _report(self, secrets: SecretSource) -> dict[str, Any]:
        """The latest lines: secrets are removed first, then lines are shortened, then as many are taken as fit."""
        lines: deque[dict[str, Any]] = deque()
        remaining = MAX_REPORT_BYTES
        for line in reversed(secrets.redact(list(self._lines))):
            short = _cut(line)
            remaining -= len(jsontext.encode(short))
            if remaining < 0:
                break
            lines.appendleft(short)
        dropped = self._dropped + len(self._lines) - len(lines)
        return {"log": list(lines), "dropped": dropped} if dropped else {"log": list(lines)}

    async def report(self, context: TaskContext, step: str = "") -> None:
        """Report the log to the run. If that fails (another execution has the task, or the run cannot be reached), the
        log is dropped: the worker's log has it too, and the result of the Engram matters more.

        `step`: where one task carries several steps.
        """
        if self._lines:
            with suppress(PerdureError):
                report = self._report(context.secrets)
                await context.report({"step": step, **report} if step else report)

    def report_blocking(self, context: BlockingContext) -> None:
        if self._lines:
            with suppress(PerdureError):
                context.report(self._report(context.secrets))


def _size_of(line: dict[str, Any]) -> int:
    return len(line["message"]) + sum(map(len, line.get("fields", {}).values())) + 100


def _cut(line: dict[str, Any]) -> dict[str, Any]:
    short = {**line, "message": cut(without_secrets(line["message"]), LONGEST_LINE)}
    if "fields" in line:
        fields = data_without_secrets(line["fields"]).items()
        short["fields"] = {name: cut(value, LONGEST_LINE // 4) for name, value in fields}
    return short
