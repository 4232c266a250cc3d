"""Runs as OpenTelemetry traces: one for a run and all below it, exported from what was recorded, when a run has ended.

It is a hook: the store keeps which ends were exported, any server exports them, and those that were under way when a
server died are exported again, with the same ids. A run that is reopened exports what its new life has added.

    run ── step ── attempt        links: from what follows a wait to what came before it
            └───── wait
"""

import asyncio
import gzip
import hashlib
import ssl
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from perdure.engine.client import Client
from perdure.engine.decision_threads import SMALL, done_aside
from perdure.kernel.errors import PerdureError, RunNotFound
from perdure.kernel.graphs.run_trace import Visit, VisitStatus
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.trace_context import attempt_span, is_sampled, parent_span, span_id, trace_id
from perdure.providers.failure import ProviderFailure
from perdure.server.hook_settings import Hook
from perdure.server.limits import BadServerSettings, TracesTable
from perdure.stores.hook_deliveries import DeliveryRow
from perdure.stores.protocol import RunFilter
from perdure.views.errors import BadRequest
from perdure.views.runs.progress_events import step_of_path
from perdure.views.runs.run_graph import NoPicture, TracedRun, trace_run

if TYPE_CHECKING:
    import httpx
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

NAME = "traces"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MOST_SPANS = 10_000  # of one life of a run: the first ones, and the root says how many there were
AT_ONCE = 500  # spans in one request
FEW_SPANS = 20  # which are written on the event loop
MANY_EVENTS = 256  # of a run, whose spans are then made in a thread
MOST_LOOKED_AT = 100  # spans that one span is compared with


@dataclass
class Span:
    """A part of a trace; instants are microseconds."""

    id: str
    name: str
    started_at: Instant
    ended_at: Instant
    parent: str = ""
    links: list[str] = field(default_factory=list)  # ids of spans of the same trace
    attributes: dict[str, str | int] = field(default_factory=dict)
    error: str | None = None  # it has failed


async def spans_of(client: Client, run: RunId, life: int | None = None) -> tuple[str, list[Span]]:
    """The trace of a run, and the spans of one of its lives, the latest if none is named; the run itself first."""
    row = await client.find(run)
    history = await client.history(run, raw=True)
    ends = [event["at"] for event in history if event["event"] == "RunEnded"]
    number = len(ends) if life is None else life
    began = history[0]["at"] if number <= 1 else ends[number - 2]
    ended = ends[number - 1] if 0 < number <= len(ends) else history[-1]["at"]
    outcome: dict[str, Any] = next((event["outcome"] for event in history[::-1] if event["event"] == "RunEnded"), {})
    root = Span(span_id(run, "life", max(1, number)), f"{row.language} {row.name}", began, ended)
    above = run.rpartition(".")[0]
    root.parent = span_id(above, "life", 1) if above else parent_span(row.labels)
    root.links = [span_id(run, "life", number - 1)] if number > 1 else []
    root.attributes = {
        "perdure.run": run,
        "perdure.language": row.language,
        "perdure.document": row.name,
        "perdure.namespace": row.namespace,
        "perdure.status": row.status.value,
        "perdure.life": max(1, number),
    }
    if row.status.value in ("failed", "cancelled"):
        root.error = str(outcome.get("code") or outcome.get("reason") or row.status.value)
    labels, visits = await _visits(client, run)
    size = SMALL + 1 if len(history) > MANY_EVENTS else 0
    spans = await done_aside(size, lambda: _parts(run, history, labels, visits, root))
    parts = [span for span in spans if began <= span.ended_at <= ended]
    if len(parts) > MOST_SPANS:
        root.attributes["perdure.spans"] = len(parts)
    return trace_id(run, row.labels), [root, *parts[:MOST_SPANS]]


def _parts(
    run: RunId, history: Sequence[Mapping[str, Any]], labels: Mapping[str, str], visits: Sequence[Visit], root: Span
) -> list[Span]:
    places = {id(visit): at for at, visit in enumerate(visits)}
    steps = [_step_span(run, at, visit, labels, places, root) for at, visit in enumerate(visits)]
    waits = [span for at, visit in enumerate(visits) for span in _wait_spans(run, at, visit, steps[at])]
    attempts = list(_attempts(run, history, steps, root))
    _link_over_waits(visits, steps, attempts)
    return [*steps, *attempts, *waits]


async def _visits(client: Client, run: RunId) -> tuple[dict[str, str], list[Visit]]:
    """The labels of nodes, and the visits that have ended."""
    try:
        return await trace_run(client, run, _labels_and_visits)
    except NoPicture:
        return {}, []


def _labels_and_visits(traced: TracedRun) -> tuple[dict[str, str], list[Visit]]:
    return {node.id: node.label for node in traced.graph.nodes}, list(traced.trace.visits)


