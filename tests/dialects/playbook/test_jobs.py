"""Scripts and containers as tools of a Playbook (PBK-094, 098)."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.playbook import Playbook
from perdure.kernel.documents.validation import AppliedDocument
from tests.dialects.playbook.kinds import outcome, run, task
from tests.dialects.playbook.world import playbook


async def test_python_from_a_file_beside_the_document(tmp_path: Path) -> None:
    """PBK-094: a script comes before base64, that before plain code; it sees what any code sees."""
    text = "result = [x, args, context['workload']['w'], context['_prev'], '{{ x }}']"
    (tmp_path / "calc.py").write_text(text)
    encoded = base64.b64encode(b"result = 'base64'").decode()
    script: dict[str, Any] = {"uri": "{{ workload.name }}.py", "source": {"type": "file"}}

    by_file = await outcome(
        tmp_path, "python", {"name": "calc", "w": 5}, script=script, code_b64=encoded, code="result = 1", args={"x": 2}
    )
    by_base64 = await outcome(tmp_path, "python", code_b64=encoded, code="result = 'plain'")
    by_text = await outcome(tmp_path, "python", script="result = '{{ text }}'", code="result = 'plain'")

    assert by_file["result"] == [2, {}, 5, None, "{{ x }}"]
    assert by_base64["result"] == "base64"
    assert by_text["result"] == "{{ text }}"


async def test_a_python_file_that_cannot_be_had(tmp_path: Path) -> None:
    """PBK-094 PBK-075."""
    gone = await outcome(tmp_path, "python", script={"uri": "gone.py"})
    outside = await outcome(tmp_path, "python", script={"uri": "../../etc/passwd"})

    assert (gone["error"]["kind"], gone["error"]["retryable"]) == ("not_found", False)
    assert (outside["error"]["kind"], outside["error"]["retryable"]) == ("storage_access", False)


def test_python_needs_code_from_somewhere() -> None:
    """PBK-094."""
    [problem] = Playbook().parse(task("python", args={}).encode()).problems

    assert problem.code == "PBK-020" and "'script' or 'code' or 'code_b64'" in problem.message


async def test_a_script(tmp_path: Path) -> None:
    """PBK-098."""
    (tmp_path / "hello.sh").write_text('echo "hello $1 $WHO $(cat note)"')
    runtime = {"env": {"WHO": "{{ workload.who }}"}, "files": [{"mountPath": "note", "content": "!"}], "args": ["dear"]}

    seen = await outcome(tmp_path, "script", {"who": "Ada"}, script={"uri": "hello.sh"}, runtime=runtime)

    assert seen["result"] == {"exit_code": 0, "stdout": "hello dear Ada !\n", "stderr": ""}


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"script": "exit 4"}, "unknown", 4),
        ({"script": "sleep 60", "spec": {"timeout": "200ms"}}, "timeout", "TIMEOUT"),
        ({"script": "sleep 60", "runtime": {"timeoutSeconds": 0.2}}, "timeout", "TIMEOUT"),
        ({"script": {"uri": "gone.sh"}}, "not_found", "NOT_FOUND"),
        ({"script": "exit 0", "runtime": {"files": [{"mountPath": "../x", "content": ""}]}}, "schema", "BAD_ARGUMENTS"),
    ],
)
async def test_what_failures_of_scripts_are_called(tmp_path: Path, fields: Any, kind: str, code: Any) -> None:
    """PBK-098 PBK-075 PBK-193."""
    seen = await outcome(tmp_path, "script", **fields)

    assert (seen["error"]["kind"], seen["error"]["code"], seen["result"]) == (kind, code, None)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("container", {"runtime": {"command": "ls"}}, "a container needs an image"),
        ("container", {"runtime": {"image": "a", "imagine": 1}}, "a runtime has no member 'imagine'"),
        ("container", {}, "needs 'runtime'"),
        ("script", {"runtime": {}}, "needs 'script'"),
    ],
)
def test_jobs_that_cannot_run_are_refused(kind: str, fields: Any, message: str) -> None:
    """PBK-098."""
    [problem] = Playbook().parse(task(kind, **fields).encode()).problems

    assert message in problem.message


async def test_a_container_without_a_program_to_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-098."""
    monkeypatch.setenv("PATH", str(tmp_path))

    seen = await outcome(tmp_path, "container", runtime={"image": "alpine", "namespace": "jobs"})

    assert (seen["error"]["kind"], seen["error"]["code"]) == ("client_error", "NO_CONTAINER_RUNTIME")
    assert "docker" in seen["error"]["message"] and seen["error"]["retryable"] is False


async def test_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PBK-098: the fields reach the command line."""
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PERDURE_CONTAINER_RUNTIME", str(program))
    (tmp_path / "job.py").write_text("print(1)")
    runtime = {"image": "{{ workload.image }}", "args": ["--fast"], "env": {"A": "b"}, "cleanup": False}

    seen = await outcome(tmp_path, "container", {"image": "python:3"}, runtime=runtime, script={"uri": "job.py"})

    words = seen["result"]["stdout"].splitlines()
    assert words[0] == "run" and "--rm" not in words
    assert words[-5:] == ["--entrypoint", "python3", "python:3", "/workspace/job.py", "--fast"]


async def test_a_child_finds_scripts_in_the_same_folder(tmp_path: Path) -> None:
    """PBK-201."""
    import perdure

    (tmp_path / "a.py").write_text("result = 'found'")
    child = task("python", script={"uri": "a.py"}).replace("tests/test", "kid")
    text = playbook("workflow: [{step: a, tool: {kind: playbook, path: kid}}]")
    files = [AppliedDocument("kid.yaml", child)]
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(text.encode(), None, applied=files, options={"folder": str(tmp_path)})
        answer = await handle.result()

    assert answer["result"]["result"] == "found"


async def test_jobs_stand_in_the_workbook_too(tmp_path: Path) -> None:
    """PBK-099 PBK-098."""
    entry = {"kind": "script", "script": "cat"}
    text = playbook(
        "workbook: {tasks: {say: " + json.dumps(entry) + "}}\n"
        "workflow: [{step: a, tool: {kind: workbook, task: say, args: {n: 1}}}]"
    )

    assert (await run(tmp_path, text))["result"]["stdout"] == '{"n":1}'
