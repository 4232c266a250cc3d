"""What one execution of an Engram logs: told to the run when it ends, if there is anything to tell (STY-263).

It is bounded: of what is too much the latest is kept, with the number of lines before it.
"""

from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.discretion import cut, without_secrets
from perdure.kernel.errors import PerdureError
from perdure.providers.context import BlockingContext, TaskContext

MOST_BYTES = 64 * 1024
LONGEST_LINE = 4 * 1024


class Logbook:
    def __init__(self) -> None:
        self._lines: deque[tuple[dict[str, Any], int]] = deque()
        self._size = 0
        self._dropped = 0

    def add(self, message: str, level: str = "info", fields: dict[str, Any] | None = None) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"at": at, "level": level, "message": cut(without_secrets(message), LONGEST_LINE)}
        if fields:
            line["fields"] = _plain(fields)
        size = len(jsontext.encode(line))
        self._lines.append((line, size))
        self._size += size
        while self._size > MOST_BYTES:
            self._size -= self._lines.popleft()[1]
            self._dropped += 1

    def add_text(self, text: str, level: str = "info") -> None:
        """What a process has written, line by line."""
        for line in text.splitlines():
            if line.strip():
                self.add(line, level)

    def _report(self) -> dict[str, Any]:
        lines = [line for line, _ in self._lines]
        return {"log": lines, "dropped": self._dropped} if self._dropped else {"log": lines}

    async def tell(self, context: TaskContext) -> None:
        """Whoever cannot be told now (the task is another execution's, there is no way to the run) is told nothing:
        the worker's log has it, and how the Engram ended counts more.
        """
        if self._lines:
            with suppress(PerdureError):
                await context.report(self._report())

    def tell_blocking(self, context: BlockingContext) -> None:
        if self._lines:
            with suppress(PerdureError):
                context.report(self._report())


def _plain(fields: dict[str, Any]) -> dict[str, str]:
    return {name: cut(without_secrets(str(value)), LONGEST_LINE // 4) for name, value in fields.items()}
