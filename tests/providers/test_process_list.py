"""Other users can list the arguments of every process: no secret is among them."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.providers.engrams.test_engrams import a_task
from tests.providers.test_container import calls, docker
from tests.workers.scene import Ledger, at_work, failure_of, has_ended, task, value_of

from perdure.kernel.outcomes import Failed, Outcome
from perdure.kernel.secrets.sealed_arguments import seal_by_place

__all__ = ["docker"]  # a fixture

SECRET = 'pa55 "w0rd" of\\the-shöp'

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks at /proc")


async def ran(provider: str, arguments: dict[str, Any], *places: tuple[Any, ...], secret: str, **facts: Any) -> Outcome:
    """One task whose arguments have a secret at these places, as a Flow's have."""
    sealed = seal_by_place(arguments, [(place, "SHOP") for place in places])
    plain = msgspec.structs.replace(task(provider, sealed=True, **facts), arguments=sealed)
    async with at_work(resolve_secret=lambda name: secret) as worker:
        return await worker.run(plain, Ledger())


def noting(folder: Path) -> str:
    """A script with a secret in its text; it notes what a list of processes shows of it while it runs."""
    noted = f"tr '\\0' '\\n' < /proc/$$/cmdline > {folder}/listed; echo $$ > {folder}/pid; stat -c %a $0 $(dirname $0)"
    return f"{noted}; printf '%s' '{SECRET}' | wc -c"


@pytest.mark.parametrize("is_apart", [False, True])
async def test_a_script_with_a_secret_is_read_from_a_private_file(tmp_path: Path, is_apart: bool) -> None:
    """Also in a process of its own, which has to ask whether there is one."""
    script = noting(tmp_path)
    outcome = await ran("shell", {"script": None}, ("script",), secret=script, apart=is_apart)

    output = value_of(outcome)["stdout"].splitlines()
    assert output[:3] == ["600", "700", str(len(SECRET.encode()))]
    shell, file, *rest = (tmp_path / "listed").read_text().splitlines()
    assert (shell, rest) == ("/bin/sh", [])
    assert not Path(file).exists() and not Path(file).parent.exists()


async def test_a_script_without_a_secret_is_an_argument(tmp_path: Path) -> None:
    outcome = await ran("shell", {"script": 'echo "$0"', "env": {"S": None}}, ("env", "S"), secret=SECRET)

    assert value_of(outcome)["stdout"] == "/bin/sh\n"


async def test_the_file_is_gone_after_a_failure_and_a_timeout(tmp_path: Path) -> None:
    for after, code in (("exit 3", "Exit3"), ("sleep 60", "Timeout")):
        script = f"{noting(tmp_path)}; {after}"
        outcome = await ran("shell", {"script": None, "timeout": 5}, ("script",), secret=script)

        assert failure_of(outcome)[0] == f"Provider.Call.Shell.{code}"
        assert not Path((tmp_path / "listed").read_text().splitlines()[1]).exists()
        assert has_ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"argv": ["touch", "began", None]}, ("argv", 2)),
        ({"argv": [None]}, ("argv", 0)),
        ({"script": None, "interpreter": ["python3", "-c"]}, ("script",)),
        ({"script": "1", "interpreter": ["python3", "-c", None]}, ("interpreter", 2)),
    ],
)
async def test_an_argument_with_a_secret_is_refused(tmp_path: Path, arguments: Any, place: Any) -> None:
    outcome = await ran("shell", {**arguments, "cwd": str(tmp_path)}, place, secret=SECRET)

    assert failure_of(outcome) == ("Provider.Call.Shell.SecretInArguments", False)
    assert isinstance(outcome, Failed) and "env or stdin" in outcome.message and SECRET not in outcome.message
    assert list(tmp_path.iterdir()) == []


LISTS = """#!{python}
import json, os, pathlib, stat, sys
here = pathlib.Path.cwd().parent
noted = [open("/proc/self/cmdline").read().split(chr(0)), json.load(sys.stdin), stat.S_IMODE(os.stat(here).st_mode)]
pathlib.Path("{note}").write_text(json.dumps(noted))
"""


