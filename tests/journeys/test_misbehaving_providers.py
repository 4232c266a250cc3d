"""Providers that misbehave, with the real worker: a clear error, no hang, and no other run harmed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.engine.clock import SystemClock
from perdure.engine.handle import RunFailed
from perdure.engine.settings import Settings
from perdure.kernel.outcomes import Failed
from perdure.providers.registry import Registry
from perdure.stores.errors import StoreLocked
from perdure.wiring import Engine, open_store
from perdure.workers.worker import Worker
from tests.engine.documents import drill


def make_registry() -> Registry:
    registry = Registry()

    @registry.provider("not-json")
    def not_json() -> Any:
        return object()

    @registry.provider("nan")
    def nan() -> Any:
        return [float("nan")]

    @registry.provider("huge")
    def huge() -> Any:
        return "x" * 100_000_000

    @registry.provider("large")
    def large() -> Any:
        return "x" * 20_000_000

    @registry.provider("raises")
    def raises() -> Any:
        raise KeyError("nothing here")

    @registry.provider("exits")
    def exits() -> Any:
        raise SystemExit(3)

    @registry.provider("size")
    def size(input: Any) -> int:
        return len(input)

    return registry


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Engine]:
    async with Engine(f"sqlite:///{folder / 'runs.db'}", hands=Worker(make_registry())) as engine:
        yield engine


@pytest.mark.parametrize(
    ("provider", "code"),
    [
        ("not-json", "Platform.ProviderFault"),
        ("nan", "Platform.ProviderFault"),
        ("huge", "Platform.ResultTooLarge"),
        ("raises", "Provider.Call.Raises.Errors.KeyError"),
        ("exits", "Provider.Call.Exits.Errors.SystemExit"),
    ],
)
async def test_a_bad_result_is_a_structured_failure_of_its_own_run(tmp_path: Path, provider: str, code: str) -> None:
    async with opened(tmp_path) as engine:
        bad = await engine.start(drill({"call": provider}))
        good = await engine.start(drill({"call": "echo", "input": 1, "save": "x"}, {"return": "$x"}))

        with pytest.raises(RunFailed) as caught:
            await bad.result()
        assert await good.result() == 1
        assert isinstance(caught.value.outcome, Failed)
        assert caught.value.outcome.code == code


async def test_a_large_result_lives_beside_the_log_and_reaches_the_next_task(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        document = drill(
            {"call": "large", "save": "it"}, {"call": "size", "input": "$it", "save": "n"}, {"return": "$n"}
        )
        run = await engine.start(document)

        assert await run.result() == 20_000_000
        rows = await engine.store.history(run.id)
        assert sum(len(body) for _, body in rows) < 2_000


async def test_a_killed_subprocess_is_a_failure_that_can_be_retried(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    step = {
        "call": "python",
        "with": {
            "function": "tests.journeys.test_misbehaving_providers:die_once",
            "args": [str(marker)],
            "isolated": True,
        },
        "retry": {"attempts": 3, "delay": "1ms"},
        "save": "x",
    }
    async with perdure.Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(drill(step, {"return": "$x"}))

        assert await run.result() == "alive"
        outcomes = [event["outcome"] for event in await run.history() if event["event"] == "TaskEnded"]
        assert outcomes[0]["code"] == "Platform.WorkerDied"


def die_once(marker: str) -> str:
    path = Path(marker)
    if not path.exists():
        path.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def count_for_ever() -> None:
    while True:
        pass


async def test_cancelling_kills_an_isolated_function_that_never_ends(tmp_path: Path) -> None:
    step = {
        "call": "python",
        "with": {"function": "tests.journeys.test_misbehaving_providers:count_for_ever", "isolated": True},
    }
    async with perdure.Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(drill(step))
        await run.cancel("enough")

        with pytest.raises(RunFailed, match="cancelled: enough"):
            await run.result()


async def test_a_locked_file_is_waited_for_then_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    clock = SystemClock()
    engine = Engine(open_store(url, clock, timeout=0.05), clock=clock, settings=Settings(commit_tries=2))
    await engine.runtime.open()
    run = await engine.start(drill({"signal": "go"}, {"return": "done"}))
    other = apsw.Connection(str(tmp_path / "runs.db"))
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreLocked, match="locked"):
        await run.signal("go", key="k")

    other.execute("ROLLBACK")
    other.close()
    await engine.runtime.die()
    async with Engine(url) as again:
        await again.resume()
        await again.signal(run.id, "go", key="k")
        assert await again.handle(run.id).result() == "done"


async def test_a_short_lock_delays_and_harms_nothing(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(drill({"signal": "go"}, {"return": "done"}))
        other = apsw.Connection(str(tmp_path / "runs.db"))
        other.execute("BEGIN IMMEDIATE")
        signalling = asyncio.ensure_future(run.signal("go"))
        await asyncio.sleep(0.05)
        assert not signalling.done()
        other.execute("ROLLBACK")
        other.close()
        await signalling

        assert await run.result() == "done"
