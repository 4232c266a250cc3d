"""CON-002: a graph is drawn so that it can be read: no line goes through a node or a frame that it only passes."""

import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.console.compiled_parts import ask_part

PROGRAM = """
const { place } = require("./graph/layout.js");
const graphs = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(graphs.map(({ nodes, edges }) => place(nodes, edges))));
"""
Point = tuple[float, float]
RELEASE: dict[str, Any] = {  # `ship` needs `build`, and what lies between is a frame
    "nodes": [
        {"id": "build"},
        {"id": "verify"},
        {"id": "verify/unit", "parent": "verify"},
        {"id": "verify/lint", "parent": "verify"},
        {"id": "approve"},
        {"id": "ship"},
    ],
    "edges": [
        {"from": "build", "to": "verify"},
        {"from": "verify", "to": "approve"},
        {"from": "approve", "to": "ship"},
        {"from": "build", "to": "ship"},
    ],
}
CIRCLE: dict[str, Any] = {
    "nodes": [{"id": "start"}, {"id": "ask"}, {"id": "again"}, {"id": "wide"}],
    "edges": [
        {"from": "start", "to": "ask"},
        {"from": "ask", "to": "again", "label": 48},
        {"from": "ask", "to": "wide"},
        {"from": "again", "to": "ask", "label": 96},
        {"from": "again", "to": "again"},
    ],
}


def _graph(seed: int) -> dict[str, Any]:
    """Frames in frames, with edges between neighbours, some of them backwards, some with labels."""
    choose = random.Random(seed)
    nodes: list[dict[str, str]] = []
    edges: list[dict[str, Any]] = []

    def fill(frame: str, depth: int) -> None:
        names = [f"{frame}/{number}" for number in range(choose.randint(2, 7))]
        for number, name in enumerate(names):
            nodes.append({"id": name, **({"parent": frame} if frame else {})})
            for other in choose.sample(names[:number], min(number, choose.randint(0, 3))):
                ends = (name, other) if choose.random() < 0.15 else (other, name)
                label = {"label": 48 * choose.randint(1, 4)} if choose.random() < 0.3 else {}
                edges.append({"from": ends[0], "to": ends[1], **label})
            if depth and choose.random() < 0.4:
                fill(name, depth - 1)

    fill("", 2)
    return {"nodes": nodes, "edges": edges}


def _points(path: str) -> list[Point]:
    """Along the line, a few pixels apart."""
    points: list[Point] = []
    for command, words in re.findall(r"([MLCQ])([^MLCQ]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", words)]
        knots = [*points[-1:], *zip(numbers[::2], numbers[1::2], strict=True)]
        steps = 1 if command == "M" else 60
        points += [_along(knots, number / steps) for number in range(1, steps + 1)]
    return points


def _along(knots: list[Point], share: float) -> Point:
    while len(knots) > 1:
        pairs = pairwise(knots)
        knots = [(a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share) for a, b in pairs]
    return knots[0]


@pytest.mark.sampled(4)
def test_lines_go_around_what_they_pass(tmp_path: Path) -> None:
    """CON-002. Of a frame that an edge passes, what is inside it is passed too."""
    graphs = [RELEASE, CIRCLE, *(_graph(seed) for seed in range(60))]
    passed = 0
    for graph, laid in zip(graphs, ask_part(tmp_path, "graph/layout.ts", PROGRAM, graphs), strict=True):
        boxes = {box["id"]: box for box in laid["boxes"]}
        assert set(boxes) == {node["id"] for node in graph["nodes"]}

        def corner(name: str, boxes: dict[str, Any] = boxes) -> Point:
            box = boxes[name]
            x, y = corner(box["parent"]) if box["parent"] else (0.0, 0.0)
            return box["x"] + x, box["y"] + y

        for edge, line in zip(graph["edges"], laid["lines"], strict=True):
            ends = (edge["from"], edge["to"])
            points = _points(line["path"])
            for name, box in boxes.items():
                (x, y), around = corner(name), name in ends or any(end.startswith(f"{name}/") for end in ends)
                inside = [(a, b) for a, b in points if x < a < x + box["width"] and y < b < y + box["height"]]
                assert around or not inside, f"{ends} goes through {name} at {inside[0]}"
                passed += not around
            frame = boxes[ends[0]]["parent"]
            if frame:  # and stays inside its own
                x, y = corner(frame)
                assert all(x <= a <= x + boxes[frame]["width"] for a, _ in points), f"{ends} leaves {frame}"
    assert passed > 1_000
