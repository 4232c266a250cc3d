"""The container provider with a replacement for docker, which records and executes its commands."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import (
    Ledger,
    at_work,
    details_of,
    failure_of,
    has_ended,
    is_cancelled,
    outcome_of,
    task,
    value_of,
)

from perdure.kernel.outcomes import Failed, Outcome

DOCKER = r"""#!/usr/bin/env python3
import json, os, signal, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
with open(f"{here}/calls", "a") as calls:
    calls.write(json.dumps(words) + "\n")
if words[0] != "run":  # stop and rm end the container of this name
    try:
        pid = int(open(f"{here}/{words[-1]}").read())
    except OSError:
        sys.exit(1)
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
    sys.exit(0)
options, rest = {"--volume": [], "--env": []}, words[1:]
while rest[0].startswith("--"):
    name = rest.pop(0)
    if name in ("--rm", "--interactive"):
        options[name] = True
    elif name in ("--volume", "--env"):
        options[name].append(rest.pop(0))
    else:
        options[name] = rest.pop(0)
image, arguments = rest[0], rest[1:]
if image == "missing":
    sys.stderr.write("Unable to find image\n")
    sys.exit(125)
workspace = options["--volume"][0].split(":")[0]
env = {"PATH": os.environ["PATH"]}
for one in options["--env"]:
    name, has_value, value = one.partition("=")
    env[name] = value if has_value else os.environ[name]
command = [options.get("--entrypoint", "echo"), *arguments]
command = [word.replace("/workspace", workspace) for word in command]
inside = subprocess.Popen(command, env=env, cwd=workspace, start_new_session=True)  # it survives this program
with open(f"{here}/{options['--name']}", "w") as note:
    note.write(str(inside.pid))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(inside.wait() % 256)
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program.parent


def calls(docker: Path) -> list[list[str]]:
    return [json.loads(line) for line in (docker / "calls").read_text().splitlines()]


async def container(**arguments: Any) -> Outcome:
    return await outcome_of("container", arguments)


async def test_an_image_with_its_own_command(docker: Path) -> None:
    outcome = await container(runtime={"image": "hello", "namespace": "jobs", "args": ["a", 1]})

    assert value_of(outcome) == {"exit_code": 0, "stdout": "a 1\n", "stderr": ""}
    [call] = calls(docker)
    assert call[:4] == ["run", "--name", call[2], "--interactive"] and "--rm" in call
    assert call[-3:] == ["hello", "a", "1"] and "--entrypoint" not in call


async def test_a_command_an_environment_and_input(docker: Path) -> None:
    """Values of variables are on no command line, except those that would speak to docker itself."""
    runtime = {
        "image": "alpine",
        "command": ["sh", "-c", 'cat; echo " $WORD $DOCKER_HOST $PERDURE_ATTEMPT $1"', "sh"],
        "args": ["last"],
        "env": {"WORD": "s3cret", "DOCKER_HOST": "inner"},
    }
    outcome = await container(runtime=runtime, args={"n": 1})

    assert value_of(outcome)["stdout"] == '{"n":1} s3cret inner 1 last\n'
    [call] = calls(docker)
    assert "s3cret" not in " ".join(call) and call[call.index("--entrypoint") + 1] == "sh"


async def test_a_text_as_command_goes_through_the_shell(docker: Path) -> None:
    outcome = await container(runtime={"image": "alpine", "command": "echo $((1 + 2))"})

    assert value_of(outcome)["stdout"] == "3\n"


async def test_a_script_and_files_lie_in_the_workspace(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys; print(open('conf/x').read(), sys.argv[1])")
    files = [{"mountPath": "conf/x", "content": "hello"}, {"mountPath": "/etc/y", "content": "there"}]
    script = {"uri": "job.py", "folder": str(tmp_path)}
    outcome = await container(runtime={"image": "python", "files": files}, script=script, args={"a": 2})

    assert value_of(outcome)["stdout"] == 'hello {"a":2}\n'
    [call] = calls(docker)
    volumes = [call[index + 1] for index, word in enumerate(call) if word == "--volume"]
    assert volumes[0].endswith("/workspace:/workspace") and volumes[1].endswith(":/etc/y:ro")
    assert call[call.index("python") - 2 :] == ["--entrypoint", "python3", "python", "/workspace/job.py", '{"a":2}']
    assert not Path(volumes[0].partition(":")[0]).exists()


async def test_exit_codes(docker: Path) -> None:
    failed = await container(runtime={"image": "alpine", "command": ["sh", "-c", "echo why >&2; exit 7"]})
    missing = await container(runtime={"image": "missing"})

    assert failure_of(failed)[0] == "Provider.Call.Container.Exit7"
    assert details_of(failed)["stderr"] == "why\n"
    assert failure_of(missing)[0] == "Provider.Call.Container.NotStarted"
    assert isinstance(missing, Failed) and "Unable to find image" in missing.message


async def test_a_timeout_stops_the_container_itself(docker: Path) -> None:
    runtime = {"image": "alpine", "command": ["sh", "-c", "echo $$; exec sleep 60"], "timeoutSeconds": 1}
    outcome = await container(runtime=runtime)

    assert failure_of(outcome) == ("Provider.Call.Container.Timeout", True)
    assert has_ended(int(details_of(outcome)["stdout"]))
    run, stop, remove = calls(docker)
    assert (stop[0], remove[:2]) == ("stop", ["rm", "--force"]) and stop[-1] == remove[-1] == run[2]


async def test_a_cancel_stops_the_container_itself(docker: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    runtime = {"image": "alpine", "command": ["sh", "-c", f"echo $$ > {pipe}; exec sleep 60"], "cleanup": False}
    async with at_work() as worker:
        item = task("container", {"runtime": runtime})
        running = asyncio.create_task(worker.run(item, Ledger()))
        inside = int(await asyncio.to_thread(pipe.read_text))
        worker.cancel(item)

        assert is_cancelled(await running)
    assert has_ended(inside)
    assert [call[0] for call in calls(docker)] == ["run", "stop"]
    assert "--rm" not in calls(docker)[0]


async def test_a_second_delivery_first_removes_what_the_first_left(docker: Path) -> None:
    """The name is the same for all deliveries of an attempt, and another one for the next attempt."""
    arguments = {"runtime": {"image": "hello"}}
    async with at_work() as worker:
        for facts in ({"delivery": 1}, {"delivery": 2}, {"attempt": 2}):
            value_of(await worker.run(task("container", arguments, **facts), Ledger()))

    first, removed, second, third = calls(docker)
    assert removed == ["rm", "--force", first[2]] and second[2] == first[2] != third[2]


async def test_without_docker_and_podman_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    outcome = await container(runtime={"image": "hello"})

    assert failure_of(outcome) == ("Provider.Call.Container.NoContainerRuntime", False)
    assert isinstance(outcome, Failed) and "install one" in outcome.message


async def test_another_program_may_be_named(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (docker / "docker").rename(docker / "special")
    monkeypatch.setenv("PERDURE_CONTAINER_RUNTIME", str(docker / "special"))

    assert value_of(await container(runtime={"image": "hello", "args": ["x"]}))["stdout"] == "x\n"


async def test_what_cannot_be_meant(docker: Path) -> None:
    assert failure_of(await container(runtime={}))[0] == "Provider.Call.Container.BadArguments"
    assert (
        failure_of(await container(runtime={"image": "a", "imagine": 1}))[0] == "Provider.Call.Container.BadArguments"
    )
