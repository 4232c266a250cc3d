"""A hostile run harms no other run: whoever looks at a long one does not stop the event loop."""

import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.runs.history_pages import _HistoryReader
from perdure.engine.runs.run_index import RunIndex
from perdure.kernel.graphs.run_trace import Visit
from perdure.kernel.json_values.values import RunId
from perdure.server.trace_export import Span, _parts
from perdure.views.runs.graph_folding import graph_of_run
from perdure.views.runs.run_causes import explain_run
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

            def observed(*given: Any) -> Any:
                called.append((name, threading.current_thread() is threading.main_thread()))
                return before(*given)

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
