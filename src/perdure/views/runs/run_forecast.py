"""What runs of a document took up to now, and when one that is under way should end (`perdure forecast`)."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from perdure.analysis.forecast import FEWEST, Forecast, ObservedRun, Spread, make_forecast
from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.kernel.errors import RunNotFound
from perdure.kernel.graphs.graph import Graph
from perdure.kernel.graphs.run_trace import trace_turns
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Status
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.access import NoParameters, Query, Question, Scope
from perdure.views.runs.run_graph import TracedRun, trace_run
from perdure.views.times import iso

MOST_RUNS = 500  # the latest ones that are looked at
MOST_VISITS = 200_000  # of their steps
COUNTED = (Status.SUCCEEDED, Status.FAILED)  # one that was cancelled says nothing about how long it takes


class ForecastQuery(Query):
    name: str
    language: str | None = None
    namespace: str | None = None


async def read_forecast(client: Client, scope: Scope, query: ForecastQuery) -> dict[str, Any]:
    """Of a document, given by the name of its runs."""
    about = RunFilter(name=query.name, language=query.language, namespaces=scope.namespaces, limit=1)
    latest = await client.search(about)
    if not latest:
        raise RunNotFound(f"no run has the name {query.name!r}", hint="`perdure ps --all` lists runs with their names.")
    return await _forecast(client, latest[0], is_about_run=False)


async def read_run_forecast(client: Client, scope: Scope, query: NoParameters) -> dict[str, Any]:
    """Of the run's document; and of the run itself: how it compares, and when it should end."""
    return await _forecast(client, await client.find(scope.run), is_about_run=True)


FORECAST = Question(
    "forecast_document",
    "/forecast",
    "how long runs of a document take, by their name",
    ForecastQuery,
    Any,
    read_forecast,
    is_expensive=True,
)
RUN_FORECAST = Question(
    "forecast_run",
    "/runs/{id}/forecast",
    "when the run should end, after earlier runs of its document",
    NoParameters,
    Any,
    read_run_forecast,
)
FORECASTS = (FORECAST, RUN_FORECAST)


async def _forecast(client: Client, row: RunRow, *, is_about_run: bool) -> dict[str, Any]:
    """Runs of the same version of the document count; others too, as long as these are too few."""
    about = RunFilter(name=row.name, language=row.language, namespaces=[row.namespace], limit=MOST_RUNS)
    others = await client.search(replace(about, statuses=COUNTED))
    if is_about_run:
        others = [other for other in others if other.id != row.id]
    same = [other for other in others if other.program == row.program]
    chosen = same if len(same) >= FEWEST else others
    ended = await _observe(client, chosen) if len(chosen) >= FEWEST else []

    def look(traced: TracedRun) -> dict[str, Any]:
        own = ObservedRun(traced.started_at, traced.now, False, traced.trace.visits) if is_about_run else None
        order = [node.id for node in traced.graph.nodes]
        forecast = make_forecast(ended, order, own, is_over=traced.is_over)
        if not forecast.is_enough:
            forecast = Forecast(len(chosen))
        facts = {
            "name": row.name,
            "language": row.language,
            "namespace": row.namespace,
            **({"run": row.id, "status": str(row.status), "is_over": traced.is_over} if is_about_run else {}),
            "same_version": chosen is same,
            **_forecast_json(forecast, traced.graph, traced.now),
        }
        shown: dict[str, Any] = traced.mask.data(facts)
        return shown

    return await trace_run(client, row.id, look)


async def _observe(client: Client, rows: Sequence[RunRow]) -> list[ObservedRun]:
    """The latest ones first, until that are enough visits."""
    observed: list[ObservedRun] = []
    visits = 0
    for row in rows:
        dialect = run_views.dialect_of(client.languages, row.language)
        program = await run_views.program_of(client.store, dialect, row)
        turns = await run_views.turns(client.store, dialect, row.id)
        trace = await run_views.told_aside(turns, partial(trace_turns, dialect.tracer(program), turns))
        observed.append(ObservedRun(turns[0][0], turns[-1][0], row.status is Status.FAILED, trace.visits))
        visits += len(trace.visits)
        if visits > MOST_VISITS:
            break
    return observed


def _forecast_json(forecast: Forecast, graph: Graph, now: Instant) -> dict[str, Any]:
    names = step_names(graph)
    expected = forecast.expected
    return {
        "runs": forecast.runs,
        "needed": forecast.needed,
        "is_enough": forecast.is_enough,
        "failed": round(forecast.failed, 4),
        "seconds": _spread_json(forecast.lasts),
        "steps": [
            {
                "step": names.get(step.step, step.step),
                "runs": step.runs,
                "visits": step.visits,
                "failed": round(step.failed, 4),
                "seconds": _spread_json(step.lasts),
                "critical": round(step.critical, 4),
            }
            for step in forecast.steps
        ],
        "paths": [
            {
                "steps": [names.get(step, step) for step in path.steps],
                "runs": path.runs,
                "failed": round(path.failed, 4),
                "seconds": _spread_json(path.lasts),
            }
            for path in forecast.paths
        ],
        "critical_path": [
            {"step": names.get(part.step, part.step), "seconds": part.lasts / SECOND} for part in forecast.critical_path
        ],
        "expected": None
        if expected is None
        else {
            "seconds": expected.lasted / SECOND,
            "slower_than": round(expected.slower_than, 4),
            "since": names.get(expected.since, expected.since) or None,
            "compared": expected.compared,
            "longer": expected.longer,
            "ends_at": None
            if expected.left is None
            else {"p50": iso(now + expected.left.p50), "p95": iso(now + expected.left.p95)},
        },
    }


def _spread_json(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"p50": spread.p50 / SECOND, "p95": spread.p95 / SECOND, "p99": spread.p99 / SECOND}


def step_names(graph: Graph) -> dict[str, str]:
    """The nodes of a graph as people call them: by their label, unless another one has it."""
    labels = Counter(node.label for node in graph.nodes)
    return {node.id: node.label if labels[node.label] == 1 else node.id.strip("/") for node in graph.nodes}
