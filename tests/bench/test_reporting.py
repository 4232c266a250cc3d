"""The benchmark judges and tells truly. Nothing is measured here."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.__main__ import RESULTS, _parser, output_of
from bench.harness import Harness
from bench.marks import Marks
from bench.running import Run
from bench.sizes import FULL, QUICK
from bench.summary import figure, in_order, verdicts
from bench.workloads import workload_named

from bench import marks, page, svg


def a_run_that_was_killed(path: Path) -> dict[str, list[str]]:
    """Two workflows of three steps; a's second step was finished, b's first was in flight."""
    first = Marks(path, 1)
    a = [first.leave("a", 0), first.leave("a", 1), first.leave("a", 2)]
    first.leave("b", 0)
    second = Marks(path, 2)
    a[2] = second.leave("a", 2)
    b = [second.leave("b", step) for step in range(3)]
    return {"a": a, "b": b}


def test_steps_in_flight_may_run_again(tmp_path: Path) -> None:
    ended = a_run_that_was_killed(tmp_path / "marks")

    assert marks.judge(tmp_path / "marks", ended, 2, 3) == {
        "left": 2,
        "lost": 0,
        "again": 0,
        "in_flight_again": 2,
        "wrong": 0,
    }


def test_a_finished_step_that_runs_again_is_a_fault(tmp_path: Path) -> None:
    ended = a_run_that_was_killed(tmp_path / "marks")
    ended["a"][0] = Marks(tmp_path / "marks", 2).leave("a", 0)

    judged = marks.judge(tmp_path / "marks", ended, 2, 3)

    assert (judged["again"], judged["wrong"]) == (1, 1)


def test_a_workflow_that_does_not_end_is_lost(tmp_path: Path) -> None:
    ended = a_run_that_was_killed(tmp_path / "marks")
    del ended["b"]

    assert marks.judge(tmp_path / "marks", ended, 2, 3)["lost"] == 1


def results(**figures: list[float]) -> dict[str, Any]:
    """W1 speeds by subject; those that are not Perdure's are peers."""
    return {
        "began": "2026-01-01T00:00:00+00:00",
        "seconds": 60,
        "quick": False,
        "machine": dict.fromkeys(
            ("cores", "cpu", "memory_gib", "kernel", "file_system", "python", "sqlite", "perdure"), 1
        ),
        "sizes": {},
        "limits": [{"sync_ms": 0.1, "commits_per_s": 5_000, "rows_per_s": 100_000}],
        "subjects": {
            name: {"title": name, "ours": name in ("flow", "story"), "versions": {name: "1"}, "settings": "plain"}
            for name in figures
        },
        "unavailable": {"absurd": {"title": "absurd", "reason": "there is no PostgreSQL"}},
        "chosen": {"w1 dbos": "8 threads"},
        "samples": [
            {
                "round": at + 1,
                "workload": "w1",
                "subject": name,
                "variant": "8 threads",
                "load": 0.5,
                "figures": {"steps_per_s": value},
            }
            for name, values in figures.items()
            for at, value in enumerate(values)
        ],
        "syncs": {"w1": {"flow": 0.01}},
        "curves": {"history": {"flow": [[10, 100.0], [100, 100.0], [1_000, 100.0]]}},
        "profile": {},
    }


def test_figures_are_medians_of_the_setting_that_was_chosen() -> None:
    figures = results(flow=[9_000, 7_000, 8_000], dbos=[400, 500, 300])
    rejected = {"round": 1, "workload": "w1", "subject": "dbos", "variant": "1 thread", "figures": {"steps_per_s": 9e9}}
    figures["samples"].append(rejected)

    dbos = figure(figures, "w1", "dbos", "steps_per_s")

    assert dbos is not None
    assert (dbos.median, dbos.low, dbos.high, len(dbos.by_round)) == (400, 300, 500, 3)


