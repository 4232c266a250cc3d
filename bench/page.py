"""docs/performance.md and its plots, from the figures of a run.

Only the part between the two markers is written; the rest of the page is edited by hand.
"""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from bench import svg
from bench.curves import CURVES
from bench.harness import ROOT
from bench.registry import BY_KIND, KINDS
from bench.sizes import Sizes
from bench.splitting import OTHER, PIECES
from bench.summary import (
    Results,
    all_metrics,
    failures,
    figure,
    in_order,
    is_on_postgres,
    is_test_dialect,
    mine,
    number,
    peers,
    verdicts,
)
from bench.workloads import SYNCS, WORKLOADS, Metric, Workload, workload_named

PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "performance"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(figures: Path) -> None:
    results = in_order(json.loads(figures.read_text()))
    PLOTS.mkdir(exist_ok=True)
    for name, picture in plots(results).items():
        (PLOTS / name).write_text(picture)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{generated(results)}{END}{after}")


def generated(results: Results) -> str:
    parts = [
        _about(results),
        "### Goals and results\n\n" + _goals(results, _written_by_users(results, on_postgres=False)),
        *(
            ["On PostgreSQL:\n\n" + _goals(results, there)]
            if (there := _written_by_users(results, on_postgres=True))
            else []
        ),
        "### Every figure\n\n" + _figures(results),
        "### Syncs per step\n\n" + _syncs(results),
        *[_curve(results, curve) for curve in CURVES if results["curves"].get(curve.name)],
        *([_kinds(results)] if results.get("kinds") else []),
        *([_split(results)] if results.get("split") else []),
        *([_profile(results)] if results.get("profile") else []),
        "### Peers\n\n" + _peers(results),
    ]
    return "\n".join(parts)


def _written_by_users(results: Results, *, on_postgres: bool) -> list[str]:
    return [name for name in mine(results, on_postgres=on_postgres) if not is_test_dialect(name)]


def table(header: list[str], rows: list[list[str]]) -> str:
    marks = ["---"] + ["---:"] * (len(header) - 1)
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, marks, *rows])


def _about(results: Results) -> str:
    about, limits = results["machine"], results["limits"]
    loads = [sample["load"] for sample in results["samples"]]
    rounds = max((sample["round"] for sample in results["samples"]), default=0)
    median = {name: statistics.median(limit[name] for limit in limits) for name in limits[0]} if limits else {}
    lines = [
        "**A quick run: the sizes are small and the figures mean little.**\n" if results["quick"] else "",
        f"Measured on {results['began'][:10]}, {rounds} rounds, {results['seconds'] // 60} minutes. "
        f"{about['cores']} cores ({about['cpu']}), {about['memory_gib']} GiB, Linux {about['kernel']}, "
        f"{about['file_system']}; Python {about['python']}{_build(about)}, SQLite {about['sqlite']}, "
        f"Perdure {about['perdure']}. "
        f"Load average during the run {number(min(loads, default=0))} to {number(max(loads, default=0))}.\n",
    ]
    if median:
        lines.append(
            f"What this disk and SQLite can do at best, measured in every round (medians): a sync of 4 KiB takes "
            f"{median['sync_ms']:.2f} ms; {number(median['commits_per_s'])} synced commits/s of one row; "
            f"{number(median['rows_per_s'])} rows/s in synced batches of 100.\n"
        )
    lines.append("All samples: [figures.json](performance/figures.json).\n")
    for name, why in results["unavailable"].items():
        lines.append(f"**{why['title']} ({name}) could not be started:** {why['reason']}\n")
    return "\n".join(line for line in lines if line)


def _build(about: dict[str, Any]) -> str:
    return f" ({about['python_build']})" if "python_build" in about else ""


