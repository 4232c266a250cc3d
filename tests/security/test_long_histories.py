"""A hostile run harms no other run: whoever looks at a long one does not stop the event loop."""

import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.analysis.retracing import Retracing
from perdure.dialects.flow.document.flows import FLOW_SCHEMA
from perdure.engine.runs import history_pages
from perdure.engine.runs.history_pages import _HistoryReader
from perdure.engine.runs.run_index import RunIndex
from perdure.kernel.graphs.run_trace import Visit
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.server.handlers.run_handlers import EVENTS_AT_ONCE, _page_of_events
from perdure.server.request_types import EventsQuery
from perdure.server.trace_export import Span, _parts
from perdure.views.errors import BadRequest
from perdure.views.runs.graph_folding import graph_of_run
from perdure.views.runs.run_causes import explain_run
from perdure.views.runs.run_provenance import explain_value, read_field
from perdure.views.runs.run_steps import describe_step, list_steps

ITEMS = 300  # more events than are told on the event loop
LOOP = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: long, path: long}}
workload: {{items: {list(range(ITEMS))}}}
workflow:
- step: start
  loop: {{in: '{{{{ workload.items }}}}', iterator: item}}
  tool: {{kind: noop}}
"""
VIEWS: dict[str, Callable[[perdure.Engine, Any], Awaitable[Any]]] = {
    "picture": lambda engine, run: engine.show(run),
    "picture of the past": lambda engine, run: engine.show(run, 900),
    "graph": lambda engine, run: graph_of_run(engine, run),
    "steps": lambda engine, run: list_steps(engine, run),
    "step": lambda engine, run: describe_step(engine, run, "start", 10, None),
    "why": lambda engine, run: explain_run(engine, run),
    "history": lambda engine, run: engine.history(run),
}


async def test_a_long_run_is_told_traced_and_shown_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(LOOP.encode(), None)
        assert await handle.result() is not None
        language = engine.languages["playbook"]
        called: list[tuple[str, bool]] = []

        def observe(owner: Any, name: str) -> None:
            before = getattr(owner, name)

            def observed(*arguments: Any) -> Any:
                called.append((name, threading.current_thread() is threading.main_thread()))
                return before(*arguments)

            monkeypatch.setattr(owner, name, observed)

        parts = [(language, "show"), (language, "graph"), (language, "tracer"), (language, "step_reader")]
        for owner, name in [*parts, (RunIndex, "read"), (RunIndex, "steps"), (_HistoryReader, "read")]:
            observe(owner, name)
        for view in VIEWS.values():
            assert await view(engine, handle.id)

    assert {name for name, _ in called} == {"show", "graph", "tracer", "step_reader", "read", "steps"}
    assert not any(is_on_loop for _, is_on_loop in called), called


def test_the_trace_of_a_run_costs_what_it_has_of_spans() -> None:
    """Each attempt was compared with each visit, on the event loop: seconds for some thousand of both."""
    count = 2_000
    frame = Visit("loop", 0, ended_at=2 * count)
    visits = [frame, *(Visit("work", at, frame, str(at), count + at) for at in range(1, count))]
    history: list[dict[str, Any]] = []
    for at in range(1, count):
        task = {"task": at, "path": f"/work[{at}]", "provider": "p", "attempt": 1, "at": at}
        history.append({"event": "TaskScheduled", **task})
    for at in range(1, count):
        history.append({"event": "TaskEnded", "task": at, "at": count + at, "outcome": {"type": "Succeeded"}})
    calls = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    root = Span("1", "run", 0, 2 * count)
    sys.setprofile(profile)
    try:
        spans = _parts(RunId("r"), history, {}, visits, root)
    finally:
        sys.setprofile(None)
    attempts = [span for span in spans if span.name == "p"]
    items = {span.id: span.attributes.get("perdure.item") for span in spans}
    assert [items[span.parent] for span in attempts] == [str(at) for at in range(1, count)]
    assert calls < 500 * count


async def test_a_page_of_large_events_is_shorter() -> None:
    """SRV-015: a thousand events of 64 KiB each took hundreds of megabytes, four times per token."""
    asked: list[int] = []

    def history_of(count: int, values: int) -> Any:
        async def history(run: RunId, after: int, *, raw: bool, limit: int) -> list[dict[str, Any]]:
            asked.append(limit)
            return [{"seq": seq, "value": [0] * values} for seq in range(after + 1, min(count, after + limit) + 1)]

        engine = SimpleNamespace(history=history)
        return SimpleNamespace(engine=engine, run=SimpleNamespace(id=RunId("r")))

    query = EventsQuery(limit=1_000)
    events, has_more = await _page_of_events(history_of(5_000, 5_000), query)
    assert len(events) == 2 * EVENTS_AT_ONCE and has_more and set(asked) == {EVENTS_AT_ONCE}
    events, has_more = await _page_of_events(history_of(250, 1), query)
    assert [event["seq"] for event in events] == list(range(1, 251)) and not has_more
    events, has_more = await _page_of_events(history_of(5_000, 1), query)
    assert len(events) == 1_000 and has_more and max(asked) == 10 * EVENTS_AT_ONCE


async def test_a_history_is_masked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where secrets came with the input of a Playbook, each page was searched for them on the event loop."""
    aside: list[bool] = []

    def hide(item: Any) -> Any:
        aside.append(threading.current_thread() is not threading.main_thread())
        return item

    def read(reader: Any, dialect: Any, rows: Any, until: Any) -> None:
        reader.shown += [{"seq": number} for number in range(1, 4)]
        reader.bytes += len(rows[0][1])

    async def rows(run: RunId, after: int, most: int) -> list[tuple[int, bytes]]:
        return [(3, bytes(100_000))]

    class Rows:
        history = staticmethod(rows)

    monkeypatch.setattr(history_pages._HistoryReader, "read", read)
    store: Any = Rows()
    mask: Any = SimpleNamespace(hides=True, data=hide)
    dialect: Any = SimpleNamespace(history_teller=lambda run: None)
    row: Any = SimpleNamespace(id=RunId("r"), created_at=1)
    page = await history_pages.HistoryPages(store).read(dialect, row, mask, 0, is_own=True, limit=3)
    assert page == [{"seq": 1}, {"seq": 2}, {"seq": 3}] and aside == [True] * 3