def _step_span(
    run: RunId, at: int, visit: Visit, labels: Mapping[str, str], places: Mapping[int, int], root: Span
) -> Span:
    above = places.get(id(visit.parent)) if visit.parent is not None else None
    name = labels.get(visit.node, visit.node)
    span = Span(span_id(run, "visit", at), name, visit.started_at, visit.ended_at or root.ended_at)
    span.parent = root.id if above is None else span_id(run, "visit", above)
    span.attributes = {"perdure.step": name, "perdure.place": visit.node}
    if visit.label:
        span.attributes["perdure.item"] = visit.label
    if visit.status is VisitStatus.FAILED:
        span.error = "failed"
    elif visit.status is not VisitStatus.DONE:
        span.attributes["perdure.ended"] = str(visit.status)
    return span


def _wait_spans(run: RunId, at: int, visit: Visit, step: Span) -> Iterator[Span]:
    for number, stretch in enumerate(visit.stretches):
        if stretch.is_wait:
            ended_at = stretch.ended_at or step.ended_at
            span = Span(span_id(run, "wait", at, number), f"{step.name} wait", stretch.started_at, ended_at, step.id)
            span.attributes = {"perdure.step": step.name, "perdure.wait": "true"}
            yield span


def _attempts(run: RunId, history: Sequence[Mapping[str, Any]], steps: Sequence[Span], root: Span) -> Iterator[Span]:
    """What tasks did, from when they were scheduled to their result."""
    by_name: dict[str, list[tuple[int, Span]]] = {}  # in the order in which they started
    for at, step_span in enumerate(steps):
        by_name.setdefault(step_span.name, []).append((at, step_span))
    scheduled: dict[int, tuple[Mapping[str, Any], int]] = {}
    for event in history:
        match event["event"]:
            case "TaskScheduled":
                scheduled[event["task"]] = (event, 1)
            case "TaskRedelivered" if event["task"] in scheduled:
                scheduled[event["task"]] = (scheduled[event["task"]][0], event["delivery"])
            case "TaskEnded" if event["task"] in scheduled:
                begun, deliveries = scheduled.pop(event["task"])
                step = _step_of(begun, by_name)
                span = Span(attempt_span(run, event["task"]), begun["provider"], begun["at"], event["at"])
                span.parent = root.id if step is None else step.id
                span.attributes = {
                    "perdure.provider": begun["provider"],
                    "perdure.attempt": begun["attempt"],
                    "perdure.deliveries": deliveries,
                    "perdure.path": begun["path"],
                }
                outcome = event["outcome"]
                if outcome["type"] != "Succeeded":
                    span.error = str(outcome.get("code") or outcome["type"])
                yield span


def _step_of(begun: Mapping[str, Any], by_name: Mapping[str, Sequence[tuple[int, Span]]]) -> Span | None:
    """The innermost visit of the step that the path of a task names, open at that time; of several, of its item.

    Of thousands of visits of one step, those that had started last are looked at.
    """
    open_then: list[tuple[bool, int, Span]] = []
    for name in {part.partition("[")[0] for part in step_of_path(begun["path"]).split(" › ")}:
        visits = by_name.get(name, ())
        started = bisect_right(visits, begun["at"], key=lambda visit: visit[1].started_at)
        open_then += [
            (str(step.attributes.get("perdure.item", "-")) in begun["path"], at, step)
            for at, step in visits[max(0, started - MOST_LOOKED_AT) : started]
            if begun["at"] <= step.ended_at
        ]
    return max(open_then, key=lambda visit: visit[:2])[2] if open_then else None


def _link_over_waits(visits: Sequence[Visit], steps: Sequence[Span], attempts: Sequence[Span]) -> None:
    """An attempt after a wait is linked to the one before it; a step that a wait led to, to the step that waited."""
    by_parent: dict[str, list[Span]] = {}
    for attempt in attempts:
        by_parent.setdefault(attempt.parent, []).append(attempt)
    by_start: dict[Instant, list[Span]] = {}
    for step in steps:
        by_start.setdefault(step.started_at, []).append(step)
    for visit, step in zip(visits, steps, strict=True):
        waits = [stretch for stretch in visit.stretches if stretch.is_wait and stretch.ended_at is not None]
        if not waits:
            continue
        own = sorted(by_parent.get(step.id, ()), key=lambda span: span.started_at)
        for earlier, later in pairwise(own):
            if any(earlier.ended_at <= wait.started_at and (wait.ended_at or 0) <= later.started_at for wait in waits):
                later.links.append(earlier.id)
        if visit.stretches[-1].is_wait and visit.ended_at is not None:
            for other in by_start.get(visit.ended_at, ())[:MOST_LOOKED_AT]:
                if other is not step:
                    other.links.append(step.id)


