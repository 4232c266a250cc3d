"""The python provider: functions by name, in every mode."""

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import (
    Ledger,
    at_work,
    details_of,
    failure_of,
    is_cancelled,
    on_loop,
    outcome_of,
    task,
    value_of,
)

from perdure.kernel.outcomes import Failed, Outcome
from perdure.workers.concurrency_limits import Limits

HERE = "tests.providers.samples"


async def python(function: str, input: Any = None, **rest: Any) -> Outcome:
    return await outcome_of("python", {"function": function, **rest}, input)


@pytest.mark.parametrize("isolated", [False, True])
def test_a_function_is_called_by_its_name(isolated: bool) -> None:
    async def act() -> list[Any]:
        return [
            value_of(await python(f"{HERE}:add", arguments={"a": 1}, isolated=isolated)),
            value_of(await python(f"{HERE}:add", args=[1, 5], isolated=isolated)),
            value_of(await python(f"{HERE}:add_slowly", arguments={"a": 1}, isolated=isolated)),
            value_of(await python(f"{HERE}:everything", {"x": 1}, args=["a", "b"], isolated=isolated)),
            value_of(await python("os.path:join", args=["a", "b"], isolated=isolated)),
        ]

    expected = [3, 6, [1, "r1/main/step"], [{"x": 1}, "main/step", "a", ["b"], {}], "a/b"]
    assert asyncio.run(act()) == expected


@on_loop
async def test_a_plain_function_runs_off_the_event_loop() -> None:
    here = threading.get_ident()

    assert value_of(await python("threading:get_ident")) != here


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("json.no_such_part:f", "there is no module 'json.no_such_part'"),
        ("json:no_such_function", "module 'json' has no 'no_such_function'"),
        (f"{HERE}:not_a_function", "is a int, not a function"),
        ("json", "is not of the form 'package.module:name'"),
    ],
)
def test_an_unknown_function_is_a_failure(function: str, problem: str, isolated: bool) -> None:
    outcome = asyncio.run(python(function, isolated=isolated))

    assert failure_of(outcome) == ("Provider.Call.Python.UnknownFunction", False)
    assert isinstance(outcome, Failed)
    assert problem in outcome.message


@on_loop
async def test_a_module_that_cannot_be_imported_says_where(tmp_path: Path) -> None:
    (tmp_path / "python_faulty.py").write_text("\nimport no_such_module_within\n")
    sys.path.append(str(tmp_path))
    try:
        outcome = await python("python_faulty:f")
    finally:
        sys.path.remove(str(tmp_path))

    assert failure_of(outcome) == ("Provider.Call.Python.ImportFailed", False)
    assert details_of(outcome)["traceback"][-1].endswith("python_faulty.py:2 in <module>")


@on_loop
async def test_an_exception_keeps_its_name_and_place() -> None:
    outcome = await python(f"{HERE}:raise_value_error")

    assert failure_of(outcome) == ("Provider.Call.Python.Errors.ValueError", None)
    facts = details_of(outcome)
    assert facts["exception"] == "builtins.ValueError"
    assert "in raise_value_error" in facts["traceback"][-1]


@on_loop
async def test_arguments_of_the_function_are_checked_too() -> None:
    outcome = await python(f"{HERE}:add", arguments={"a": 1, "z": 2})

    assert failure_of(outcome) == ("Provider.Call.Python.BadArguments", False)
    assert details_of(outcome)["parameter"] == "z"


@pytest.mark.parametrize("isolated", [False, True])
def test_a_function_without_a_context_is_not_waited_for_after_a_cancel(isolated: bool, tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    os.mkfifo(asleep)

    async def act() -> Outcome:
        async with at_work(limits=Limits(grace=60)) as worker:
            arguments = {"function": f"{HERE}:announce_and_sleep", "args": [str(asleep)], "isolated": isolated}
            deaf = task("python", arguments)
            running = asyncio.create_task(worker.run(deaf, Ledger()))
            assert await asyncio.wait_for(asyncio.to_thread(asleep.read_text), 60) == "asleep"
            worker.cancel(deaf)
            return await asyncio.wait_for(running, 60)

    assert is_cancelled(asyncio.run(act()))
