"""The graph of a run for programs that draw it: at most so many nodes at once, what is inside others on request.

A frame whose parts are not shown is *folded*: edges that lead into it end at it. What is under a node are the nodes
inside it, or else its visits: the elements of a loop, the dispatches of a Gather, failed ones first.
"""

from collections import defaultdict
from typing import Any

from perdure.engine.client import Client
from perdure.kernel.graphs.run_trace import Visit, VisitStatus
from perdure.kernel.json_values.values import RunId
from perdure.views.errors import StepNotFound
from perdure.views.runs.run_graph import TracedRun, count_visits, run_graph_json, trace_run
from perdure.views.runs.run_pages import page_mark, read_offset, write_page_cursor
from perdure.views.times import iso

MOST_NODES = 500

Facts = dict[str, Any]


async def graph_of_run(
    client: Client, run: RunId, at: int | None = None, under: str = "", cursor: str | None = None
) -> Facts:
    begin = read_offset(cursor, _mark(run, under))
    return await trace_run(client, run, lambda traced: fold_graph(traced, under, begin), at)


def fold_graph(run: TracedRun, under: str = "", begin: int = 0) -> Facts:
    """The nodes under a node (empty: the outermost ones), from number `begin` on; deeper ones as far as they fit."""
    facts = run_graph_json(run)
    inside: dict[str, list[Facts]] = defaultdict(list)
    for node in facts["nodes"]:
        inside[node.get("parent", "")].append(node)
    if under and all(node["id"] != under for node in facts["nodes"]):
        raise StepNotFound(f"the graph of run {run.row.id} has no node {under[:80]!r}")
    _sum_up(facts["nodes"], inside)
    if under and not inside[under]:
        nodes = [_visit_json(under, number, visit) for number, visit in _visits(run, under)]
        return _page(run, {**facts, "nodes": nodes, "edges": []}, nodes, under, begin)
    page = inside[under][begin : begin + MOST_NODES]
    shown = _unfolded(page, inside)
    facts["edges"] = _edges_between(facts, {node["id"] for node in shown})
    facts["nodes"] = shown
    return _page(run, facts, inside[under], under, begin)


def _mark(run: RunId, under: str) -> str:
    return page_mark(["graph", run, under])


def _page(run: TracedRun, facts: Facts, all_of_them: list[Facts], under: str, begin: int) -> Facts:
    if facts["nodes"] is all_of_them:
        facts["nodes"] = run.mask.data(all_of_them[begin : begin + MOST_NODES])
    is_more = begin + MOST_NODES < len(all_of_them)
    return facts | ({"next": write_page_cursor([begin + MOST_NODES], _mark(run.row.id, under))} if is_more else {})


def _sum_up(nodes: list[Facts], inside: dict[str, list[Facts]]) -> None:
    """Frames that are not visited themselves have the counts of what is in them; a frame stands before its parts."""
    for node in reversed(nodes):
        parts = inside[node["id"]]
        node["inside"] = len(parts)
        if parts and not node["runs"]:
            node["count"] = {name: sum(part["count"][name] for part in parts) for name in ("done", "failed", "open")}


def _unfolded(page: list[Facts], inside: dict[str, list[Facts]]) -> list[Facts]:
    """The nodes, and what is in them, level by level, as long as all of it fits."""
    shown, level = list(page), page
    while level:
        below: list[Facts] = []
        for node in level:
            parts = inside[node["id"]]
            node["folded"] = len(shown) + len(parts) > MOST_NODES
            if not node["folded"]:
                shown += parts
                below += parts
        level = below
    return shown


def _edges_between(facts: Facts, shown: set[str]) -> list[Facts]:
    """Edges whose ends are shown, or are inside something that is; several between the same two are one."""
    parents = {node["id"]: node.get("parent", "") for node in facts["nodes"]}

    def visible(id: str) -> str:
        while id and id not in shown:
            id = parents[id]
        return id

    merged: dict[tuple[str, str, str, bool], Facts] = {}
    for edge in facts["edges"]:
        source, target = visible(edge["from"]), visible(edge["to"])
        if not (source and target) or (source == target and edge["from"] != edge["to"]):
            continue
        key = (source, target, edge.get("label", ""), edge["exceptional"])
        known = merged.setdefault(key, {**edge, "from": source, "to": target})
        known["taken"] |= edge["taken"]
    return list(merged.values())


def _visits(run: TracedRun, node: str) -> list[tuple[int, Visit]]:
    own = [visit for visit in run.trace.visits if visit.node == node]
    return sorted(enumerate(own), key=lambda numbered: (numbered[1].status is not VisitStatus.FAILED, numbered[0]))


def _visit_json(node: str, number: int, visit: Visit) -> Facts:
    return {
        "id": f"{node}#{number}",
        "label": visit.label or str(number),
        "kind": "visit",
        "role": "step",
        "parent": node,
        "status": str(visit.status),
        "runs": 1,
        "attempts": visit.attempts,
        "started_at": iso(visit.started_at),
        "ended_at": iso(visit.ended_at),
        "count": count_visits([visit]),
        "inside": 0,
        "folded": False,
    }
