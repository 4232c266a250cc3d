"""Stories whose Engrams are commands, endpoints and images, and their logs, from the command line."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cli.commandline import CommandLine

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: trip}
spec:
  policy: {retries: {stepRetryPolicy: {maxRetries: 1, delay: 10ms}}}
  steps:
STEPS
---
TEMPLATES
"""

ENGRAM = """\
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: NAME, annotations: ANNOTATIONS}
spec: {version: 1.0.0, supportedModes: [job], image: example/trip:1, outputSchema: {type: object, required: [n]}}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: NAME}
spec: {templateRef: {name: NAME, version: 1.0.0}}
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def write(folder: Path, steps: list[dict[str, Any]], templates: dict[str, dict[str, str]]) -> str:
    steps_text = "\n".join(f"  - {json.dumps(step)}" for step in steps)
    engrams = [
        ENGRAM.replace("NAME", name).replace("ANNOTATIONS", json.dumps(annotations))
        for name, annotations in templates.items()
    ]
    (folder / "story.yaml").write_text(STORY.replace("STEPS", steps_text).replace("TEMPLATES", "---\n".join(engrams)))
    return "story.yaml"


class Endpoint(BaseHTTPRequestHandler):
    seen: ClassVar[list[dict[str, Any]]] = []

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        task = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append({**task, "key": self.headers["idempotency-key"], "color": self.headers.get("x-color")})
        is_busy = task["inputs"].get("busy") and task["attempt"] == 1
        data = json.dumps({"error": {"message": "busy"}} if is_busy else {"n": task["inputs"]["n"] + 1}).encode()
        self.send_response(503 if is_busy else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/task"
        server.shutdown()


def test_a_step_is_done_by_an_endpoint_and_repeated_under_one_key(perdure: CommandLine, endpoint: str) -> None:
    """STY-009 STY-016 STY-123 STY-125 STY-205."""
    steps = [
        {"name": "ask", "ref": {"name": "far"}, "with": {"n": 1, "busy": True}},
        {"name": "more", "ref": {"name": "far"}, "with": {"n": "{{ steps.ask.output.n }}"}},
    ]
    name = write(perdure.folder, steps, {"far": {"perdure/url": endpoint, "perdure/headers": '{"x-color": "red"}'}})

    shown = perdure("run", name, "--json").json

    assert shown["stepRuns"]["more"]["status"]["output"] == {"n": 3}
    assert (shown["stepRuns"]["ask"]["status"]["retries"], shown["stepRuns"]["ask"]["status"]["exitCode"]) == (1, 0)
    asked = [request for request in Endpoint.seen if request["step"]["id"] == "ask"]
    assert [request["attempt"] for request in asked] == [1, 2]
    assert {request["key"] for request in asked} == {shown["stepRuns"]["ask"]["spec"]["idempotencyKey"]}
    assert {request["color"] for request in Endpoint.seen} == {"red"}


def test_an_endpoint_that_answers_otherwise_than_its_template_says(perdure: CommandLine, endpoint: str) -> None:
    """STY-215: nothing that comes from elsewhere is believed unseen."""
    steps = [{"name": "ask", "ref": {"name": "far"}, "with": {"n": 1}}]
    name = write(perdure.folder, steps, {"far": {"perdure/url": endpoint}})
    text = (perdure.folder / name).read_text().replace("required: [n]", "required: [m]")
    (perdure.folder / name).write_text(text)

    shown = perdure("run", name, "--json", code=3).json

    assert shown["stepRuns"]["ask"]["status"]["conditions"][0]["reason"] == "OutputSchemaFailed"


def test_a_step_is_done_by_an_image_and_what_it_says_is_kept(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-009 STY-123 STY-263: a real program stands in docker's place and is found on the PATH."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "docker"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "if sys.argv[1] == 'run':\n"
        "    task = json.load(sys.stdin)\n"
        "    assert 'example/trip:1' in sys.argv, sys.argv\n"
        "    sys.stderr.write('pulling\\ntoken=abc123 is used\\n')\n"
        "    if task['inputs'].get('exit'):\n"
        "        sys.exit(task['inputs']['exit'])\n"
        "    print(json.dumps({'n': task['inputs']['n'], 'args': sys.argv[-1]}))\n"
    )
    program.chmod(0o755)
    steps: list[dict[str, Any]] = [
        {"name": "good", "ref": {"name": "boxed"}, "with": {"n": 4}},
        {"name": "bad", "ref": {"name": "boxed"}, "with": {"exit": 143}, "allowFailure": True},
    ]
    annotations = {"perdure/container": "true", "perdure/args": '["--fast"]'}
    name = write(perdure.folder, steps, {"boxed": annotations})

    shown = perdure("run", name, "--json", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin").json

    good, bad = (shown["stepRuns"][step]["status"] for step in ("good", "bad"))
    assert good["output"] == {"n": 4, "args": "--fast"}
    assert (bad["phase"], bad["exitCode"], bad["exitClass"], bad["retries"]) == ("Failed", 143, "retry", 1)
    kept = perdure.here("result", "get", bad["logs"]["$bubuStorageRef"], "--json").json
    assert [request["attempt"] for request in kept] == [1, 2]
    assert [line["message"] for line in kept[0]["log"]] == ["pulling", "token=[REDACTED] is used"]


LOGGING = """
import perdure

@perdure.engram("talker")
async def talker(inputs, context):
    context.log("first", level="debug", n=1)
    context.log(f"using {inputs['key']}")
    if context.attempt == 1:
        raise perdure.EngramError("not yet", exit_class="retry")
    return {}

@perdure.engram("quiet")
def quiet(inputs, context):
    return {}
"""


def test_what_a_step_logs_is_kept_by_attempt_and_nothing_of_one_that_is_quiet(perdure: CommandLine) -> None:
    """STY-263: shown by the StepRun, by `describe` and by `history`; secrets are masked."""
    (perdure.folder / "engrams.py").write_text(LOGGING)
    steps = [
        {"name": "a", "ref": {"name": "talker"}, "with": {"key": {"$bubuSecretRef": "api:key"}}},
        {"name": "b", "ref": {"name": "quiet"}},
    ]
    name = write(perdure.folder, steps, {})

    shown = perdure("run", name, "--load", "engrams.py", "--json", PERDURE_SECRET_api_key="very-secret").json

    run = shown["metadata"]["name"]
    assert shown["stepRuns"]["a"]["status"]["logs"] == {"$bubuStorageRef": f"default/{run}/steps/a/log/attempts.json"}
    assert "logs" not in shown["stepRuns"]["b"]["status"]
    described = perdure.here("describe", "steprun", f"{run}-a", "--json").json
    messages = [[line["message"] for line in entry["log"]] for entry in described["log"]]
    assert messages == [["first", "using [redacted]"]] * 2
    assert described["log"][0]["log"][0]["fields"] == {"n": "1"}
    assert {event.get("step") for event in described["events"]} == {"a"}
    assert "using [redacted]" in perdure.here("describe", "steprun", f"{run}-a").out
    events = perdure.here("history", run, "--json").json
    assert [event["step"] for event in events if event["event_type"] == "step.logged"] == ["a", "a"]
    assert "very-secret" not in json.dumps(events)
