"""What the functions of tasks print and log, caught in processes that are ours: the command line and its servers.

A program that embeds the engine keeps its `sys.stdout` and its loggers: nothing here is installed there. What is
printed outside of a task goes where it went before.
"""

import io
import logging
import sys
from typing import TextIO

from perdure.kernel.secrets.secret_masking import without_secrets
from perdure.providers.text import Capture, Echo, at_work

NOT_OURS = ("perdure", "asyncio", "httpx", "httpcore", "urllib3", "concurrent")
"""Loggers of what carries tasks out, not of their own code."""


def install_capture(echo: Echo | None = None) -> None:
    """Catch what tasks print and log from here on."""
    uninstall_capture()
    root, handler = logging.getLogger(), _TaskHandler()
    stdout, stderr, level = sys.stdout, sys.stderr, root.level
    sys.stdout, sys.stderr = _TaskStream(stdout, "stdout"), _TaskStream(stderr, "stderr")
    root.addHandler(handler)
    root.setLevel(min(level or logging.INFO, logging.INFO))
    Capture.is_on = True
    Capture.echo = None if echo is None else lambda path, text: echo(path, without_secrets(text))

    def restore() -> None:
        root.removeHandler(handler)
        root.setLevel(level)
        sys.stdout, sys.stderr = stdout, stderr

    Capture.restore = restore


def uninstall_capture() -> None:
    """Put everything back."""
    if Capture.restore is not None:
        Capture.restore()
    Capture.is_on, Capture.echo, Capture.restore = False, None, None


class _TaskStream(io.TextIOBase):
    """Looks like the stream it stands for; only text that a task writes goes elsewhere."""

    def __init__(self, inner: TextIO, name: str) -> None:
        self._inner = inner
        self._stream = name

    def write(self, text: str, /) -> int:
        task = at_work.get()
        if task is None:
            return self._inner.write(text)
        task.printed(self._stream, text)
        return len(text)

    def flush(self) -> None:
        if at_work.get() is None:
            self._inner.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    @property
    def buffer(self) -> object:
        return self._inner.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._inner.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._inner.errors

    def isatty(self) -> bool:
        return self._inner.isatty()

    def fileno(self) -> int:
        return self._inner.fileno()

    def writable(self) -> bool:
        return True


class _TaskHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        task = at_work.get()
        if task is not None and record.name.partition(".")[0] not in NOT_OURS:
            try:
                task.logged(record.levelname.lower(), record.getMessage(), record.name)
            except Exception:  # a message whose arguments do not fit is the function's mistake, not the task's failure
                self.handleError(record)
        elif record.levelno >= logging.WARNING and logging.lastResort is not None and _is_alone(self):
            logging.lastResort.handle(record)


def _is_alone(handler: logging.Handler) -> bool:
    return all(other is handler for other in logging.getLogger().handlers)
