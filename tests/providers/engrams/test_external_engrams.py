"""Engrams that are commands, endpoints and images: real processes, a real server, a replacement for docker."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.providers.engrams.test_engrams import a_task
from tests.workers.scene import details_of, on_loop, outcome_of, value_of

from perdure.kernel.outcomes import Failed, Outcome


def ran(provider: str, run: dict[str, Any], inputs: dict[str, Any] | None = None) -> Outcome:
    results: list[Outcome] = []

    @on_loop
    async def go() -> None:
        results.append(await outcome_of(provider, a_task(inputs=inputs or {}, run=run, references=[["token"]])))

    go()
    return results[0]


def python(code: str) -> dict[str, Any]:
    return {"argv": [sys.executable, "-c", f"import json, os, sys; task = json.load(sys.stdin); {code}"]}


def test_a_command_gets_its_task_and_gives_its_output() -> None:
    """STY-009."""
    code = "print(json.dumps({'sum': sum(task['inputs']['n']), 'key': task['idempotencyKey'], 'try': task['attempt']}))"
    outcome = ran("engram.command", python(code), {"n": [1, 2]})
    assert value_of(outcome) == {"sum": 3, "key": "ns/default/storyrun/hello-1/step/greet", "try": 1}


def test_a_text_is_a_command_of_the_shell(tmp_path: Path) -> None:
    outcome = ran("engram.command", {"argv": "pwd; echo $COLOR", "cwd": str(tmp_path), "env": {"COLOR": "red"}})
    assert value_of(outcome) == {"stdout": f"{tmp_path}\nred\n"}


@pytest.mark.parametrize(("message", "expected"), [("", {}), ("[1]", {"value": [1]}), ("plain", {"stdout": "plain\n"})])
def test_whatever_a_command_says_is_an_object(message: str, expected: Any) -> None:
    """STY-121."""
    assert (
        value_of(ran("engram.command", {"argv": f"printf '%s' '{message}'" + ("; echo" if message else "")}))
        == expected
    )


@pytest.mark.parametrize(
    ("script", "message", "exit_code"),
    [
        ("echo first >&2; echo last >&2; exit 3", "last", 3),
        ("exit 124", "the command ended with exit code 124", 124),
        ("kill -9 $$", "the command ended with exit code 137", 137),
        ("no-such-command-here", "no-such-command-here", 127),
    ],
)
def test_the_exit_code_is_the_steps(script: str, message: str, exit_code: int) -> None:
    """STY-123."""
    outcome = ran("engram.command", {"argv": script})
    assert isinstance(outcome, Failed)
    assert message in outcome.message
    assert details_of(outcome)["exitCode"] == exit_code


def test_a_command_that_is_not_there() -> None:
    outcome = ran("engram.command", {"argv": ["/no/such/program"]})
    assert isinstance(outcome, Failed)
    assert details_of(outcome) == {"type": "initialization_error", "exitCode": 127}
    assert isinstance(ran("engram.command", {}), Failed)


def test_secrets_are_told_to_the_command_and_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """STY-220."""
    monkeypatch.setenv("PERDURE_SECRET_api_token", "very-secret")
    code = "token = task['inputs']['token']; print(json.dumps({'token': token, 'length': len(token)}))"
    outcome = ran("engram.command", python(code), {"token": {"$bubuSecretRef": "api:token"}})
    assert value_of(outcome) == {"token": "[redacted]", "length": 11}
    failing = ran(
        "engram.command", python("sys.exit(task['inputs']['token'])"), {"token": {"$bubuSecretRef": "api:token"}}
    )
    assert isinstance(failing, Failed)
    assert "very-secret" not in repr(failing)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        task = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = task["inputs"]
        answer = asked.get("answer", {"name": asked.get("name"), "key": self.headers["idempotency-key"]})
        data = json.dumps(answer).encode()
        self.send_response(asked.get("status", 200))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_an_endpoint_gets_its_task_and_gives_its_output(server: str) -> None:
    outcome = ran("engram.http", {"url": server}, {"name": "Ada"})
    assert value_of(outcome) == {"name": "Ada", "key": "ns/default/storyrun/hello-1/step/greet"}
    assert value_of(ran("engram.http", {"url": server}, {"answer": [1]})) == {"body": [1]}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"status": 429}, {"exitClass": "rateLimited", "details": {"status": 429}}),
        ({"status": 503}, {"exitClass": "retry", "details": {"status": 503}}),
        ({"status": 404}, {"exitClass": "terminal", "details": {"status": 404}}),
        (
            {"answer": {"error": {"message": "no", "type": "validation_error", "retryable": False, "code": "E1"}}},
            {"type": "validation_error", "retryable": False, "code": "E1", "details": {"status": 200}},
        ),
    ],
)
def test_how_an_endpoint_fails(server: str, inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    """STY-123, 256."""
    assert details_of(ran("engram.http", {"url": server}, inputs)) == expected


def test_an_endpoint_that_does_not_answer_is_tried_again() -> None:
    outcome = ran("engram.http", {"url": "http://127.0.0.1:1"})
    assert isinstance(outcome, Failed)
    assert outcome.retryable is True


def test_an_image_gets_its_task_and_gives_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "if sys.argv[1] == 'run':\n"
        "    task = json.load(sys.stdin)\n"
        "    if 'broken' in sys.argv: sys.stderr.write('it broke'); sys.exit(70)\n"
        "    print(json.dumps({'image': 'busybox' in sys.argv, 'n': task['inputs']['n']}))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert value_of(ran("engram.container", {"image": "busybox"}, {"n": 1})) == {"image": True, "n": 1}
    outcome = ran("engram.container", {"image": "busybox", "args": ["broken"]}, {"n": 1})
    assert isinstance(outcome, Failed)
    assert outcome.message == "it broke"
    assert details_of(outcome)["exitCode"] == 70


def test_without_docker_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = ran("engram.container", {"image": "busybox"})
    assert isinstance(outcome, Failed)
    assert "install one" in outcome.message
