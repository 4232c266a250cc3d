"""The log of the engine, and of the event loop under it, as single plain lines among the talk."""

import logging
import os

from perdure.cli.console import Console, indented
from perdure.cli.error_output import DEBUG

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
"""By how often -v was given."""


def log_to(talk: Console, verbosity: int) -> None:
    for name in ("perdure", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(LEVELS[min(verbosity, len(LEVELS) - 1)])
        logger.handlers = [_TalkHandler(talk)]
        logger.propagate = False


class _TalkHandler(logging.Handler):
    def __init__(self, talk: Console) -> None:
        super().__init__()
        self._talk = talk

    def emit(self, record: logging.LogRecord) -> None:
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else "dim"
        self._talk.always(f"{self._talk.paint(record.levelname.lower() + ':', style)} {_line(record)}")


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
