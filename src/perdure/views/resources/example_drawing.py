"""The counter-example of a finding on the graph of its document: the steps of that run in order, and what is wrong."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from perdure.kernel.graphs.graph import Graph, Node, Role
from perdure.kernel.graphs.net import Certainty, Defect, DefectKind
from perdure.views.drawing.boxes import NodeStatus
from perdure.views.drawing.markup import graph_json
from perdure.views.resources.soundness_findings import SoundnessFinding

_REPEATING = {DefectKind.ENDLESS_LOOP, DefectKind.UNBOUNDED_RETRY, DefectKind.UNBOUNDED_TOKENS}
MOST_PASSES = 3  # through one step that are told of

Passage = tuple[str, list[str]]
"""A step, by its node, and what happened there."""


class ExampleDrawing:
    """`statuses` and `taken` as for the graph of a run: `done` is what the run passes, `failed` what is wrong."""

    def __init__(self, graph: Graph, defect: Defect) -> None:
        self.graph = graph
        self.passages = list(_passages(graph, defect.trace))
        wrong = _node_of(graph, defect.step) if defect.step is not None else None
        if wrong is not None and defect.kind in _REPEATING and self.passages:
            last = self.passages[-1][0]
            if any((edge.source, edge.target) == (last, wrong.id) for edge in graph.edges):
                self.passages.append((wrong.id, ["again"]))
        self.taken = _taken(graph, self.passages)
        self.statuses: dict[str, NodeStatus] = {}
        lines: dict[str, list[str]] = {}
        for number, (node, choices) in enumerate(self.passages, 1):
            lines.setdefault(node, []).append(f"{number}: {', '.join(choices)}")
        for node, passes in lines.items():
            more = f"; and {len(passes) - MOST_PASSES} more" if len(passes) > MOST_PASSES else ""
            self.statuses[node] = NodeStatus("done", "; ".join(passes[:MOST_PASSES]) + more)
        if wrong is not None:
            passed = self.statuses.get(wrong.id)
            word = "failed" if defect.certainty is Certainty.WILL else "waiting"
            line = f"{defect.kind} ({defect.certainty})" + (f"; {passed.line}" if passed is not None else "")
            self.statuses[wrong.id] = NodeStatus(word, line)

    def plain(self, finding: SoundnessFinding) -> dict[str, Any]:
        """The graph as JSON, with `status` and `line` of nodes, `taken` of edges, and the finding."""
        facts = graph_json(self.graph)
        for node in facts["nodes"]:
            status = self.statuses.get(node["id"])
            node["status"], node["line"] = (None, None) if status is None else (status.word, status.line)
        for index, edge in enumerate(facts["edges"]):
            edge["taken"] = index in self.taken
        return {**facts, "finding": finding.plain()}


def _passages(graph: Graph, trace: Sequence[tuple[str, str]]) -> Iterator[Passage]:
    """What happens at one step after the other; a step that follows itself is passed again with each first choice."""
    current: Passage | None = None
    for step, choice in trace:
        node = _node_of(graph, step)
        if node is None:
            continue
        if current is not None and current[0] == node.id and choice not in current[1]:
            current[1].append(choice)
            continue
        if current is not None:
            yield current
        current = (node.id, [choice])
    if current is not None:
        yield current


def _node_of(graph: Graph, step: str) -> Node | None:
    """By its name; a qualified one (`Flow/step`) by its end, in a frame that has the rest."""
    outer, _, name = step.rpartition("/")
    named = [node for node in graph.nodes if node.label == step or node.label == name or node.id == step]
    inside = [node for node in named if outer and outer.rpartition("/")[2] in node.parent]
    return next(iter(inside or named), None)


def _taken(graph: Graph, passages: Sequence[Passage]) -> set[int]:
    """The edges between steps that follow each other, and the one from the beginning."""
    if not passages:
        return set()
    starts = {node.id for node in graph.nodes if node.role is Role.START}
    taken = {index for index, edge in enumerate(graph.edges) if edge.source in starts and edge.target == passages[0][0]}
    for (source, choices), (target, _) in pairwise(passages):
        between = [
            (index, edge) for index, edge in enumerate(graph.edges) if (edge.source, edge.target) == (source, target)
        ]
        labelled = [index for index, edge in between if edge.label and any(edge.label in item for item in choices)]
        taken |= {labelled[0] if labelled else index for index, _ in between[:1]}
    return taken
