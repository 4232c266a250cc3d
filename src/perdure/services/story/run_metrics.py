"""Figures of Stories with the original names, counted from the events of runs in this process (STY-260).

No series has the name of a run, a step or a queue: documents choose those. Limits of queues count in the store, over
all servers; their depth and age here are those of runs that this process carries.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from perdure.dialects.story.state import events as s
from perdure.kernel import events as e
from perdure.kernel.json_values.values import SECOND, Instant, RunId

PREFIX = "bobrapet_"
MOST_RUNS = 10_000  # whose steps are known; others may have gone on with the oldest
SECONDS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)
STEPS = (1, 2, 5, 10, 50, 100, 500)

Labels = tuple[tuple[str, str], ...]
Series = list[tuple[str, Labels, float]]


class Distribution:
    """How often a figure was within each of some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, figure: float) -> None:
        self._counts[next((place for place, most in enumerate(self._bounds) if figure <= most), -1)] += 1
        self._sum += figure

    def series(self) -> Series:
        series: Series = []
        count = 0
        for most, within in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            count += within
            series.append(("_bucket", (("le", most),), count))
        return [*series, ("_sum", (), round(self._sum, 6)), ("_count", (), count)]


class OpenSteps:
    """Of one run: since when each of its steps is at work, or in a queue."""

    def __init__(self) -> None:
        self.active: dict[str, Instant] = {}
        self.queued: dict[str, Instant] = {}


class StoryRunMetrics:
    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._runs: OrderedDict[RunId, OpenSteps] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._lookups: Counter[str] = Counter()
        self._durations = Distribution(SECONDS)
        self._started = Distribution(STEPS)

    def listen(self, run: RunId, turns: list[tuple[Instant, list[e.Event]]]) -> None:
        """What was decided about a Story's run."""
        steps = self._runs.get(run)
        if steps is None:
            steps = self._runs[run] = OpenSteps()
            if len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)
        for at, events in turns:
            started = sum(self._count(run, steps, at, event) for event in events)
            if started:
                self._started.add(started)

    def _count(self, run: RunId, steps: OpenSteps, at: Instant, event: e.Event) -> bool:
        """Whether it has started a step."""
        match event:
            case s.StepQueued():
                steps.queued[event.step] = at
            case s.StepStarted() | s.StepRunCreated() | s.StepLaunched():
                self._counts["child_stepruns_created_total"] += not isinstance(event, s.StepStarted)
                steps.queued.pop(event.step, None)
                is_new = event.step not in steps.active
                steps.active.setdefault(event.step, event.at)
                return is_new
            case s.StepEnded():
                self._counts["storyrun_steps_completed"] += 1
                steps.queued.pop(event.step, None)
                if (began := steps.active.pop(event.step, None)) is not None:
                    self._durations.add((event.at - began) / SECOND)
            case s.RetryScheduled():
                self._counts["steprun_retries_total"] += 1
            case s.CacheNoted() if event.status != "stored":
                self._lookups[event.status] += 1
            case e.RunEnded():
                self._runs.pop(run, None)
            case _:
                pass
        return False

    def metrics(self) -> list[tuple[str, str, str, Series]]:
        """Name, kind, help text and series of each figure."""
        queued = [at for steps in self._runs.values() for at in steps.queued.values()]
        age = (self._now() - min(queued)) / SECOND if queued else 0.0
        active = sum(len(steps.active) for steps in self._runs.values())
        return [
            _one("storyrun_steps_active", "gauge", "Steps at work in runs of this process.", active),
            _one("storyrun_queue_depth", "gauge", "Steps that wait for a place under a limit.", len(queued)),
            _one("storyrun_queue_age_seconds", "gauge", "Since when the first of them waits.", max(0.0, age)),
            self._counted("storyrun_steps_completed", "gauge", "Steps that have ended."),
            self._counted("steprun_retries_total", "counter", "Attempts that are made again."),
            self._counted("child_stepruns_created_total", "counter", "StepRuns created."),
            (
                f"{PREFIX}steprun_cache_lookups_total",
                "counter",
                "Outputs looked up in the cache, by what was found.",
                [("", (("result", status),), count) for status, count in sorted(self._lookups.items())],
            ),
            (
                f"{PREFIX}steprun_duration_seconds",
                "histogram",
                "From the start of a step to its end.",
                self._durations.series(),
            ),
            (f"{PREFIX}dag_iteration_steps", "histogram", "Steps started by one decision.", self._started.series()),
        ]

    def _counted(self, name: str, kind: str, help_text: str) -> tuple[str, str, str, Series]:
        return _one(name, kind, help_text, self._counts[name])


def _one(name: str, kind: str, help_text: str, value: float) -> tuple[str, str, str, Series]:
    return f"{PREFIX}{name}", kind, help_text, [("", (), value)]
