"""For tests and tools of other packages: an engine without work, loading of sources, and the log as it is recorded.

    load_source("providers.py")                               as `--load` does
    async with perdure.Engine(url, hands=IdleExecutor()) as engine:
        run = await engine.start(document)                    it is recorded, and its tasks stay scheduled
        rows = [row for _, row in await engine.store.history(run.id)]
    decode_log("flow", rows)                                  what `perdure history --raw` prints

These names stay as they are; what they use inside may change.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.engine.runs.run_views import numbered
from perdure.engine.tasks.executor import NullExecutor
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.providers.source_loading import load
from perdure.wiring import languages


class IdleExecutor(NullExecutor):
    """Performs nothing: the tasks of an engine that has it stay scheduled, for another process to perform."""


def load_source(source: str) -> None:
    """Import `file.py` or `package.module`, whose decorators register providers and Engrams; each source once.

    Raises `perdure.providers.LoadError`, which names the file and line of the fault.
    """
    load(source)


def decode_log(
    language: str, rows: Iterable[bytes], known: Mapping[str, Dialect] | None = None
) -> list[dict[str, Any]]:
    """The events in the rows of a run's log, from its first one: `seq`, `at` (microseconds), `event` and its fields.

    `known` are the languages of the program that wrote them, if not those that come with Perdure. Nothing is hidden:
    secrets that are part of an event are shown.
    """
    dialect = (known or languages())[language]
    turns = [turn for row in rows for turn in decode_turns(dialect, row)]
    events = ((at, event) for at, decided in turns for event in decided)
    return [numbered(seq, at, event) for seq, (at, event) in enumerate(events, start=1)]
