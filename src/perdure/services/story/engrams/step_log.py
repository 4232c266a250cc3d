"""What one execution of an Engram logs: told to the run when it ends, if there is anything to tell (STY-263).

It is bounded: of what is too much the latest is kept, with the number of lines before it.
"""

from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.errors import PerdureError
from perdure.kernel.secret_masking import cut, without_secrets
from perdure.providers.context import BlockingContext, SecretSource, TaskContext
from perdure.providers.text import MARGIN

MOST_BYTES = 64 * 1024
LONGEST_LINE = 4 * 1024
MOST_HELD = 32 * MOST_BYTES
"""Until it is told: whole lines, since secrets are taken out of a line before anything else is."""


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
        self._size += _held(line)
        while self._size > MOST_HELD:
            self._size -= _held(self._lines.popleft())
            self._dropped += 1

    def add_text(self, text: str, level: str = "info") -> None:
        """What a process has written, line by line."""
        for line in text.splitlines():
            if line.strip():
                self.add(line, level)

    def _report(self, secrets: SecretSource) -> dict[str, Any]:
        """The latest lines: without secrets first, then cut, then as many as there is room for."""
        lines: deque[dict[str, Any]] = deque()
        room = MOST_BYTES
        for line in reversed(secrets.redact(list(self._lines))):
            short = _cut(line)
            room -= len(jsontext.encode(short))
            if room < 0:
                break
            lines.appendleft(short)
        dropped = self._dropped + len(self._lines) - len(lines)
        return {"log": list(lines), "dropped": dropped} if dropped else {"log": list(lines)}

    async def report(self, context: TaskContext) -> None:
        """Whoever cannot be told now (the task is another execution's, there is no way to the run) is told nothing:
        the worker's log has it, and how the Engram ended counts more.
        """
        if self._lines:
            with suppress(PerdureError):
                await context.report(self._report(context.secrets))

    def report_blocking(self, context: BlockingContext) -> None:
        if self._lines:
            with suppress(PerdureError):
                context.report(self._report(context.secrets))


def _held(line: dict[str, Any]) -> int:
    return len(line["message"]) + sum(map(len, line.get("fields", {}).values())) + 100


def _cut(line: dict[str, Any]) -> dict[str, Any]:
    short = {**line, "message": cut(without_secrets(line["message"]), LONGEST_LINE)}
    if "fields" in line:
        fields = line["fields"].items()
        short["fields"] = {name: cut(without_secrets(value), LONGEST_LINE // 4) for name, value in fields}
    return short
