"""What is foretold from the history of a document (ANA-040)."""

import pytest

from perdure.analysis.forecast import FEWEST, ObservedRun, critical_chain, make_forecast
from perdure.kernel.graphs.run_trace import Visit, VisitStatus

DONE, FAILED, SKIPPED = VisitStatus.DONE, VisitStatus.FAILED, VisitStatus.SKIPPED


def _visit(node: str, start: int, end: int | None, status: VisitStatus = DONE, parent: Visit | None = None) -> Visit:
    return Visit(node, start, parent, ended_at=end, status=status)


def _run(length: int, *, start: int = 1_000, fails: bool = False) -> ObservedRun:
    """`a`, then `b` and `c` beside each other; `c` is short."""
    a = _visit("a", start, start + 10)
    b = _visit("b", start + 10, start + length, FAILED if fails else DONE)
    return ObservedRun(start, start + length, fails, [a, b, _visit("c", start + 10, start + 12)])


def test_too_few_runs_foretell_nothing() -> None:
    forecast = make_forecast([_run(100)] * (FEWEST - 1), ["a", "b", "c"], _run(50))
    assert (forecast.runs, forecast.is_enough, forecast.lasts, forecast.expected) == (FEWEST - 1, False, None, None)


def test_quantiles_and_failures_of_runs_and_steps() -> None:
    forecast = make_forecast([_run(100 + n, fails=n % 4 == 0) for n in range(100)], ["a", "b", "c"])
    assert forecast.lasts is not None
    assert (forecast.lasts.p50, forecast.lasts.p95, forecast.lasts.p99) == (149, 194, 198)
    assert forecast.failed == 0.25
    a, b, c = forecast.steps
    assert (a.step, a.runs, a.failed, a.critical) == ("a", 100, 0.0, 1.0)
    assert (b.step, b.failed, b.critical) == ("b", 0.25, 1.0)
    assert b.lasts is not None and b.lasts.p50 == 139
    assert (c.step, c.critical) == ("c", 0.0)
    assert [part.step for part in forecast.critical_path] == ["a", "b"]


def test_paths_are_told_apart_by_the_steps_that_were_carried_out() -> None:
    short = ObservedRun(0, 10, False, [_visit("a", 0, 10), _visit("b", 10, 10, SKIPPED)])
    forecast = make_forecast([_run(100)] * 15 + [short] * 10, ["a", "b", "c"])
    assert [(path.steps, path.runs) for path in forecast.paths] == [(["a", "b", "c"], 15), (["a"], 10)]


def test_the_end_is_expected_from_the_step_that_began_last() -> None:
    """Of runs whose `b` took 90, 91 … 189 those count that took longer than 140 in it."""
    ended = [_run(100 + n) for n in range(100)]
    live = ObservedRun(5_000, 5_650, False, [_visit("a", 5_000, 5_510), _visit("b", 5_510, None, VisitStatus.RUNNING)])
    expected = make_forecast(ended, ["a", "b", "c"], live).expected
    assert expected is not None and expected.left is not None
    assert (expected.since, expected.compared, expected.longer) == ("b", 100, 49)
    assert (expected.left.p50, expected.left.p95) == (25, 47)
    assert expected.slower_than == 1.0  # because `a` took so long


def test_a_run_that_takes_longer_than_all_others_has_no_expected_end() -> None:
    live = ObservedRun(0, 10_000, False, [_visit("a", 0, None, VisitStatus.RUNNING)])
    expected = make_forecast([_run(100)] * 30, ["a"], live).expected
    assert expected is not None
    assert (expected.left, expected.longer, expected.slower_than) == (None, 0, 1.0)


def test_a_run_that_is_over_is_only_compared() -> None:
    expected = make_forecast([_run(100 + n) for n in range(100)], ["a"], _run(150), is_over=True).expected
    assert expected is not None and expected.left is None
    assert expected.slower_than == 0.5


@pytest.mark.parametrize("count", [1, 50])
def test_a_critical_chain_has_the_parts_of_blocks_and_ends(count: int) -> None:
    """Steps without any length follow each other, and none is met twice."""
    block = _visit("block", 0, 100)
    parts = [_visit(f"s{n}", 100, 100, parent=block) for n in range(count)]
    chain = critical_chain([block, *parts])
    assert [visit.node for visit in chain] == [f"s{n}" for n in range(count)]
