"""Progress display: a block that is redrawn in a terminal, plain lines elsewhere, or nothing at all."""

import time
from collections.abc import Callable
from typing import Protocol

from perdure.cli.console import Console, cut
from perdure.kernel.values import SECOND, Instant, RunId
from perdure.views.run_status import RunStatus
from perdure.views.times import span

RUNS_DRAWN = 8
WAITS_DRAWN = 4
LINES_PER_SECOND = 10
SHORT = SECOND // 2  # a timer that is due so soon is not worth a line
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Progress(Protocol):
    every: float
    """Seconds between looks."""

    def happened(self, run: RunId, sentence: str) -> None:
        """Something worth a line."""

    def stand(self, standings: list[RunStatus], now: Instant) -> None:
        """This is how the runs stand."""

    def done(self) -> None:
        """Nothing follows any more."""


def progress_for(talk: Console) -> Progress:
    return Live(talk) if talk.is_live else Lines(talk)


class Live:
    """In a terminal: one line per run, under it what the run waits for."""

    every = 0.1

    def __init__(self, talk: Console) -> None:
        self._talk = talk
        self._frame = 0

    def happened(self, run: RunId, sentence: str) -> None:
        self._talk.say(cut(f"  {sentence}", self._talk.width))

    def stand(self, standings: list[RunStatus], now: Instant) -> None:
        self._frame += 1
        lines = [line for one in standings[:RUNS_DRAWN] for line in self._lines(one, now)]
        if len(standings) > RUNS_DRAWN:
            lines.append(f"  and {len(standings) - RUNS_DRAWN} more runs")
        self._talk.draw([self._talk.paint(cut(line, self._talk.width - 1), style) for line, style in _styled(lines)])

    def done(self) -> None:
        self._talk.clear()

    def _lines(self, one: RunStatus, now: Instant) -> list[str]:
        mark = SPINNER[self._frame % len(SPINNER)]
        lines = [f"{mark} {one.row.name} {one.row.id}  {span(now - one.started_at)}  {tasks_text(one)}"]
        lines += [f"  waits for {wait.text(now)}" for wait in one.waits[:WAITS_DRAWN]]
        if len(one.waits) > WAITS_DRAWN:
            lines.append(f"  and {len(one.waits) - WAITS_DRAWN} more")
        return lines


def _styled(lines: list[str]) -> list[tuple[str, str]]:
    return [(line, "dim" if line.startswith("  ") else "cyan") for line in lines]


class Lines:
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
            self._talk.say(f"{run}: {sentence}")

    def stand(self, standings: list[RunStatus], now: Instant) -> None:
        for one in standings:
            about = tuple(wait.about for wait in one.waits if wait.due is None or wait.due - now > SHORT)
            if about and about != self._said.get(one.row.id):
                self._said[one.row.id] = about
                self.happened(one.row.id, "waits for " + "; ".join(wait.text(now) for wait in one.waits[:WAITS_DRAWN]))

    def done(self) -> None:
        if self._swallowed:
            self._talk.say(f"… and {self._swallowed} more events")
            self._swallowed = 0


def tasks_text(one: RunStatus) -> str:
    """`3 tasks done, 2 open (shell, http)`."""
    count = sum(one.tasks_open.values())
    names = ", ".join(name for name, _ in one.tasks_open.most_common(3))
    opened = f", {count} open ({names})" if count else ""
    return f"{one.tasks_done} task{'' if one.tasks_done == 1 else 's'} done{opened}"


def ended_text(one: RunStatus) -> str:
    """`in 1.2 s, 3 tasks done`."""
    return f"in {span((one.row.ended_at or one.started_at) - one.started_at)}, {tasks_text(one)}"
