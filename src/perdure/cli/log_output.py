"""The log of the engine, and of the event loop under it: plain lines among the talk, or all of it as JSON lines."""

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any, TextIO

from perdure.cli.console import Console, harmless_json, indented
from perdure.cli.error_output import DEBUG
from perdure.kernel.trace_context import trace_id

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
"""By how often -v was given."""

FORMATS = ("text", "json")


def log_to(talk: Console, verbosity: int) -> None:
    for name in ("perdure", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(LEVELS[min(verbosity, len(LEVELS) - 1)])
        logger.handlers = [_TalkHandler(talk)]
        logger.propagate = False


class JsonConsole(Console):
    """Each line is an object with `time`, `level` and `message`, and what it is about: `run`, `task`, `fields` …"""

    def __init__(self, stream: TextIO, *, is_quiet: bool = False) -> None:
        super().__init__(stream, is_quiet=is_quiet)
        self.is_live = self.paint.is_on = False

    def always(self, text: str) -> None:
        self.log("info", text, {})

    def tell(self, run: str, text: str) -> None:
        if not self.is_quiet:
            self.log("info", text, {"run": run})

    def log(self, level: str, text: str, members: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        entry = {"time": now, "level": level, "message": text, **members}
        try:
            self._stream.write(harmless_json(json.dumps(entry, ensure_ascii=False, default=str)) + "\n")
            self._stream.flush()
        except BrokenPipeError:
            pass  # nobody reads the messages; the work goes on


class _TalkHandler(logging.Handler):
    def __init__(self, talk: Console) -> None:
        super().__init__()
        self._talk = talk

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(self._talk, JsonConsole):
            self._talk.log(record.levelname.lower(), record.getMessage(), _members(record))
        else:
            self._talk.log(record.levelname.lower(), _line(record), {})


def _members(record: logging.LogRecord) -> dict[str, Any]:
    members: dict[str, Any] = {"logger": record.name}
    for member, attribute in (("run", "run"), ("task", "path"), ("fields", "fields")):
        if value := getattr(record, attribute, None):
            members[member] = value
    if run := getattr(record, "run", None):
        members["trace_id"] = getattr(record, "trace", "")[3:35] or trace_id(run, {})
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        members["error"] = f"{type(error).__name__}: {error}"
        if os.environ.get(DEBUG):
            members["traceback"] = logging.Formatter().formatException((type(error), error, error.__traceback__))
    return members


def _line(record: logging.LogRecord) -> str:
    text = record.getMessage().partition("\n")[0]
    if hasattr(record, "path"):  # a task speaks
        text = f"{getattr(record, 'run', '')} {record.path}: {text}"
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return text
    if os.environ.get(DEBUG):
        return f"{text}\n{logging.Formatter().formatException((type(error), error, error.__traceback__))}"
    return text if str(error) in text else indented(f"{text}: {type(error).__name__}: {error}")
