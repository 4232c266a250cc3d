"""Coverage of a document by runs: which of its steps, arcs and branches some run has used."""

from collections import defaultdict
from typing import Any

import msgspec

from perdure.kernel.graphs.graph import Edge, Graph, Node, Role
from perdure.kernel.graphs.run_trace import Trace, VisitStatus


class CoverageShare(msgspec.Struct, frozen=True):
    """How many of how many."""

    covered: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 if not self.total else round(100 * self.covered / self.total, 1)

    def __str__(self) -> str:
        return f"{self.covered} of {self.total}"


class Branch(msgspec.Struct, frozen=True):
    """One way on where there are several: out of a step, or past a condition."""

    node: str
    label: str
    is_covered: bool


class Coverage:
    """What runs have used of one graph; runs are added one after another."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.runs: dict[str, int] = defaultdict(int)  # by node: in how many runs it was used
        self.skipped: set[str] = set()
        self.arcs: dict[int, int] = defaultdict(int)  # by edge
        self._frames = {node.parent for node in graph.nodes if node.parent}

    def add(self, trace: Trace) -> None:
        used = {visit.node for visit in trace.visits if visit.status is not VisitStatus.SKIPPED} | trace.passed.keys()
        for node in used:
            self.runs[node] += 1
        self.skipped |= {visit.node for visit in trace.visits if visit.status is VisitStatus.SKIPPED}
        for at in taken_edges(self.graph, trace):
            self.arcs[at] += 1

    def is_used(self, node: str) -> bool:
        return node in self.runs

    @property
    def counted(self) -> list[Node]:
        """Steps: not where runs begin, and not frames that only hold others."""
        held = {node.id for node in self.graph.nodes if node.id in self._frames and not node.kind}
        return [node for node in self.graph.nodes if node.role is not Role.START and node.id not in held]

    @property
    def steps(self) -> CoverageShare:
        steps = self.counted
        return CoverageShare(sum(self.is_used(node.id) for node in steps), len(steps))

    @property
    def edges(self) -> CoverageShare:
        return CoverageShare(len(self.arcs), len(self.graph.edges))

    @property
    def branch_list(self) -> list[Branch]:
        ways: dict[str, list[tuple[int, Edge]]] = defaultdict(list)
        for at, edge in enumerate(self.graph.edges):
            ways[edge.source].append((at, edge))
        labels = {node.id: node.label for node in self.graph.nodes}
        branches = [
            Branch(source, edge.label or f"to {labels.get(edge.target, edge.target)}", at in self.arcs)
            for source, edges in ways.items()
            if len(edges) > 1
            for at, edge in edges
        ]
        for node in self.graph.nodes:
            condition = next((note for note in node.notes if note.startswith("if ")), None)
            if condition is not None:
                branches.append(Branch(node.id, condition, self.is_used(node.id)))
                branches.append(Branch(node.id, f"not {condition}", node.id in self.skipped))
        return branches

    @property
    def branches(self) -> CoverageShare:
        branches = self.branch_list
        return CoverageShare(sum(branch.is_covered for branch in branches), len(branches))

    def missing(self) -> list[str]:
        """What no run has used, as phrases."""
        names = {node.id: node.label for node in self.graph.nodes}
        phrases = [f"step {node.label}" for node in self.counted if not self.is_used(node.id)]
        phrases += [
            f"arc {names.get(edge.source, edge.source)} → {names.get(edge.target, edge.target)}"
            + (f" ({edge.label})" if edge.label else "")
            for at, edge in enumerate(self.graph.edges)
            if at not in self.arcs
        ]
        both = {
            (branch.node, branch.label) for branch in self.branch_list if branch.label.startswith(("if ", "not if "))
        }
        phrases += [
            f"branch {names[branch.node]}: {branch.label}"
            for branch in self.branch_list
            if not branch.is_covered and (branch.node, branch.label) in both
        ]
        return phrases

    def facts(self) -> dict[str, Any]:
        """As JSON data."""
        shares = {"steps": self.steps, "arcs": self.edges, "branches": self.branches}
        totals = {name: {**msgspec.to_builtins(share), "percent": share.percent} for name, share in shares.items()}
        return {
            **totals,
            "by_step": [
                {"step": node.id, "label": node.label, "runs": self.runs.get(node.id, 0)} for node in self.counted
            ],
            "by_arc": [
                {"source": edge.source, "target": edge.target, "label": edge.label, "runs": self.arcs.get(at, 0)}
                for at, edge in enumerate(self.graph.edges)
            ],
            "by_branch": [msgspec.to_builtins(branch) for branch in self.branch_list],
            "missing": self.missing(),
        }


def taken_edges(graph: Graph, trace: Trace) -> set[int]:
    """The edges of the graph that the run has taken."""
    attempts: dict[str, int] = defaultdict(int)
    for visit in trace.visits:
        attempts[visit.node] += visit.attempts - 1
    taken = trace.taken
    return {
        at
        for at, edge in enumerate(graph.edges)
        if (edge.source, edge.target, None, edge.is_exceptional) in taken
        or (edge.source, edge.target, edge.label, edge.is_exceptional) in taken
        or (edge.source == edge.target and attempts[edge.source] > 0 and edge.label.startswith("retry"))
    }
