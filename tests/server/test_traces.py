"""Runs as OpenTelemetry traces, received by a real OTLP/HTTP collector on loopback (SRV-052)."""

import gzip
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from perdure.kernel.trace_context import attempt_span, read_traceparent, span_id, trace_id
from tests.server.serving import Server

MOST_READ = 20_000_000  # bytes: what the buffers of both sides hold, and more
GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "flaky",
    "steps": {
        "flaky": {
            "action": "Call",
            "middleware": [
                {
                    "provider": "mwl:provider.middleware/mwl/retry/v1",
                    "onEntry": {
                        "with": {
                            "policies": [
                                {"match": {"types": ["error"]}, "attempts": 3, "backoff": {"initial": "PT0.1S"}}
                            ]
                        }
                    },
                }
            ],
            "call": {"provider": "mwl:provider.call/perdure/flaky/v1"},
            "next": "rest",
        },
        "rest": {"action": "Sleep", "for": "PT0.1S", "next": "end"},
        "end": {"action": "Return", "value": "{{ step.input }}"},
    },
}
CODE = """
import os
import perdure

@perdure.provider("flaky")
def flaky(context):
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise RuntimeError("planted-secret-words")
    context.log("at work")
    return {"traceparent": context.traceparent}
"""


class Collector:
    """Keeps the spans that it is sent, by trace; refuses as often as it is told to, or answers without end."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[Any] = []
        self.refuse = 0
        self.is_endless = False
        self.most_read = 0  # bytes of an answer that were taken
        self.arrived = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                with collector.arrived:
                    if collector.refuse:
                        collector.refuse -= 1
                        self.send_response(400)
                        self.end_headers()
                        return
                    request = ExportTraceServiceRequest.FromString(body)
                    for resource in request.resource_spans:
                        collector.resources.append(resource.resource)
                        for scope in resource.scope_spans:
                            collector.spans += scope.spans
                    collector.arrived.notify_all()
                self.send_response(200)
                if collector.is_endless:
                    self.send_header("Content-Length", str(1 << 40))
                self.end_headers()
                with suppress(OSError):
                    sent = 0
                    while collector.is_endless and sent < 4 * MOST_READ:
                        self.wfile.write(b"x" * 100_000)
                        sent += 100_000
                        collector.most_read = max(collector.most_read, sent)

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def of(self, trace: str, enough: str) -> list[Any]:
        """The spans of a trace, once one of this name is there."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(span.name == enough for span in self._of(trace)), 120)
            return self._of(trace)

    def _of(self, trace: str) -> list[Any]:
        return [span for span in self.spans if span.trace_id.hex() == trace]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    receiving = Collector()
    yield receiving
    receiving.close()


def _serve(folder: Path, collector: Collector, *words: str) -> Server:
    (folder / "settings.toml").write_text(f'[traces]\nendpoint = "{collector.url}"\nservice = "shop"\n')
    (folder / "app.py").write_text(CODE)
    return Server.start(
        folder, "--load", "app.py", "--log-format", "json", "-v", *words, PERDURE_CONFIG=str(folder / "settings.toml")
    )


def test_a_run_is_one_trace_with_spans_of_steps_and_attempts(tmp_path: Path, collector: Collector) -> None:
    """SRV-052: from what was recorded, with links over waits, and without texts of the run.

    A collector whose answers do not end holds nothing up, and is not listened to.
    """
    collector.is_endless = True
    server = _serve(tmp_path, collector)
    run = server.admin.start(FLOW, input="planted-secret-words")
    assert server.admin.result(run)["status"] == "succeeded"
    trace = trace_id(run, {})
    spans = collector.of(trace, "flow flow")
    by_id = {span.span_id.hex(): span for span in spans}
    assert len(by_id) == len(spans), "no span is there twice"
    root = by_id[span_id(run, "life", 1)]
    assert not root.parent_span_id and root.status.code == 1
    steps = {span.name: span for span in spans if span.parent_span_id.hex() == root.span_id.hex()}
    assert {"flaky", "rest", "end"} <= steps.keys()
    attempts = [span for span in spans if span.name == "flaky" and span.parent_span_id == steps["flaky"].span_id]
    first, second = sorted(attempts, key=lambda span: span.start_time_unix_nano)
    assert (first.status.code, second.status.code) == (2, 1)
    assert [link.span_id for link in second.links] == [first.span_id]
    assert first.end_time_unix_nano <= second.start_time_unix_nano <= root.end_time_unix_nano
    assert any(span.name == "flaky wait" for span in spans)
    assert [link.span_id for link in steps["end"].links] == [steps["rest"].span_id]
    assert {a.key: a.value.string_value for a in collector.resources[0].attributes}["service.name"] == "shop"
    assert "planted" not in str(spans)
    server.stop()
    assert collector.most_read < MOST_READ


