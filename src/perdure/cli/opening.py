"""How a verb gets at the engine: what is loaded first, which store is opened, where the log goes."""

import argparse
import logging
import os
import shlex
from collections.abc import Iterable

from perdure.cli.complaints import DEBUG
from perdure.cli.errors import LoadFailed
from perdure.cli.idlehands import IdleHands
from perdure.cli.talk import Talk
from perdure.engine.clock import SystemClock
from perdure.wiring import DEFAULT_STORE, Engine, Observer, open_store


def open_engine(asked: argparse.Namespace, talk: Talk, *, must_exist: bool = False) -> Engine:
    """An engine that does the work itself, with the providers that were asked for.

    Where nothing is to be followed it begins no task: its process is about to end.
    """
    log_to(talk, asked.verbose)
    load_sources(asked.load)
    clock = SystemClock()
    store = open_store(asked.db, clock, must_exist=must_exist)
    return Engine(store, clock=clock, hands=IdleHands() if getattr(asked, "detach", False) else None)


def open_observer(asked: argparse.Namespace, talk: Talk) -> Observer:
    log_to(talk, asked.verbose)
    return Observer(asked.db)


def load_sources(sources: Iterable[str]) -> None:
    from perdure.providers.loading import LoadError, load

    for source in sources:
        try:
            load(source)
        except LoadError as error:
            raise LoadFailed(str(error)) from error


def resume_command(asked: argparse.Namespace, *runs: str) -> str:
    """What to type to go on with these runs, from the same folder."""
    words = ["perdure", "resume", *runs]
    if asked.db != DEFAULT_STORE and asked.db != os.environ.get("PERDURE_DB"):
        words += ["--db", asked.db]
    for source in getattr(asked, "load", ()):
        words += ["--load", source]
    return shlex.join(words)


def log_to(talk: Talk, verbosity: int) -> None:
    """Show the log of the engine, and of the event loop under it, as plain lines among the talk."""
    for name in ("perdure", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
        logger.handlers = [_TalkHandler(talk)]
        logger.propagate = False


class _TalkHandler(logging.Handler):
    def __init__(self, talk: Talk) -> None:
        super().__init__()
        self._talk = talk

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().partition("\n")[0]
        if hasattr(record, "path"):  # a task speaks
            text = f"{getattr(record, 'run', '')} {record.path}: {text}"
        if record.exc_info and os.environ.get(DEBUG):
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        elif record.exc_info and (error := record.exc_info[1]) is not None and str(error) not in text:
            text = f"{text}: {type(error).__name__}: {error}"
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else "dim"
        self._talk.insist(f"{self._talk.paint(record.levelname.lower() + ':', style)} {text}")
