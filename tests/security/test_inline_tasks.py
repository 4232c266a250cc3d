"""Tasks of a provider that answers at once are done while they are handed out: not all of them in one go."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.dialects.flow.document.flows import FLOW_SCHEMA
from perdure.workers.worker import Worker

ECHO = {"provider": "mwl:provider.call/perdure/echo/v1", "with": {"value": 1}}
GATHER = {"action": "Gather", "over": "{{ lists.range(100) }}", "call": ECHO, "next": "r"}
STEPS = {"g": GATHER, "r": {"action": "Return", "value": "{{ step.input.size() }}"}}


def test_many_tasks_that_answer_at_once_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand kept the event loop for more than a second. A slice without length has one task."""
    monkeypatch.setattr("perdure.engine.tasks.task_queues.SLICE", 0.0)
    turns = 0
    begun: Counter[int] = Counter()
    perform = Worker.perform

    def counted(self: Worker, *given: Any) -> None:
        begun[turns] += 1
        perform(self, *given)

    monkeypatch.setattr(Worker, "perform", counted)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def play() -> Any:
        async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
            beside = asyncio.create_task(others())
            try:
                document = {"$schema": FLOW_SCHEMA, "entrypoint": "g", "steps": STEPS}
                return await (await engine.start(document)).result()
            finally:
                beside.cancel()

    assert asyncio.run(play()) == 100
    assert sum(begun.values()) == 100
    assert max(begun.values()) <= 2
