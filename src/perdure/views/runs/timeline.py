"""A run over time: its visits in the order of a tree, and the same as JSON."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from perdure.engine.client import Client
from perdure.kernel.graphs.run_trace import Stretch, Visit, VisitStatus
from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Status
from perdure.views.access import Question, Scope, masked
from perdure.views.runs.run_graph import MomentQuery, TracedRun, read_traced
from perdure.views.times import iso

MOST_STRETCHES = 200  # of one visit, where visits are folded
SHOWN_ALIKE = 12  # visits of one node inside one other; more of them share a row


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A visit, or several of the same node that are shown together."""

    title: str
    kind: str
    depth: int
    visits: tuple[Visit, ...]

    @property
    def status(self) -> VisitStatus:
        for status in (VisitStatus.RUNNING, VisitStatus.WAITING, VisitStatus.FAILED):
            if any(visit.status is status for visit in self.visits):
                return status
        return self.visits[-1].status

    @property
    def started_at(self) -> Instant:
        return min(visit.started_at for visit in self.visits)

    @property
    def ended_at(self) -> Instant | None:
        if any(visit.ended_at is None for visit in self.visits):
            return None
        return max(visit.ended_at or 0 for visit in self.visits)

    @property
    def attempts(self) -> int:
        return sum(visit.attempts for visit in self.visits)

    @property
    def stretches(self) -> Iterator[Stretch]:
        for visit in self.visits:
            yield from visit.stretches


def timeline_rows(run: TracedRun, alike: int | None) -> list[TimelineRow]:
    """Rows in order of start, parts below what they belong to. Of visits of one node inside one other, so many have a
    row of their own, and the rest share one; None: all have their own.
    """
    nodes = {node.id: node for node in run.graph.nodes}
    inside: dict[int | None, list[Visit]] = defaultdict(list)
    for visit in run.trace.visits:
        inside[None if visit.parent is None else id(visit.parent)].append(visit)
    rows: list[TimelineRow] = []
    pending: list[tuple[Visit | TimelineRow, int]] = []

    def add(visits: list[Visit], depth: int) -> None:
        pending.extend(reversed([(item, depth) for item in _gathered(visits, depth, nodes, alike)]))

    add(inside[None], 0)
    while pending:
        item, depth = pending.pop()
        if isinstance(item, TimelineRow):
            rows.append(item)
            continue
        node = nodes[item.node]
        rows.append(TimelineRow(f"{node.label}{item.label}", node.kind, depth, (item,)))
        add(inside[id(item)], depth + 1)
    return rows


def _gathered(
    visits: list[Visit], depth: int, nodes: dict[str, Any], most: int | None
) -> Iterator[Visit | TimelineRow]:
    alike: dict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        alike[visit.node].append(visit)
    rest = {node: group[most:] for node, group in alike.items() if most is not None and len(group) > most + 1}
    hidden = {id(visit) for group in rest.values() for visit in group}
    for visit in visits:
        if id(visit) not in hidden:
            yield visit
        elif visit is rest[visit.node][0]:
            node, group = nodes[visit.node], rest[visit.node]
            yield TimelineRow(f"{node.label}: {len(group)} more", node.kind, depth, tuple(group))


class TimelineQuery(MomentQuery):
    everything: bool = False


class Timeline(msgspec.Struct):
    """A run over time, as it is drawn."""

    name: str
    language: str
    status: Status
    started_at: Instant
    now: Instant
    is_over: bool
    rows: list[TimelineRow]


async def read_timeline(client: Client, scope: Scope, query: TimelineQuery) -> Timeline:
    return await read_traced(
        client, scope, query, lambda run: _timeline(run, None if query.everything else SHOWN_ALIKE)
    )


def _timeline(run: TracedRun, alike: int | None) -> Timeline:
    rows = [
        replace(row, visits=tuple(msgspec.structs.replace(visit, parent=None) for visit in row.visits))
        for row in timeline_rows(run, alike)
    ]
    facts = Timeline(run.row.name, run.row.language, run.row.status, run.started_at, run.now, run.is_over, rows)
    return masked(facts, Timeline, run.mask.text)


class TimelineJsonQuery(MomentQuery):
    alike: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None  # of visits of one node; the rest share an entry


async def read_timeline_json(client: Client, scope: Scope, query: TimelineJsonQuery) -> Any:
    return await read_traced(client, scope, query, lambda run: timeline_json(run, query.alike))


TIMELINE = Question(
    "get_timeline_rows", "/runs/{id}/timeline-rows", "the timeline to draw", TimelineQuery, Timeline, read_timeline
)
TIMELINE_JSON = Question(
    "get_timeline", "/runs/{id}/timeline", "the steps of the run over time", TimelineJsonQuery, Any, read_timeline_json
)


def timeline_json(run: TracedRun, alike: int | None = None) -> Any:
    """Every visit, with its attempts and waits; those that share an entry are counted in it."""
    steps = []
    for row in timeline_rows(run, alike):
        count = len(row.visits)
        stretches = [
            {
                "kind": "wait" if stretch.is_wait else "attempt",
                "started_at": iso(stretch.started_at),
                "ended_at": iso(stretch.ended_at),
                "failed": stretch.has_failed,
            }
            for stretch in ([] if count > 1 else _merged(row.visits[0].stretches, MOST_STRETCHES if alike else None))
        ]
        steps.append(
            {
                "node": row.visits[0].node,
                "title": row.title,
                "kind": row.kind,
                "depth": row.depth,
                "status": str(row.status),
                "attempts": row.attempts,
                "started_at": iso(row.started_at),
                "ended_at": iso(row.ended_at),
                "stretches": stretches,
                **({"count": count} if count > 1 else {}),
            }
        )
    facts = {
        "run": run.row.id,
        "language": run.row.language,
        "name": run.row.name,
        "status": str(run.row.status),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.now) if run.is_over else None,
        "steps": steps,
        "visits": len(run.trace.visits),
    }
    return run.mask.data(facts)


def _merged(stretches: list[Stretch], most: int | None) -> list[Stretch]:
    """Where they are more, those of a kind that follow each other closely are one."""
    if most is None or len(stretches) <= most:
        return stretches
    ends = [stretch.ended_at or stretch.started_at for stretch in stretches]
    gap = (max(ends) - stretches[0].started_at) // most
    latest: dict[tuple[bool, bool], Stretch] = {}
    merged: list[Stretch] = []
    for stretch in stretches:
        kind = (stretch.is_wait, stretch.has_failed)
        before = latest.get(kind)
        if before is None or (before.ended_at is not None and stretch.started_at - before.ended_at > gap):
            latest[kind] = msgspec.structs.replace(stretch)
            merged.append(latest[kind])
        elif before.ended_at is not None:
            before.ended_at = None if stretch.ended_at is None else max(before.ended_at, stretch.ended_at)
    return merged
