"""The script provider: real files, run in a folder of their own."""

from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import details_of, failure_of, has_ended, outcome_of, value_of

from perdure.kernel.outcomes import Outcome


async def script(folder: Path, name: str, text: str, **arguments: Any) -> Outcome:
    (folder / name).write_text(text)
    return await outcome_of("script", {"script": {"uri": name, "folder": str(folder)}, **arguments})


async def test_a_python_file_has_its_args_twice(tmp_path: Path) -> None:
    text = "import json, sys\nassert json.load(sys.stdin) == json.loads(sys.argv[1])\nprint(sys.argv[1])"
    outcome = await script(tmp_path, "a.py", text, args={"n": 1})

    assert value_of(outcome) == {"exit_code": 0, "stdout": '{"n":1}\n', "stderr": ""}


async def test_the_first_line_may_say_how_to_run_it(tmp_path: Path) -> None:
    assert value_of(await script(tmp_path, "a.awk", "#!/bin/sh\necho sh"))["stdout"] == "sh\n"
    assert failure_of(await script(tmp_path, "b.awk", "BEGIN {}"))[0] == "Provider.Call.Script.BadArguments"


async def test_the_text_itself(tmp_path: Path) -> None:
    assert value_of(await outcome_of("script", {"script": "echo $((1 + 1))"}))["stdout"] == "2\n"


async def test_a_command_files_and_an_environment(tmp_path: Path) -> None:
    (tmp_path / "far.txt").write_text("far")
    runtime = {
        "image": "ignored",
        "namespace": "ignored",
        "command": ["sh", "-c", 'cat conf/near.txt far.txt run.sh; echo "$COLOR $N $1"', "sh"],
        "args": ["last"],
        "env": {"COLOR": "red", "N": 3},
        "files": [{"mountPath": "conf/near.txt", "content": "near"}, {"uri": "far.txt", "folder": str(tmp_path)}],
    }
    outcome = await script(tmp_path, "run.sh", "exit 9", runtime=runtime)

    assert value_of(outcome)["stdout"] == "nearfarexit 9red 3 last\n"


@pytest.mark.parametrize(
    "file",
    [{"mountPath": "../x", "content": ""}, {"mountPath": "/etc/x", "content": ""}, {"content": ""}, {"mountPath": "x"}],
)
async def test_files_stay_in_the_folder(tmp_path: Path, file: Any) -> None:
    outcome = await script(tmp_path, "a.sh", "echo never", runtime={"files": [file]})

    assert failure_of(outcome) == ("Provider.Call.Script.BadArguments", False)


async def test_an_exit_code_is_a_failure(tmp_path: Path) -> None:
    outcome = await script(tmp_path, "a.sh", "echo why >&2; exit 3")

    assert failure_of(outcome)[0] == "Provider.Call.Script.Exit3"
    assert details_of(outcome)["exit_code"] == 3 and details_of(outcome)["stderr"] == "why\n"


async def test_the_shorter_limit_counts(tmp_path: Path) -> None:
    outcome = await script(tmp_path, "a.sh", "echo $$; sleep 60", timeout=30, runtime={"timeoutSeconds": 0.3})

    assert failure_of(outcome) == ("Provider.Call.Script.Timeout", True)
    assert has_ended(int(details_of(outcome)["stdout"]))


async def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    outcome = await outcome_of("script", {"script": {"uri": "gone.sh", "folder": str(tmp_path)}})

    assert failure_of(outcome) == ("Provider.Call.ScriptSource.NotFound", False)


async def test_nothing_stays_behind(tmp_path: Path) -> None:
    place = value_of(await script(tmp_path, "a.sh", "pwd"))["stdout"].strip()

    assert place and not Path(place).exists()