async def test_why_a_value_is_what_it_is_says_nothing_of_large_values_and_is_told_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value that an expression had read was written to see how long it is: 0.2 s of the event loop for 2 MB."""
    steps: dict[str, Any] = {"s": {"action": "Pass", "assign": {"big": "{{ step.input }}"}, "next": "r"}}
    steps["r"] = {"action": "Return", "value": "{{ vars.big.size() }}"}
    document = {"$schema": FLOW_SCHEMA, "entrypoint": "s", "steps": steps}
    explained_in: list[threading.Thread] = []
    explain, encode = Retracing.explain, jsontext.encode

    def noting(self: Retracing, source: Any) -> Any:
        explained_in.append(threading.current_thread())
        return explain(self, source)

    def refusing(value: Any) -> bytes:
        assert not isinstance(value, list), "a large value is written"
        return encode(value)

    async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
        run = await engine.start(document, list(range(50_000)))
        await run.result()
        monkeypatch.setattr(Retracing, "explain", noting)
        monkeypatch.setattr(jsontext, "encode", refusing)
        answer = await explain_value(engine, run.id, None, "output")

    assert answer["value"] == 50_000
    assert answer["chain"][0]["reads"] == [{"path": "vars.big"}]
    assert threading.main_thread() not in explained_in


def test_a_number_in_a_path_has_a_limit() -> None:
    with pytest.raises(BadRequest):
        read_field(f"output[{'9' * 5_000}]")
