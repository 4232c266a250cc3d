"""Large values are written where they hold up nobody."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.stores.sqlite.batch_writer import BatchWriter


@pytest.mark.parametrize(("size", "is_on_loop"), [(10, True), (2_000_000, False)])
def test_a_large_value_is_not_written_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_on_loop: bool
) -> None:
    """SQLite copies a value several times: 60 MB took 200 ms, in which no other run was decided."""
    places: list[bool] = []
    write = BatchWriter.write

    def watched(self: BatchWriter, batch: Any, *rest: Any) -> Any:
        if any(len(change.row or b"") + sum(len(text) for _, text in change.values) > size for change in batch):
            places.append(threading.current_thread() is threading.main_thread())
        return write(self, batch, *rest)

    monkeypatch.setattr(BatchWriter, "write", watched)

    async def play() -> None:
        async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
            await (await engine.start(document(), "x" * size)).result()

    asyncio.run(play())
    assert places and all(place is is_on_loop for place in places)


def document() -> dict[str, Any]:
    from perdure.dialects.flow.document.flows import FLOW_SCHEMA

    step = {"action": "Return", "value": "{{ step.input.size() }}"}
    return {"$schema": FLOW_SCHEMA, "entrypoint": "r", "steps": {"r": step}}