def _goals(results: Results, names: list[str]) -> str:
    rows = []
    for workload, metric in all_metrics():
        goals = {name: verdicts(results, workload, metric, name) for name in names}
        for at in range(len(goals[names[0]])):
            cells = [_verdict(goals[name][at].value, goals[name][at].is_met, goals[name][at].range) for name in names]
            goal, other = goals[names[0]][at].goal, goals[names[0]][at].peer
            theirs = figure(results, workload.name, other, metric.name) if other else None
            shown = f"{results['subjects'][other]['title']} {number(theirs.median)}" if other and theirs else "–"
            rows.append([f"{workload.label}: {metric.title}", goal, shown, *cells])
    for workload_name, most in () if is_on_postgres(names[0]) else SYNCS.items():
        syncs = results["syncs"].get(workload_name, {})
        cells = [
            _verdict(value, value <= most) if isinstance(value := syncs.get(name), float) else "–" for name in names
        ]
        rows.append([f"{workload_named(workload_name).label}: syncs per step", f"≤ {most}", "–", *cells])
    titles = [results["subjects"][name]["title"] for name in names]
    return table(["", "goal", "compared with", *titles], rows)


def _verdict(value: float | None, is_met: bool | None, span: tuple[float, float] | None = None) -> str:
    if value is None:
        return "–"
    shown = f" ({number(span[0])}–{number(span[1])})" if span else ""
    return f"{number(value)}{shown} {'✓' if is_met else '✗'}"


def _figures(results: Results) -> str:
    text = []
    sizes = Sizes(**results["sizes"])
    for workload in WORKLOADS:
        rows = [row for name in results["subjects"] if (row := _row(results, workload, name)) is not None]
        if not rows:
            continue
        label = workload.label[0].upper() + workload.label[1:]
        text.append(f"**{label}**: {workload.title(sizes)}\n")
        for name, title in workload.limits:
            if limits := [measured[name] for measured in results["limits"] if name in measured]:
                most = number(statistics.median(limits))
                rows.append([f"*{title}*", f"*{most}*", *["–"] * (len(workload.metrics) - 1)])
        header = ["", *[f"{metric.title}{f', {metric.unit}' if metric.unit else ''}" for metric in workload.metrics]]
        text.append(table(header, rows))
        text.append(f"![{label.replace('`', '')}](performance/{workload.name}.svg)\n")
    return "\n".join(text)


def _row(results: Results, workload: Workload, subject: str) -> list[str] | None:
    cells = [_cell(results, workload, metric, subject) for metric in workload.metrics]
    if all(cell == "–" for cell in cells):
        trouble = failures(results, workload.name, subject)
        if not trouble:
            return None
        cells[0] = f"failed: {trouble[-1]}".replace("|", "/")
    setting = results["chosen"].get(f"{workload.name} {subject}")
    title = results["subjects"][subject]["title"]
    return [f"{title} ({setting})" if setting else title, *cells]


def _cell(results: Results, workload: Workload, metric: Metric, subject: str) -> str:
    measurement = figure(results, workload.name, subject, metric.name)
    if measurement is None:
        return "–"
    if len(measurement.by_round) == 1 or measurement.low == measurement.high:
        return number(measurement.median)
    return f"{number(measurement.median)} ({number(measurement.low)}–{number(measurement.high)})"


def _syncs(results: Results) -> str:
    rows = []
    for name, about in results["subjects"].items():
        cells = [results["syncs"].get(workload, {}).get(name, "–") for workload in SYNCS]
        rows.append([about["title"], *[number(cell) if isinstance(cell, float) else str(cell) for cell in cells]])
    return table(["", *[workload_named(workload).label for workload in SYNCS]], rows)


def _curve(results: Results, curve: Any) -> str:
    drawn = results["curves"][curve.name]
    places = sorted({point[0] for line in drawn.values() for point in line})
    rows = []
    for x in places:
        cells = []
        for line in drawn.values():
            point = next((point for point in line if point[0] == x), None)
            cells.append("–" if point is None else point[2].replace("|", "/") if point[1] is None else number(point[1]))
        rows.append([f"{x:,}", *cells])
    titles = [results["subjects"][name]["title"] for name in drawn]
    rows.append(["*slope of the last two decades (0 flat, 1 linear)*", *[_slope(line) for line in drawn.values()]])
    return f"### {curve.title}\n\n![{curve.title}](performance/{curve.name}.svg)\n\n" + table(
        [f"{curve.axis} ({curve.unit})", *titles], rows
    )


def _slope(line: list[Any]) -> str:
    known = [(x, y) for x, y, *_ in line if y]
    if len(known) < 3:
        return "–"
    (x0, y0), (x1, y1) = known[-3], known[-1]
    return f"*{math.log(y1 / y0) / math.log(x1 / x0):.2f}*"


