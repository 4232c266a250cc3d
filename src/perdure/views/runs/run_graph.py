"""A run on the graph of its document: statuses of nodes, edges taken, and the same as JSON (`GET …/{id}/graph`)."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from perdure.analysis.coverage import taken_edges
from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.run_index import RunIndex, read_index
from perdure.kernel.errors import PerdureError
from perdure.kernel.graphs.graph import Graph
from perdure.kernel.graphs.run_trace import Trace, Visit, VisitStatus
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.secrets.secret_masking import Mask
from perdure.stores.protocol import RunRow
from perdure.views.access import Query, Question, Scope, masked
from perdure.views.drawing.boxes import NodeStatus
from perdure.views.drawing.markup import graph_json
from perdure.views.runs.history_events import event_at
from perdure.views.times import iso, span

R = TypeVar("R")


class NoPicture(PerdureError):
    """The document's language cannot be drawn."""

    code = "NO-PICTURE"
    hint = "Flows, Stories and Playbooks can be drawn."


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A run with its graph and what it made of it; `now` is when it was looked at, or when it ended."""

    row: RunRow
    graph: Graph
    trace: Trace
    started_at: Instant
    now: Instant
    is_over: bool
    mask: Mask


async def trace_run(client: Client, run: RunId, work: Callable[[TracedRun], R], at: int | None = None) -> R:
    """What the work makes of the run as it is now, or as it was after event number `at` of its history."""
    row = await client.find(run)
    with run_views.naming(run):
        dialect = run_views.dialect_of(client.languages, row.language)
        if not dialect.draws_graphs:
            raise NoPicture(f"a run in {row.language!r} cannot be drawn")
    mask = await run_views.mask_of_run(client.store, client.languages, row)
    is_over = row.status.is_final and at is None
    present = client.clock.now()

    def look(index: RunIndex) -> R:
        now = index.at if is_over or at is not None else max(index.at, present)
        return work(TracedRun(row, dialect.graph(index.program), index.trace, index.started_at, now, is_over, mask))

    return await read_index(client.store, client.languages, row, look, at)


class MomentQuery(Query):
    at: str | None = None  # an event: its number, its id, or a time


async def read_traced(client: Client, scope: Scope, query: MomentQuery, work: Callable[[TracedRun], R]) -> R:
    at = None if query.at is None else await event_at(client, scope.run, query.at)
    return await trace_run(client, scope.run, work, at)


class RunDrawing(msgspec.Struct):
    """A run on the graph of its document, to be drawn; `facts` are the same for programs."""

    graph: Graph
    statuses: dict[str, NodeStatus]
    taken: list[int]
    facts: dict[str, Any]


async def read_drawing(client: Client, scope: Scope, query: MomentQuery) -> RunDrawing:
    return await read_traced(client, scope, query, _drawing)


def _drawing(run: TracedRun) -> RunDrawing:
    drawing = RunDrawing(run.graph, node_statuses(run), sorted(taken_edges(run.graph, run.trace)), {})
    return msgspec.structs.replace(masked(drawing, RunDrawing, run.mask.text), facts=run_graph_json(run))


DRAWING = Question("get_drawing", "/runs/{id}/drawing", "the run to be drawn", MomentQuery, RunDrawing, read_drawing)


def visits_by_node(trace: Trace) -> dict[str, list[Visit]]:
    visits: dict[str, list[Visit]] = defaultdict(list)
    for visit in trace.visits:
        visits[visit.node].append(visit)
    return visits


def status_of(visits: list[Visit]) -> VisitStatus:
    """An open visit decides, else the last one."""
    statuses = [visit.status for visit in visits]
    for status in (VisitStatus.RUNNING, VisitStatus.WAITING):
        if status in statuses:
            return status
    return statuses[-1]


def node_statuses(run: TracedRun) -> dict[str, NodeStatus]:
    """The status of every node that the run has reached; frames that only hold others have the sum of those."""
    statuses: dict[str, NodeStatus] = {}
    for id, visits in visits_by_node(run.trace).items():
        statuses[id] = NodeStatus(str(status_of(visits)), _line(visits, run.now))
    inner: dict[str, list[str]] = defaultdict(list)
    parents = {node.id: node.parent for node in run.graph.nodes}
    for node in reversed(run.graph.nodes):
        if node.id not in statuses and (words := inner[node.id]):
            word = next((word for word in ("running", "waiting", "failed", "done") if word in words), words[-1])
            statuses[node.id] = NodeStatus(word, word)
        elif node.id not in statuses and node.id in run.trace.passed:
            statuses[node.id] = NodeStatus("done", "")
        if node.id in statuses:
            inner[parents[node.id]].append(statuses[node.id].word)
    return statuses


def _line(visits: list[Visit], now: Instant) -> str:
    """`done · 1.2 s · 3 attempts`, `failed · 2 of 5 runs · 12 s`."""
    status = status_of(visits)
    parts = [str(status)]
    if len(visits) > 1:
        failed = sum(visit.status is VisitStatus.FAILED for visit in visits)
        parts.append(f"{len(visits)} runs" + (f", {failed} failed" if failed else ""))
    if status is not VisitStatus.SKIPPED:
        first = min(visit.started_at for visit in visits)
        parts.append(short_span(max(visit.ended_at or now for visit in visits) - first))
    if (attempts := sum(visit.attempts for visit in visits)) > len(visits):
        parts.append(f"{attempts} attempts")
    return " · ".join(parts)


def short_span(length: Instant) -> str:
    """As `span`; below a second in milliseconds."""
    return f"{max(0, length) // 1_000} ms" if length < SECOND else span(length)


def run_graph_json(run: TracedRun) -> dict[str, Any]:
    """The graph as of a document; nodes with status, runs, counts and times, edges with `taken`."""
    facts, statuses = graph_json(run.graph), node_statuses(run)
    visits, taken = visits_by_node(run.trace), taken_edges(run.graph, run.trace)
    for node in facts["nodes"]:
        own = visits.get(node["id"], [])
        passed = run.trace.passed.get(node["id"])
        is_open = any(visit.ended_at is None for visit in own)
        node["status"] = statuses[node["id"]].word if node["id"] in statuses else None
        node["runs"] = len(own)
        node["attempts"] = sum(visit.attempts for visit in own)
        node["started_at"] = iso(min((visit.started_at for visit in own), default=passed))
        node["ended_at"] = None if is_open else iso(max((visit.ended_at or 0 for visit in own), default=None))
        node["count"] = count_visits(own)
    for at, edge in enumerate(facts["edges"]):
        edge["taken"] = at in taken
    masked: dict[str, Any] = run.mask.data({"run": run.row.id, **facts})
    return masked


def count_visits(visits: list[Visit]) -> dict[str, int]:
    """Those that are done, have failed, or are open; skipped and cancelled ones are in none of these."""
    statuses = [visit.status for visit in visits]
    is_open = sum(status.is_open for status in statuses)
    return {"done": statuses.count(VisitStatus.DONE), "failed": statuses.count(VisitStatus.FAILED), "open": is_open}