def test_a_run_goes_on_with_the_trace_that_its_start_was_given(tmp_path: Path, collector: Collector) -> None:
    """SRV-052: by header, body and flag; tasks get it; logs name it; a collector that is away gets it later."""
    server = _serve(tmp_path, collector)
    collector.refuse = 1
    (tmp_path / "tried").touch()
    reply = server.admin("POST", "/api/v1/runs", {"document": FLOW, "input": 1}, traceparent=GIVEN)
    run = reply.json["id"]
    server.admin.result(run)
    spans = collector.of(GIVEN[3:35], "flow flow")
    root = next(span for span in spans if span.name == "flow flow")
    assert root.parent_span_id.hex() == GIVEN[36:52]
    (ended,) = [
        event["outcome"]["value"]
        for event in server.admin("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]
        if event["event"] == "TaskEnded"
    ]
    task = ended["traceparent"]
    assert read_traceparent(task) == task and task[3:35] == GIVEN[3:35]
    assert task[36:52] == attempt_span(run, _task(server, run))
    assert bytes.fromhex(task[36:52]) in {span.span_id for span in spans}
    refused = server.admin("POST", "/api/v1/runs", {"document": FLOW, "traceparent": "no"})
    assert refused.problem == (422, "START-REFUSED")
    ignored = server.admin("POST", "/api/v1/runs", {"document": FLOW, "input": 2}, traceparent="no")
    assert ignored.status == 202 and "perdure.dev/traceparent" not in ignored.json["labels"]
    server.process.send(signal.SIGTERM)
    lines = [json.loads(line) for line in server.process.end().err.splitlines() if line.startswith("{")]
    of_task = [line for line in lines if line.get("run") == run and line.get("message") == "at work"]
    assert of_task and all(line["trace_id"] == GIVEN[3:35] for line in of_task)


def _task(server: Server, run: str) -> int:
    events = server.admin("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]
    return next(int(event["task"]) for event in events if event["event"] == "TaskScheduled")


def test_another_server_exports_what_a_killed_one_did_not(tmp_path: Path, collector: Collector) -> None:
    """SRV-052: with the same ids, whoever exports it."""
    server = _serve(tmp_path, collector)
    (tmp_path / "tried").touch()
    collector.refuse = 1_000_000
    run = server.admin.start(FLOW, input=1)
    server.admin.result(run)
    server.process.send(signal.SIGKILL)
    server.process.end()
    collector.refuse = 0
    again = _serve(tmp_path, collector)
    spans = collector.of(trace_id(run, {}), "flow flow")
    assert span_id(run, "life", 1) in {span.span_id.hex() for span in spans}
    again.stop()


def test_a_run_from_the_command_line_takes_a_traceparent(tmp_path: Path) -> None:
    """SRV-052: its commands get it in their environment, and runs that it starts belong to the same trace."""
    from tests.cli.commandline import CommandLine

    perdure = CommandLine(tmp_path)
    call = {"provider": "mwl:provider.call/perdure/shell/v1", "with": {"script": "echo $TRACEPARENT"}}
    flow = {
        "$schema": FLOW["$schema"],
        "entrypoint": "tell",
        "steps": {
            "tell": {"action": "Call", "call": call, "output": "{{ step.result.value.stdout }}", "next": "end"},
            "end": {"action": "Return", "value": "{{ step.input }}"},
        },
    }
    (tmp_path / "tell.json").write_text(json.dumps(flow))
    printed = perdure("run", "tell.json", "--traceparent", GIVEN).out
    assert GIVEN[3:35] in printed and GIVEN[36:52] not in printed
    assert perdure("run", "tell.json").out.strip() == ""
    perdure("run", "tell.json", "--traceparent", "x", code=None)
    assert "traceparent" in perdure("run", "tell.json", "--traceparent", "x", code=None).err


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (GIVEN, True),
        (GIVEN.upper(), True),
        ("01" + GIVEN[2:] + "-more", True),
        (GIVEN + "-more", False),
        ("ff" + GIVEN[2:], False),
        ("00-" + "0" * 32 + GIVEN[35:], False),
        (GIVEN[:36] + "0" * 16 + "-01", False),
        ("", False),
        ("00-x", False),
    ],
)
def test_what_a_traceparent_is(text: str, is_one: bool) -> None:
    assert (read_traceparent(text) is not None) == is_one
