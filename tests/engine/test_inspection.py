"""The public interface for tests and tools of other packages: `IdleExecutor`, `load_source`, `decode_log`."""

from pathlib import Path

import pytest

import perdure
from perdure.providers import LoadError, shared
from perdure.testing import IdleExecutor, World, decode_log, load_source
from perdure.testing.drill import Drill

ECHO = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "say",
    "steps": {
        "say": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/echo/v1"}, "next": "done"},
        "done": {"action": "Return", "value": "said"},
    },
}


async def test_an_idle_engine_records_runs_and_performs_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with perdure.Engine(url, hands=IdleExecutor()) as engine:
        run = await engine.start(ECHO)
        rows = await engine.store.history(run.id)
        raw = await engine.history(run.id, raw=True)
    events = decode_log("flow", [row for _, row in rows])

    names = [event["event"] for event in events]
    assert names[0] == "RunStarted"
    assert "TaskScheduled" in names and "TaskEnded" not in names
    assert events == raw

    async with perdure.Engine(url) as engine:
        await engine.resume()
        assert await engine.handle(run.id).result() == "said"


async def test_the_decoded_log_is_numbered_over_all_rows(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start({"drill": 1, "steps": [{"sleep": "1h"}, {"call": "echo"}]})
        await world.settle()
        await world.advance(3600)
        await world.settle()
        assert world.engine is not None
        rows = [row for _, row in await world.engine.store.history(run.id)]
        events = decode_log("drill", rows, {"drill": Drill()})

    assert len(rows) > 1
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["event"] == "RunEnded"


def test_a_source_registers_its_providers(tmp_path: Path) -> None:
    source = tmp_path / "inspected_providers.py"
    source.write_text(
        'import perdure\n\n\n@perdure.provider("inspected.double")\ndef double(x: int) -> int:\n    return 2 * x\n'
    )
    load_source(str(source))
    load_source(str(source))
    provider = shared.find("inspected.double")

    assert provider is not None and provider.function.invoke({"x": 4}) == 8
    with pytest.raises(LoadError, match="there is no such file"):
        load_source(str(tmp_path / "missing.py"))