def test_goals_are_compared_with_the_best_peer_and_are_higher_for_flows() -> None:
    measured = results(flow=[9_000, 11_000, 12_000], story=[10_000], dbos=[500], restate=[1_000, 900, 800])
    workload = workload_named("w1")
    metric = workload.metrics[0]

    flow, story = (verdicts(measured, workload, metric, name) for name in ("flow", "story"))

    assert [goal.peer for goal in (*flow, *story)] == ["restate", "restate"]
    assert flow[0].goal == story[0].goal == "≥ 10 (Flow: 20) × the best peer"
    assert (flow[0].is_met, story[0].is_met) == (False, True)
    assert (flow[0].range, story[0].range) == ((9, 15), None), "of the ratios within one round"


def test_a_peer_that_could_not_start_or_failed_is_told() -> None:
    figures = results(flow=[8_000], dbos=[])
    figures["samples"].append(
        {"round": 1, "workload": "w1", "subject": "dbos", "variant": "", "load": 1.0, "error": "no such table"}
    )

    text = page.generated(figures)

    assert "absurd) could not be started:** there is no PostgreSQL" in text
    assert "failed: no such table" in text
    assert "*0.00*" in text, "a flat curve has no slope"


def test_kinds_of_functions_are_told_beside_the_plain_ones() -> None:
    figures = results(flow=[8_000, 9_000, 7_000], dbos=[400])
    figures["kinds"] = [
        {"round": at, "workload": "w1", "subject": "flow", "variant": "async", "figures": {"steps_per_s": speed}}
        for at, speed in enumerate([11_000, 10_000, 12_000])
    ]

    text = page.generated(figures)

    assert "| short workflows, plain (a thread) | 8,000 |" in text
    assert "| short workflows, async | 11,000 |" in text
    assert "| one long workflow, inline | – |" in text


def test_plots_are_pictures_with_a_name_for_both_grounds() -> None:
    for text in page.plots(results(flow=[8_000, 9_000], dbos=[400])).values():
        picture = ElementTree.fromstring(text)

        assert picture.attrib["aria-label"]
        assert "prefers-color-scheme: dark" in text
    assert "short workflows: 200 workflows" in page.plots(results(flow=[8_000]))["w1.svg"]


def test_no_label_of_a_plot_is_cut_and_the_test_dialect_is_in_none() -> None:
    figures = json.loads((Path(page.PLOTS) / "figures.json").read_text())
    ordered = list(in_order(figures)["subjects"])
    for name, text in page.plots(figures).items():
        labels = [
            (float(label.attrib["x"]), label.text or "")
            for label in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")
            if label.attrib["text-anchor"] == "end"
        ]

        assert "drill" not in text, name
        assert all(x - 6.8 * len(label) >= 0 for x, label in labels), name
    assert ordered[:3] == ["flow", "playbook", "story"]


def test_a_plot_takes_values_of_any_size() -> None:
    for value in (0.003, 1, 7.5, 123_456_789):
        bars = ElementTree.fromstring(svg.bars("a < b", "ms", [svg.Bar("x & y", value, value, value, True)]))
        lines = ElementTree.fromstring(svg.lines("t", "x", "y", [("flow", [(1, value)])]))

        assert {"a < b", "x & y"} <= {text.strip() for text in bars.itertext()}
        assert "flow" in "".join(lines.itertext())


def test_figures_of_a_run_before_stay_until_a_run_is_over(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    output.write_text("before")
    run = Run(Harness(tmp_path, QUICK), output, quick=True)

    run.save()
    assert output.read_text() == "before"
    assert json.loads(run.partial.read_text())["quick"] is True

    run.finish()
    assert json.loads(output.read_text())["quick"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_a_run_that_is_not_written_leaves_the_figures_of_the_page_alone() -> None:
    read = _parser().parse_args

    assert output_of(read(["run"])) == RESULTS
    assert output_of(read(["run", "--no-write"])) != RESULTS
    assert output_of(read(["run", "--no-write", "--output", "mine.json"])) == Path("mine.json")


def test_a_slow_peer_is_measured_with_less() -> None:
    sizes = FULL.times(0.05)

    assert (sizes.workflows, sizes.steps, sizes.width, sizes.starts, sizes.rounds) == (10, 10, 50, 10, 100)