def _kinds(results: Results) -> str:
    """Plain functions as they were compared, beside the others."""
    names = mine(results, on_postgres=False)
    rows = []
    for workload in BY_KIND:
        plain = [figure(results, workload, name, "steps_per_s") for name in names]
        label = workload_named(workload).label
        rows.append([f"{label}, plain (a thread)", *[number(speed.median) if speed else "–" for speed in plain]])
        for kind in KINDS:
            speeds = [
                [
                    sample["figures"]["steps_per_s"]
                    for sample in results["kinds"]
                    if (sample["workload"], sample["subject"], sample["variant"]) == (workload, name, kind)
                ]
                for name in names
            ]
            medians = [number(statistics.median(speed)) if speed else "–" for speed in speeds]
            rows.append([f"{label}, {kind}", *medians])
    titles = [results["subjects"][name]["title"] for name in names]
    about = "Steps/s in the same run: a plain function runs in a thread, one of the others on the event loop."
    return f"### Kinds of functions\n\n{about}\n\n" + table(["", *titles], rows)


def _split(results: Results) -> str:
    splits = results["split"]
    rows = [
        [words, *[number(split[piece]) for split in splits.values()]]
        for piece, words in (*PIECES, OTHER, ("whole", "the whole step"))
    ]
    titles = [results["subjects"][name]["title"] for name in splits]
    about = "Microseconds; medians of all steps of one run, piece after piece."
    return f"### Where the time of a step of one long workflow goes\n\n{about}\n\n" + table(["", *titles], rows)


def _profile(results: Results) -> str:
    profiles = results["profile"]
    packages = sorted(
        {package for profile in profiles.values() for package in profile["rooms"] if package != "waiting"}
    )
    rows = []
    for package in packages:
        shares = [profile["rooms"].get(package, 0) / profile["work_s"] for profile in profiles.values()]
        if max(shares) >= 0.005:
            rows.append([package, *[f"{share:.0%}" for share in shares]])
    rows.sort(key=lambda row: -int(row[-1].rstrip("%")))
    titles = [results["subjects"][name]["title"] for name in profiles]
    text = [
        "### Where the time of short workflows goes\n",
        "Shares of the work on the event loop, by package, without waiting.\n",
        table(["", *titles], rows),
    ]
    for name, profile in profiles.items():
        costliest = ", ".join(f"`{function['name']}` {function['own']:.0%}" for function in profile["functions"][:6])
        text.append(f"Most expensive functions, {results['subjects'][name]['title']}: {costliest}.\n")
    return "\n".join(text)


def _peers(results: Results) -> str:
    rows = []
    for name in peers(results):
        about = results["subjects"][name]
        versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
        rows.append(f"| {about['title']} | {versions} | {about['settings']} |\n")
    return "| peer | versions | settings |\n| --- | --- | --- |\n" + "".join(rows)


def plots(results: Results) -> dict[str, str]:
    drawn = {}
    sizes = Sizes(**results["sizes"])
    for workload in WORKLOADS:
        metric = workload.metrics[0]
        rows = []
        for name, about in results["subjects"].items():
            if is_test_dialect(name):
                continue
            measurement = figure(results, workload.name, name, metric.name)
            if measurement is not None:
                rows.append(
                    svg.Bar(about["title"], measurement.median, measurement.low, measurement.high, about["ours"])
                )
        if rows:
            rows.sort(key=lambda row: -row.value if metric.higher else row.value)
            title = f"{workload.label}: {workload.title(sizes)}".replace("`", "")
            way = "more is better" if metric.higher else "less is better"
            drawn[f"{workload.name}.svg"] = svg.bars(
                title, metric.unit, rows, note=f"{metric.title}, {metric.unit}; {way}"
            )
    for curve in CURVES:
        series = [
            (results["subjects"][name]["title"], [(x, y) for x, y, *_ in line if y is not None])
            for name, line in results["curves"].get(curve.name, {}).items()
            if not is_test_dialect(name)
        ]
        if series:
            drawn[f"{curve.name}.svg"] = svg.lines(curve.title, curve.axis, curve.unit, series)
    return drawn
