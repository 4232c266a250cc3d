"""`GET /metrics`: figures of a server for Prometheus (SRV-003, STY-260)."""

import re
from pathlib import Path

from perdure.dialects.story.state import events as s
from perdure.kernel import events as e
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Status, Succeeded
from perdure.services.story.run_metrics import StoryRunMetrics
from perdure.views.administration.prometheus_text import metrics_text
from tests.dialects.story.world import story
from tests.server.serving import RETURNS, Server

ORIGINAL = (
    "storyruns_total",
    "storyrun_duration_seconds",
    "storyrun_steps_active",
    "storyrun_steps_completed",
    "storyrun_queue_depth",
    "storyrun_queue_age_seconds",
    "stepruns_total",
    "steprun_duration_seconds",
    "steprun_retries_total",
    "child_stepruns_created_total",
    "impulse_throttled_triggers_total",
    "dag_iteration_steps",
)
LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")


def figures(text: str) -> dict[tuple[str, str], float]:
    """Name and labels → value; every line is one that Prometheus reads, and every series is declared before."""
    samples: dict[tuple[str, str], float] = {}
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
            samples[match[1], match[2] or ""] = float(match[3])
    return samples


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
    assert after["perdure_slow_functions", ""] == 0
    assert after["process_resident_memory_bytes", ""] > 1e6 and after["perdure_store_bytes", ""] > 0
    assert after["bobrapet_storyruns_total", 'status="succeeded"'] >= 1
    assert after["bobrapet_stepruns_total", 'outcome="succeeded"'] >= 1
    assert after["bobrapet_child_stepruns_created_total", ""] >= 1
    assert after["bobrapet_steprun_duration_seconds_count", ""] >= 1
    assert after["bobrapet_storyrun_steps_active", ""] == 0
    names = {name.removesuffix("_bucket") for name, _ in after}
    assert names >= {f"bobrapet_{name}" for name in ORIGINAL}, "STY-260; streams have theirs while they are at work"
    text = reply.text.decode()
    assert ended.json["id"] not in text and "returns" not in text and "default" not in text


def test_figures_need_a_token(server: Server) -> None:
    assert server.nobody("GET", "/metrics").problem == (401, "NOT-AUTHENTICATED")
    assert server.role("viewer")("GET", "/metrics").status == 200


def test_steps_of_stories_are_counted_from_their_events() -> None:
    """STY-260: retries, what the cache knew, queues, how long steps took; a run that has ended is forgotten."""
    at = 10 * SECOND
    counted = StoryRunMetrics(lambda: 100 * SECOND)
    counted.listen(
        RunId("one"),
        [
            (at, [s.StepQueued("a", 1, "", at), s.StepQueued("b", 2, "", at), s.CacheNoted("a", "e", "r", 1, "miss")]),
            (2 * at, [s.StepStarted("a", "Running", "", 2 * at), s.StepLaunched("c", "", "", "", 1, 1, 2 * at)]),
            (
                3 * at,
                [s.RetryScheduled("c", 1, 1, at, "", "", 1, "retry", at), s.CacheNoted("a", "e", "r", 1, "stored")],
            ),
            (4 * at, [s.StepEnded("a", "Succeeded", "", "", 4 * at)]),
        ],
    )
    samples = figures(metrics_text(counted.metrics()))
    own = {name.removeprefix("bobrapet_"): value for (name, labels), value in samples.items() if "le=" not in labels}
    assert own == {
        "storyrun_steps_active": 1,
        "storyrun_queue_depth": 1,
        "storyrun_queue_age_seconds": 90,
        "storyrun_steps_completed": 1,
        "steprun_retries_total": 1,
        "child_stepruns_created_total": 1,
        "steprun_cache_lookups_total": 1,
        "steprun_duration_seconds_sum": 20,
        "steprun_duration_seconds_count": 1,
        "dag_iteration_steps_sum": 2,
        "dag_iteration_steps_count": 1,
    }
    counted.listen(RunId("one"), [(5 * at, [e.RunEnded(Status.SUCCEEDED, Succeeded(b"1"))])])
    ended = figures(metrics_text(counted.metrics()))
    assert ended["bobrapet_storyrun_steps_active", ""] == ended["bobrapet_storyrun_queue_depth", ""] == 0


def test_namespaces_are_labels_only_if_the_operator_says_so(tmp_path: Path) -> None:
    """SRV-003."""
    (tmp_path / "settings.toml").write_text("[metrics]\nnamespaces = true\n")
    server = Server.start(tmp_path, "--config", "settings.toml")
    try:
        run = {"document": RETURNS, "namespace": "team-a"}
        assert server.admin("POST", "/api/v1/runs", run, Prefer="wait=30").json["status"] == "succeeded"
        labels = {labels for name, labels in figures(server.admin("GET", "/metrics").text.decode()) if labels}
    finally:
        server.stop()

    assert 'language="drill",namespace="team-a"' in labels
    assert 'language="drill",namespace="team-a",status="succeeded"' in labels