def trace_hooks(settings: TracesTable, environment: Mapping[str, str]) -> list[Hook]:
    """The hook that exports traces, if somebody says where to."""
    by_variable = any(environment.get(name) for name in ENDPOINTS)
    if not settings.endpoint and not by_variable:
        return []
    named = settings.endpoint or next(environment[name] for name in ENDPOINTS if environment.get(name))
    url = named if settings.endpoint or environment.get(ENDPOINTS[0]) else f"{named.rstrip('/')}/v1/traces"
    try:
        exporter = TraceExporter(settings, url, environment)
    except ImportError:
        raise BadServerSettings("traces need OpenTelemetry's packages", hint="pip install 'perdure[otel]'") from None
    mark = hashlib.sha256(named.encode()).hexdigest()[:8]
    about = (f"{NAME}-{mark}", named, b"", RunFilter(), settings.timeout, int(settings.give_up * SECOND))
    return [Hook(*about, exporter.send, _certificates(environment))]


def _of_traces(environment: Mapping[str, str], name: str) -> str:
    """A variable of OpenTelemetry: the one for traces counts more than the one for everything."""
    general = f"OTEL_EXPORTER_OTLP_{name}"
    return environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environment.get(general) or ""


def _certificates(environment: Mapping[str, str]) -> ssl.SSLContext | None:
    authorities, own = _of_traces(environment, "CERTIFICATE"), _of_traces(environment, "CLIENT_CERTIFICATE")
    if not authorities and not own:
        return None
    try:
        context = ssl.create_default_context(cafile=authorities or None)
        if own:
            context.load_cert_chain(own, _of_traces(environment, "CLIENT_KEY") or None)
    except (OSError, ssl.SSLError) as error:
        raise BadServerSettings(f"the certificates of OTEL_EXPORTER_OTLP_… cannot be read: {error}") from None
    return context


class TraceExporter:
    """Sends OTLP over HTTP itself: the exporter of OpenTelemetry reads answers without end, in threads of others."""

    def __init__(self, settings: TracesTable, url: str, environment: Mapping[str, str]) -> None:
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.sdk.resources import Resource

        own = dict(settings.headers) | _read_headers(settings.headers_file)
        pairs = (part.partition("=") for part in _of_traces(environment, "HEADERS").split(","))
        headers = own or {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}
        self._is_packed = _of_traces(environment, "COMPRESSION").strip().lower() == "gzip"
        if self._is_packed:
            self._headers["Content-Encoding"] = "gzip"
        self._url, self._timeout = url, settings.timeout
        self._resource: Resource = Resource.create({"service.name": settings.service})
        self._encode = encode_spans

    async def send(self, client: Client, http: "httpx.AsyncClient", row: DeliveryRow) -> tuple[int | None, str]:
        """Export the life of a run that has ended, in pieces; what was exported before has the same ids."""
        try:
            if not is_sampled((await client.find(RunId(row.run))).labels):
                return 204, ""
            trace, spans = await spans_of(client, RunId(row.run))
        except RunNotFound:
            return 204, ""  # it was removed
        except PerdureError as error:
            return None, str(error)
        for begin in range(0, len(spans), AT_ONCE):
            piece = spans[begin : begin + AT_ONCE]
            size = SMALL + 1 if len(piece) > FEW_SPANS else 0
            status, problem = await self._post(http, await done_aside(size, partial(self._text, trace, piece)))
            if status is None or not 200 <= status < 300:
                return status, problem or f"the collector answered {status}"
        return 200, ""

    async def _post(self, http: "httpx.AsyncClient", text: bytes) -> tuple[int | None, str]:
        """The status of the answer; nothing else of it is read."""
        import httpx

        try:
            async with (
                asyncio.timeout(self._timeout),
                http.stream("POST", self._url, content=text, headers=self._headers) as response,
            ):
                return response.status_code, ""
        except (httpx.HTTPError, httpx.InvalidURL, ProviderFailure, OSError, TimeoutError) as failure:
            return None, f"{type(failure).__name__}: {failure}".rstrip(": ")

    def _text(self, trace: str, spans: Sequence[Span]) -> bytes:
        exported = [readable(trace, span, self._resource) for span in spans]
        text: bytes = self._encode(exported).SerializeToString()
        return gzip.compress(text) if self._is_packed else text


def readable(trace: str, span: Span, resource: "Resource") -> "ReadableSpan":
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(id: str) -> SpanContext:
        return SpanContext(int(trace, 16), int(id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        span.name,
        context(span.id),
        context(span.parent) if span.parent else None,
        resource,
        span.attributes,
        links=[Link(context(id)) for id in span.links],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error is not None else Status(StatusCode.OK),
        start_time=span.started_at * 1_000,
        end_time=max(span.started_at, span.ended_at) * 1_000,
        instrumentation_scope=InstrumentationScope("perdure"),
    )


def _read_headers(path: str) -> dict[str, str]:
    if not path:
        return {}
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise BadRequest(f"[traces] headers_file: {path} cannot be read") from None
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines) if name.strip()}
