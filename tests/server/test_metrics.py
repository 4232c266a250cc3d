"""`GET /metrics`: figures of a server for Prometheus (SRV-003, STY-260)."""

import re

from tests.dialects.story.world import story
from tests.server.serving import RETURNS, Server

LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")


def figures(text: str) -> dict[tuple[str, str], float]:
    """Name and labels → value; every line is one that Prometheus reads, and every series is declared before."""
    found: dict[tuple[str, str], float] = {}
    declared: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in declared
            declared.add(name)
        elif not line.startswith("# "):
            match = LINE.match(line)
            assert match is not None, line
            base = re.sub("_(bucket|sum|count)$", "", match[1])
            assert match[1] in declared or base in declared, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


def test_runs_tasks_requests_and_the_process_are_counted(server: Server) -> None:
    admin = server.admin
    before = figures(admin("GET", "/metrics").text.decode())
    ended = admin("POST", "/api/v1/runs", {"document": RETURNS}, Prefer="wait=30")
    assert ended.json["status"] == "succeeded"
    say = story("steps: [{name: say, ref: {name: echo}, with: {x: 1}}]", name="said")
    assert admin("POST", "/api/v1/runs", {"document": say}, Prefer="wait=30").json["status"] == "succeeded"
    admin("GET", "/nothing")
    reply = admin("GET", "/metrics", Accept="text/plain")
    after = figures(reply.text.decode())

    assert reply.headers["content-type"].startswith("text/plain")
    drill = 'language="drill"'
    assert after["perdure_runs_started_total", drill] == before.get(("perdure_runs_started_total", drill), 0) + 1
    assert after["perdure_runs_ended_total", f'{drill},status="succeeded"'] >= 1
    assert after["perdure_run_seconds_count", drill] == after["perdure_run_seconds_bucket", f'{drill},le="+Inf"'] >= 1
    assert after["perdure_runs", 'status="succeeded"'] >= 1
    assert after["perdure_http_requests_total", 'operation="unknown",status="404"'] >= 1
    assert after["perdure_http_requests_total", 'operation="get_metrics",status="200"'] >= 1
    assert after["process_resident_memory_bytes", ""] > 1e6 and after["perdure_store_bytes", ""] > 0
    assert after["bobrapet_storyruns_total", 'status="succeeded"'] >= 1
    assert after["bobrapet_stepruns_total", 'outcome="succeeded"'] >= 1
    text = reply.text.decode()
    assert ended.json["id"] not in text and "returns" not in text and "default" not in text


def test_figures_need_a_token(server: Server) -> None:
    assert server.nobody("GET", "/metrics").problem == (401, "NOT-AUTHENTICATED")
    assert server.role("viewer")("GET", "/metrics").status == 200
