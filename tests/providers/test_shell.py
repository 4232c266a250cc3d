"""The shell provider, with real processes."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

from tests.workers.scene import (
    Ledger,
    at_work,
    details_of,
    failure_of,
    has_ended,
    is_cancelled,
    on_loop,
    outcome_of,
    task,
    value_of,
)

from perdure.kernel.outcomes import Outcome
from perdure.workers.concurrency_limits import Limits


async def shell(input: Any = None, **arguments: Any) -> Outcome:
    return await outcome_of("shell", arguments, input)


@on_loop
async def test_a_command_answers_with_exit_code_and_output() -> None:
    outcome = await shell(argv=["sh", "-c", "echo out; echo err >&2"])

    assert value_of(outcome) == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


@on_loop
async def test_a_script_reads_its_input_as_json() -> None:
    outcome = await shell({"name": "Ada"}, script="cat", parse="json")

    assert value_of(outcome)["stdout"] == {"name": "Ada"}


@on_loop
async def test_stdin_may_be_given_as_text_and_left_unread() -> None:
    assert value_of(await shell(script="cat", stdin="plain"))["stdout"] == "plain"
    assert value_of(await shell("x" * 1_000_000, script="exit 0"))["exit_code"] == 0


@on_loop
async def test_another_interpreter_a_folder_and_an_environment(tmp_path: Path) -> None:
    outcome = await shell(
        script="import os; print(os.getcwd(), os.environ['COLOR'])",
        interpreter=["python3", "-c"],
        cwd=str(tmp_path),
        env={"COLOR": "red"},
    )

    assert value_of(outcome)["stdout"] == f"{tmp_path.resolve()} red\n"


@on_loop
async def test_the_command_knows_its_idempotency_key_and_no_secret_it_was_not_given() -> None:
    os.environ["PERDURE_SECRET_UNRELATED"] = "hidden"
    try:
        outcome = await shell(script='echo "$PERDURE_IDEMPOTENCY_KEY:$PERDURE_SECRET_UNRELATED"')
    finally:
        del os.environ["PERDURE_SECRET_UNRELATED"]

    assert value_of(outcome)["stdout"] == "r1/main/step:\n"


@on_loop
async def test_an_exit_code_is_a_failure_unless_expected() -> None:
    outcome = await shell(script="echo so far; exit 3")

    assert failure_of(outcome) == ("Provider.Call.Shell.Exit3", None)
    assert details_of(outcome) == {"stdout": "so far\n", "stderr": "", "exit_code": 3}
    assert value_of(await shell(script="exit 3", expect=[0, 3]))["exit_code"] == 3


@on_loop
async def test_a_command_ended_by_a_signal_says_which() -> None:
    outcome = await shell(script="kill -9 $$")

    assert failure_of(outcome)[0] == "Provider.Call.Shell.Killed"
    assert details_of(outcome)["signal"] == "SIGKILL"


@on_loop
async def test_what_cannot_be_started_is_a_failure() -> None:
    missing = await shell(argv=["no-such-command-anywhere"])
    nowhere = await shell(argv=["true"], cwd="/no/such/folder")
    zero = await shell(argv=["echo", "a\0b"])

    assert {failure_of(outcome) for outcome in (missing, nowhere, zero)} == {("Provider.Call.Shell.NotStarted", False)}


@on_loop
async def test_argv_and_script_exclude_each_other() -> None:
    assert failure_of(await shell())[0] == "Provider.Call.Shell.BadArguments"
    assert failure_of(await shell(argv=["true"], script="true"))[0] == "Provider.Call.Shell.BadArguments"
    assert failure_of(await shell(argv=[1]))[0] == "Provider.Call.Shell.BadArguments"


@on_loop
async def test_huge_output_is_cut_and_flagged() -> None:
    result = value_of(await shell(script="head -c 5000000 /dev/zero | tr '\\0' 'x'", max_output=1000))

    assert result == {"exit_code": 0, "stdout": "x" * 1000, "stdout_truncated": True, "stderr": ""}


@on_loop
async def test_output_that_is_no_text_comes_as_base64() -> None:
    result = value_of(await shell(script=r"printf '\377\376\000'"))

    assert base64.b64decode(result["stdout"]) == b"\xff\xfe\x00"
    assert result["stdout_encoding"] == "base64"


@on_loop
async def test_a_cut_inside_a_character_is_still_text() -> None:
    result = value_of(await shell(argv=["printf", "ééé"], max_output=3))

    assert (result["stdout"], result["stdout_truncated"]) == ("é", True)


@on_loop
async def test_output_that_is_not_json_is_a_failure_when_json_was_promised() -> None:
    outcome = await shell(script="echo '{'", parse="json")

    assert failure_of(outcome) == ("Provider.Call.Shell.InvalidJson", False)
    assert details_of(outcome)["stdout"] == "{\n"


@on_loop
async def test_what_a_script_leaves_in_the_background_ends_with_it() -> None:
    outcome = await shell(script="sleep 60 & echo $!")

    assert has_ended(int(value_of(outcome)["stdout"]))


@on_loop
async def test_a_process_that_left_the_group_cannot_hold_the_task() -> None:
    """It keeps our pipes open; its output after the end is not waited for."""
    outcome = await shell(script="setsid sh -c 'echo $$; exec sleep 3' & sleep 0.1")

    assert value_of(outcome)["exit_code"] == 0


@on_loop
async def test_a_timeout_ends_the_whole_group() -> None:
    outcome = await shell(script="sleep 60 & echo $!; wait", timeout=0.2)

    assert failure_of(outcome) == ("Provider.Call.Shell.Timeout", True)
    assert has_ended(int(details_of(outcome)["stdout"]))


@on_loop
async def test_cancelling_asks_first_and_then_kills(tmp_path: Path) -> None:
    polite, stubborn = tmp_path / "polite", tmp_path / "stubborn"
    for name in (polite, stubborn):
        os.mkfifo(name)
    async with at_work(limits=Limits(grace=5)) as worker:
        tasks = [
            task("shell", {"script": f"trap 'exit 0' TERM; echo $$ > {polite}; sleep 60 & wait"}, task=1),
            task("shell", {"script": f"trap '' TERM; echo $$ > {stubborn}; sleep 60", "grace": 0.1}, task=2),
        ]
        running = [asyncio.create_task(worker.run(item, Ledger())) for item in tasks]
        pids = [int(await asyncio.to_thread(name.read_text)) for name in (polite, stubborn)]
        for item in tasks:
            worker.cancel(item)

        assert all(map(is_cancelled, await asyncio.gather(*running)))
    assert all(map(has_ended, pids))
