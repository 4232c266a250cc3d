"""Progress display: a block that is redrawn in a terminal, plain lines elsewhere, or nothing at all."""

import time
from collections.abc import Callable
from typing import Protocol

from perdure.cli.console import BlockLine, Console, cut
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.views.runs.run_status import RunStatus
from perdure.views.times import span

RUNS_DRAWN = 8
WAITS_DRAWN = 4
LINES_PER_SECOND = 10
SHORT = SECOND // 2  # a timer that is due so soon is not worth a line


class Progress(Protocol):
    every: float
    """Seconds between looks."""

    def happened(self, run: RunId, sentence: str) -> None:
        """Something worth a line."""

    def show_statuses(self, statuses: list[RunStatus], now: Instant) -> None:
        """The statuses of the runs that are followed, now."""

    def done(self) -> None:
        """Nothing follows any more."""


def progress_for(talk: Console) -> Progress:
    return LiveProgress(talk) if talk.is_live else LineProgress(talk)


class LiveProgress:
    """In a terminal: one line per run, under it what the run waits for."""

    every = 0.1

    def __init__(self, talk: Console) -> None:
        self._talk = talk

    def happened(self, run: RunId, sentence: str) -> None:
        self._talk.say(cut(f"  {sentence}", self._talk.width))

    def show_statuses(self, statuses: list[RunStatus], now: Instant) -> None:
        lines = [line for status in statuses[:RUNS_DRAWN] for line in _block_lines(status, now)]
        if len(statuses) > RUNS_DRAWN:
            lines.append(BlockLine(f"  and {len(statuses) - RUNS_DRAWN} more runs", "dim"))
        self._talk.draw(lines)

    def done(self) -> None:
        self._talk.clear()


def _block_lines(status: RunStatus, now: Instant) -> list[BlockLine]:
    head = f"{status.row.name} {status.row.id}  {span(now - status.started_at)}  {tasks_text(status)}"
    lines = [f"  {wait.sentence(now)}" for wait in status.awaited[:WAITS_DRAWN]]
    if len(status.awaited) > WAITS_DRAWN:
        lines.append(f"  and {len(status.awaited) - WAITS_DRAWN} more")
    return [BlockLine(head, "cyan", has_spinner=True), *(BlockLine(line, "dim") for line in lines)]


class LineProgress:
    """In a pipe: a line when something notable happens or the run begins to wait; many at once become a count."""

    every = 0.25

    def __init__(self, talk: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._talk = talk
        self._clock = clock
        self._said: dict[RunId, tuple[str, ...]] = {}
        self._second = 0
        self._lines = 0
        self._swallowed = 0

    def happened(self, run: RunId, sentence: str) -> None:
        second = int(self._clock())
        if second != self._second:
            self.done()
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._swallowed += 1
        else:
            self._talk.tell(run, sentence)

    def show_statuses(self, statuses: list[RunStatus], now: Instant) -> None:
        for status in statuses:
            about = tuple(wait.about for wait in status.awaited if wait.due is None or wait.due - now > SHORT)
            if about and about != self._said.get(status.row.id):
                self._said[status.row.id] = about
                self.happened(status.row.id, "; ".join(wait.sentence(now) for wait in status.awaited[:WAITS_DRAWN]))

    def done(self) -> None:
        if self._swallowed:
            self._talk.say(f"… and {self._swallowed} more events")
            self._swallowed = 0


def tasks_text(status: RunStatus) -> str:
    """`3 tasks done, 2 open (shell, http)`."""
    count = sum(status.tasks_open.values())
    names = ", ".join(name for name, _ in status.tasks_open.most_common(3))
    opened = f", {count} open ({names})" if count else ""
    return f"{status.tasks_done} task{'' if status.tasks_done == 1 else 's'} done{opened}"


def ended_text(status: RunStatus) -> str:
    """`in 1.2 s, 3 tasks done`."""
    return f"in {span((status.row.ended_at or status.started_at) - status.started_at)}, {tasks_text(status)}"
