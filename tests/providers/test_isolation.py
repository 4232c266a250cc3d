"""Isolated providers: they die alone, can always be stopped, and reach their run like any other."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
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

from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Failed
from perdure.providers.registry import shared
from perdure.providers.source_loading import load
from perdure.workers.concurrency_limits import Limits
from perdure.workers.worker import system_clock

load("tests.providers.samples")

ROOT = Path(__file__).parents[2]
BRIEF = Limits(grace=0.2)
DIED = ("Platform.WorkerDied", True)


@on_loop
async def test_a_function_runs_in_another_process_and_returns_its_value() -> None:
    async with at_work() as worker:
        assert value_of(await worker.run(task("sample.add", {"a": 2, "b": 3}), Ledger())) == 5
        assert os.getpid() != value_of(await worker.run(task("sample.pid"), Ledger()))


@on_loop
async def test_a_child_is_used_again_and_replaced_after_its_number_of_tasks() -> None:
    async with at_work(limits=Limits(tasks_per_process=2)) as worker:
        pids = [value_of(await worker.run(task("sample.pid"), Ledger())) for _ in range(4)]

    assert pids[0] == pids[1] != pids[2] == pids[3]


@on_loop
async def test_a_child_forgets_everything_between_two_families_of_runs() -> None:
    """What one run leaves in memory is not there for another; runs of one family may share it."""
    limits = Limits(processes=1)
    async with at_work(limits=limits) as worker:
        arguments = {"function": "tests.providers.samples:leave_behind", "isolated": True}
        first, again, child, stranger, back = [
            value_of(await worker.run(task("python", arguments, run=RunId(run)), Ledger()))
            for run in ("r1", "r1", "r1.1", "r2", "r1")
        ]

    clean = {"module": False, "environment": False, "folder": False}
    assert first["found"] == stranger["found"] == back["found"] == clean
    assert again["found"] == child["found"] == {"module": True, "environment": True, "folder": False}
    assert first["pid"] == again["pid"] == child["pid"] != stranger["pid"]


@on_loop
async def test_no_more_children_than_the_limit_serve_many_tasks() -> None:
    async with at_work(limits=Limits(processes=2)) as worker:
        outcomes = await asyncio.gather(*(worker.run(task("sample.pid", task=n), Ledger()) for n in range(20)))

    assert len({value_of(outcome) for outcome in outcomes}) <= 2


@on_loop
async def test_the_context_reaches_the_run_from_inside() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        value = value_of(await worker.run(task("sample.context", input={"x": 1}), ledger))

    assert value == ["r1", 1, "sent", 7, {"x": 1}]
    assert ledger.completed == {"mail": b'"sent"', "receipt": b"7"}
    assert ledger.signals == [("ready", b"[1]")]
    assert ledger.heartbeats == [b'{"at":1}']
    assert ledger.messages == ["working"]
    assert ledger.lines[0][2]["color"] == "red"


@on_loop
async def test_a_completed_effect_is_not_repeated_inside() -> None:
    ledger = Ledger()
    ledger.completed["mail"] = b'"sent yesterday"'
    async with at_work() as worker:
        assert value_of(await worker.run(task("sample.context"), ledger))[2] == "sent yesterday"
        assert value_of(await worker.run(task("sample.coroutine"), ledger)) == "sent yesterday"


@on_loop
async def test_secrets_are_asked_for_and_never_printed() -> None:
    ledger = Ledger()
    async with at_work(resolve_secret={"TOKEN": "hunter2hunter2"}.get) as worker:
        outcome = await worker.run(task("sample.secret"), ledger)

    assert isinstance(outcome, Failed)
    assert outcome.message == "refused [redacted]"
    assert ledger.messages == ["the token is [redacted]"]


@on_loop
async def test_output_goes_to_the_log_and_not_into_the_protocol() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        assert value_of(await worker.run(task("sample.print"), ledger)) == "printed"

    assert {"to stdout", "to stderr", "as bytes"} <= set(ledger.messages)


@on_loop
async def test_a_flood_of_output_is_cut() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        await worker.run(task("sample.flood"), ledger)

    assert len(ledger.lines) < 1100
    assert ledger.messages[-1].startswith("[more than")


@on_loop
async def test_a_deadline_ends_an_endless_loop() -> None:
    async with at_work() as worker:
        outcome = await worker.run(task("sample.spin", deadline=system_clock() + 300_000), Ledger())

    assert failure_of(outcome) == ("Platform.DeadlineExceeded", None)


@on_loop
async def test_a_child_that_exits_is_a_failure_and_the_next_task_gets_another() -> None:
    async with at_work() as worker:
        died = await worker.run(task("sample.exit"), Ledger())
        after = await worker.run(task("sample.add", {"a": 1}), Ledger())

    assert failure_of(died) == DIED
    assert details_of(died)["exit_code"] == 3
    assert value_of(after) == 3


@on_loop
async def test_a_segfault_says_where_it_happened() -> None:
    outcome = await outcome_of("sample.segfault")

    assert failure_of(outcome) == DIED
    assert details_of(outcome)["exit_code"] == -signal.SIGSEGV
    assert "in crash" in details_of(outcome)["output"]


@on_loop
async def test_a_child_killed_from_outside_is_a_failure() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        pid = value_of(await worker.run(task("sample.pid"), ledger))
        running = asyncio.create_task(worker.run(task("sample.deaf"), ledger))
        await ledger.heard("running")
        os.kill(pid, signal.SIGKILL)

        assert failure_of(await running) == DIED


@on_loop
async def test_a_child_that_closes_its_protocol_is_a_failure_not_a_hang() -> None:
    assert failure_of(await outcome_of("sample.abort")) == DIED


@on_loop
async def test_a_child_killed_while_idle_is_not_used() -> None:
    async with at_work() as worker:
        pid = value_of(await worker.run(task("sample.pid"), Ledger()))
        os.kill(pid, signal.SIGKILL)
        again = await worker.run(task("sample.pid"), Ledger())

    if isinstance(again, Failed):  # the order was on its way before the death was known
        assert failure_of(again) == DIED
    else:
        assert pid != value_of(again)


@on_loop
async def test_system_exit_ends_the_task_and_not_the_child() -> None:
    async with at_work() as worker:
        before = value_of(await worker.run(task("sample.pid"), Ledger()))
        outcome = await worker.run(task("sample.system-exit"), Ledger())
        after = value_of(await worker.run(task("sample.pid"), Ledger()))

    assert failure_of(outcome) == ("Provider.Call.SampleSystemExit.Errors.SystemExit", None)
    assert before == after


@on_loop
async def test_an_infinite_loop_is_killed_at_once_when_nobody_listens() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        endless = task("sample.spin")
        running = asyncio.create_task(worker.run(endless, ledger))
        await ledger.heard("spinning")
        assert worker.cancel(endless)

        assert is_cancelled(await running)


@pytest.mark.parametrize("provider", ["sample.listen", "sample.await"])
def test_a_function_that_listens_may_tidy_up(provider: str) -> None:
    async def act() -> Ledger:
        ledger = Ledger()
        async with at_work() as worker:
            long = task(provider)
            running = asyncio.create_task(worker.run(long, ledger))
            await ledger.heard("running")
            worker.cancel(long, "enough")
            assert is_cancelled(await running)
        return ledger

    ledger = asyncio.run(act())

    assert ledger.messages == ["running", "tidied up"]


@on_loop
async def test_a_function_that_has_a_context_and_ignores_it_is_killed_after_the_grace() -> None:
    ledger = Ledger()
    async with at_work(limits=BRIEF) as worker:
        deaf = task("sample.deaf")
        running = asyncio.create_task(worker.run(deaf, ledger))
        await ledger.heard("running")
        worker.cancel(deaf)

        assert is_cancelled(await running)


@on_loop
async def test_a_memory_eater_dies_alone() -> None:
    async with at_work(limits=Limits(process_memory=512 << 20)) as worker:
        outcome = await worker.run(task("sample.eat"), Ledger())
        after = await worker.run(task("sample.add", {"a": 1}), Ledger())

    code, _ = failure_of(outcome)
    assert code in ("Provider.Call.SampleEat.Errors.MemoryError", "Platform.WorkerDied")
    assert value_of(after) == 3


@on_loop
async def test_results_are_checked_before_they_leave_the_child() -> None:
    assert failure_of(await outcome_of("sample.nan")) == ("Platform.ProviderFault", False)
    small = Limits(result_bytes=1000)
    outcome = await outcome_of("sample.large", {"size": 10_000}, limits=small)
    assert failure_of(outcome) == ("Platform.ResultTooLarge", False)
    assert len(value_of(await outcome_of("sample.large", {"size": 3_000_000}))) == 3_000_000


@on_loop
async def test_arguments_are_checked_inside_like_anywhere() -> None:
    outcome = await outcome_of("sample.add", {"a": "two"})

    assert failure_of(outcome) == ("Provider.Call.SampleAdd.BadArguments", False)
    assert details_of(outcome)["parameter"] == "a"


@on_loop
async def test_closing_the_worker_leaves_no_child_behind() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        pid = value_of(await worker.run(task("sample.pid"), ledger))
        worker.perform(task("sample.deaf"), ledger, lambda outcome: None)
        await ledger.heard("running")

    assert has_ended(pid)


def test_a_child_ends_when_its_parent_is_killed() -> None:
    """Also in the middle of a call, and although the parent could not say good-bye."""
    host = textwrap.dedent("""
        import asyncio, os, signal
        from perdure.providers.source_loading import load
        from tests.workers.scene import Ledger, at_work, task

        async def main():
            load("tests.providers.samples")
            ledger = Ledger()
            async with at_work() as worker:
                worker.perform(task("sample.wait"), ledger, print)
                await ledger.heard("waiting")
                print(ledger.messages[0], flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """)
    ended = subprocess.run([sys.executable, "-c", host], cwd=ROOT, capture_output=True, timeout=30, check=False)

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert has_ended(int(ended.stdout))


@on_loop
async def test_a_loaded_file_is_loaded_again_in_the_child(tmp_path: Path) -> None:
    before = list(shared.sources)
    source = tmp_path / "greeting_tools.py"
    source.write_text(
        "from perdure.providers import provider\n\n"
        "@provider('greet', isolated=True)\n"
        "def greet(name: str) -> str:\n"
        "    return f'hello {name}'\n"
    )
    load(str(source))

    assert value_of(await outcome_of("greet", {"name": "Ada"})) == "hello Ada"
    shared.sources[:] = before  # the file goes with the test


def test_a_file_in_the_working_directory_cannot_break_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "signal.py").write_text("raise ImportError('not the signal module')")
    monkeypatch.chdir(tmp_path)

    assert value_of(asyncio.run(outcome_of("sample.add", {"a": 1}))) == 3