async def test_a_script_has_args_with_a_secret_on_its_standard_input_only(tmp_path: Path) -> None:
    async def words(args: Any, *places: Any) -> tuple[list[str], Any, int]:
        script = LISTS.format(python=sys.executable, note=tmp_path / "note")
        assert value_of(await ran("script", {"script": script, "args": args}, *places, secret=SECRET))
        listed, fed, mode = json.loads((tmp_path / "note").read_text())
        return listed, fed, mode

    plain, fed, mode = await words({"n": 1})
    assert (plain[-2], fed, mode) == ('{"n":1}', {"n": 1}, 0o700)
    hidden, fed, _ = await words({"n": 1, "token": None}, ("args", "token"))
    assert fed == {"n": 1, "token": SECRET} and not any("token" in word for word in hidden)


@pytest.mark.parametrize("member", ["command", "args"])
async def test_a_jobs_words_with_a_secret_are_refused(tmp_path: Path, member: str) -> None:
    runtime = {"command": ["true"], "args": ["1"]} | {member: [None]}
    outcome = await ran("script", {"script": "true", "runtime": runtime}, ("runtime", member, 0), secret=SECRET)

    assert failure_of(outcome) == ("Provider.Call.Script.SecretInArguments", False)


async def test_a_jobs_command_with_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    runtime = {"command": None, "args": ["one"]}
    command = f"tr '\\0' '\\n' < /proc/$$/cmdline > {tmp_path}/listed; echo $1 {SECRET!r}"
    outcome = await ran("script", {"script": "true", "runtime": runtime}, ("runtime", "command"), secret=command)

    assert value_of(outcome)["stdout"].startswith("one pa55")
    assert "pa55" not in (tmp_path / "listed").read_text()


async def test_a_container_has_no_secret_among_its_words(tmp_path: Path, docker: Path) -> None:
    script = f"#!/bin/sh\ncat > {tmp_path}/fed"
    arguments = {"runtime": {"image": "i", "env": {"S": None}}, "script": script, "args": {"t": None}}
    places: Any = (("runtime", "env", "S"), ("args", "t"))
    assert value_of(await ran("container", arguments, *places, secret=SECRET))

    assert json.loads((tmp_path / "fed").read_text()) == {"t": SECRET}
    (call,) = calls(docker)
    assert not any("pa55" in word or '"t"' in word for word in call) and "S" in call
    for member, value in (("args", [None]), ("command", ["true", None])):
        runtime = {"image": "i", member: value}
        place = ("runtime", member, len(value) - 1)
        refused = await ran("container", {"runtime": runtime}, place, secret=SECRET)
        assert failure_of(refused) == ("Provider.Call.Container.SecretInArguments", False)
    named = {"image": "i", "env": {"DOCKER_TOKEN": None}}  # its value would be an argument: docker itself reads it
    refused = await ran("container", {"runtime": named}, ("runtime", "env", "DOCKER_TOKEN"), secret=SECRET)
    assert failure_of(refused)[0] == "Provider.Call.Container.SecretInArguments"


async def test_an_engrams_command_has_no_secret_among_its_words(tmp_path: Path) -> None:
    text = noting(tmp_path)
    outcome = await ran("engram.command", a_task(run={"argv": None}), ("run", "argv"), secret=text)
    assert value_of(outcome)["stdout"].startswith("600\n700\n")
    assert "pa55" not in (tmp_path / "listed").read_text()

    refused = await ran("engram.command", a_task(run={"argv": ["echo", None]}), ("run", "argv", 1), secret=SECRET)
    assert isinstance(refused, Failed) and "argument 1 of the command contains a secret" in refused.message


def test_umask_and_modes_do_not_matter(tmp_path: Path) -> None:
    """A folder for jobs is private whatever the process' habits are."""
    from perdure.providers.job_folders import folder

    before = os.umask(0)
    try:
        with folder("X") as job:
            assert stat.S_IMODE(job.path.stat().st_mode) == 0o700
    finally:
        os.umask(before)
