"""How long the steps of a document take, how often they fail, and when a run that is under way should end.

All of it comes from runs that have ended. Below `FEWEST` of them nothing is foretold: the numbers would be guesses.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import msgspec

from perdure.kernel.graphs.run_trace import Visit, VisitStatus
from perdure.kernel.json_values.values import Instant

FEWEST = 20
PATHS_SHOWN = 10  # the most frequent ones


class ObservedRun(msgspec.Struct):
    """A run as its trace has it; of one that is under way `ended_at` is now."""

    started_at: Instant
    ended_at: Instant
    has_failed: bool
    visits: Sequence[Visit]

    @property
    def lasted(self) -> Instant:
        return max(0, self.ended_at - self.started_at)


class Spread(msgspec.Struct):
    """How long something took in most cases: half of them at most `p50`, 95 of 100 at most `p95`."""

    p50: Instant
    p95: Instant
    p99: Instant


class StepForecast(msgspec.Struct):
    step: str
    runs: int  # that have reached it
    visits: int
    failed: float  # of its visits, from 0 to 1
    lasts: Spread | None  # one visit; None: none of them was carried out
    critical: float  # of the runs, from 0 to 1: the end waited for it


class PathForecast(msgspec.Struct):
    """Runs that went through the same steps."""

    steps: list[str]
    runs: int
    failed: float
    lasts: Spread


class CriticalStep(msgspec.Struct):
    step: str
    lasts: Instant


class Expectation(msgspec.Struct):
    """How a run compares; and when it should end, if it is under way, after runs that took longer than it has."""

    lasted: Instant  # up to now, or to its end
    slower_than: float  # of the runs that have ended, from 0 to 1
    since: str  # the step from whose beginning is reckoned; empty: the beginning of the run
    compared: int  # runs that went through that step
    longer: int  # those of them that took longer from there; 0: nothing can be expected
    left: Spread | None


class Forecast(msgspec.Struct):
    runs: int
    needed: int = FEWEST
    failed: float = 0.0
    lasts: Spread | None = None
    steps: list[StepForecast] = []
    paths: list[PathForecast] = []
    critical_path: list[CriticalStep] = []
    expected: Expectation | None = None

    @property
    def is_enough(self) -> bool:
        return self.runs >= self.needed


def make_forecast(
    ended: Sequence[ObservedRun], order: Sequence[str], own: ObservedRun | None = None, *, is_over: bool = False
) -> Forecast:
    """`order`: the steps of the document, as it has them; `own`: the run that is asked for, which may be over."""
    if len(ended) < FEWEST:
        return Forecast(len(ended))
    rank = {step: number for number, step in enumerate(order)}
    chains = [critical_chain(run.visits) for run in ended]
    return Forecast(
        len(ended),
        failed=sum(run.has_failed for run in ended) / len(ended),
        lasts=spread(run.lasted for run in ended),
        steps=_steps(ended, chains, rank),
        paths=_paths(ended, rank),
        critical_path=_usual_chain(chains),
        expected=None if own is None else _expect(ended, own, is_over),
    )


def spread(lengths: Iterable[Instant]) -> Spread:
    ordered = sorted(lengths)

    def at(share: float) -> Instant:
        return ordered[max(0, ceil(share * len(ordered)) - 1)]

    return Spread(at(0.5), at(0.95), at(0.99))


def critical_chain(visits: Sequence[Visit]) -> list[Visit]:
    """The visits that the end of a run waited for, first to last: each began when the one before it had ended.

    What holds others (a block, a loop) is left out: its parts say more.
    """
    holders = {id(visit.parent) for visit in visits if visit.parent is not None}
    parts = [
        visit
        for visit in visits
        if id(visit) not in holders and visit.ended_at is not None and visit.status is not VisitStatus.SKIPPED
    ]
    by_end = sorted(enumerate(parts), key=lambda item: (item[1].ended_at or 0, item[0]))
    chain: list[Visit] = []
    latest, before = None, len(parts)
    for number, visit in reversed(by_end):
        assert visit.ended_at is not None
        if latest is None or (visit.ended_at <= latest.started_at and number < before):
            chain.append(visit)
            latest, before = visit, number
    return chain[::-1]


def _steps(
    ended: Sequence[ObservedRun], chains: Sequence[Sequence[Visit]], rank: Mapping[str, int]
) -> list[StepForecast]:
    lengths: dict[str, list[Instant]] = defaultdict(list)
    visits, failed, runs, critical = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for run in ended:
        for visit in run.visits:
            visits[visit.node] += 1
            failed[visit.node] += visit.status is VisitStatus.FAILED
            if visit.ended_at is not None and visit.status in (VisitStatus.DONE, VisitStatus.FAILED):
                lengths[visit.node].append(visit.ended_at - visit.started_at)
        runs.update({visit.node for visit in run.visits})
    for chain in chains:
        critical.update({visit.node for visit in chain})
    return [
        StepForecast(
            step,
            runs[step],
            visits[step],
            failed[step] / visits[step],
            spread(lengths[step]) if lengths[step] else None,
            critical[step] / len(ended),
        )
        for step in sorted(visits, key=lambda step: (rank.get(step, len(rank)), step))
    ]


def _paths(ended: Sequence[ObservedRun], rank: Mapping[str, int]) -> list[PathForecast]:
    """By the steps that were carried out, in the order of the document: which of two came first is chance."""
    alike: dict[frozenset[str], list[ObservedRun]] = defaultdict(list)
    for run in ended:
        alike[frozenset(v.node for v in run.visits if v.status is not VisitStatus.SKIPPED)].append(run)
    paths = [
        PathForecast(
            sorted(steps, key=lambda step: (rank.get(step, len(rank)), step)),
            len(runs),
            sum(run.has_failed for run in runs) / len(runs),
            spread(run.lasted for run in runs),
        )
        for steps, runs in alike.items()
    ]
    return sorted(paths, key=lambda path: (-path.runs, path.steps))[:PATHS_SHOWN]


def _usual_chain(chains: Sequence[Sequence[Visit]]) -> list[CriticalStep]:
    """The chain of most runs, each step with the median of what it added; visits of one step in a row count once."""
    alike: dict[tuple[str, ...], list[list[Instant]]] = defaultdict(list)
    for chain in chains:
        steps: list[str] = []
        lengths: list[Instant] = []
        for visit in chain:
            length = (visit.ended_at or 0) - visit.started_at
            if steps and steps[-1] == visit.node:
                lengths[-1] += length
            else:
                steps.append(visit.node)
                lengths.append(length)
        alike[tuple(steps)].append(lengths)
    if not alike:
        return []
    steps_of_most = max(alike, key=lambda steps: (len(alike[steps]), steps))
    columns = zip(*alike[steps_of_most], strict=True)
    return [CriticalStep(step, spread(column).p50) for step, column in zip(steps_of_most, columns, strict=True)]


def _expect(ended: Sequence[ObservedRun], live: ObservedRun, is_over: bool) -> Expectation:
    """Reckoned from the step that began last, among those that enough runs went through."""
    slower_than = sum(run.lasted < live.lasted for run in ended) / len(ended)
    since, waited, rests = "", live.lasted, [run.lasted for run in ended]
    if is_over:
        return Expectation(live.lasted, slower_than, since, len(rests), 0, None)
    for visit in sorted(live.visits, key=lambda visit: visit.started_at, reverse=True):
        from_there = [rest for run in ended if (rest := _rest_after(run, visit.node)) is not None]
        if len(from_there) >= FEWEST:
            since, waited, rests = visit.node, live.ended_at - visit.started_at, from_there
            break
    longer = [rest - waited for rest in rests if rest > waited]
    return Expectation(live.lasted, slower_than, since, len(rests), len(longer), spread(longer) if longer else None)


def _rest_after(run: ObservedRun, step: str) -> Instant | None:
    """How long the run went on after it had begun this step for the last time."""
    beginnings = [visit.started_at for visit in run.visits if visit.node == step]
    return run.ended_at - max(beginnings) if beginnings else None
