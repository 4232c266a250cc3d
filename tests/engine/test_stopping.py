"""A run that unwinds waits for the runs below it that it waits for; one that can never end is waited for one grace."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.assignments import Assignment
from perdure.testing import World
from perdure.testing.hands import ScriptedHands
from tests.dialects.flow.documents import flow

RUN = "mwl:provider.call/perdure/run/v1"
CALLS = flow(
    {
        "work": {"action": "Call", "call": {"provider": RUN, "with": {"path": "kid"}}, "next": "done"},
        "done": {"action": "Return"},
    }
)


class Stubborn(ScriptedHands):
    """Work goes on although it is asked to stop, until its grace has passed."""

    def cancel(self, assignment: Assignment) -> None:
        self.cancelled.append(assignment)


def kid(*steps: dict[str, Any]) -> list[AppliedDocument]:
    return [AppliedDocument("folder/kid.json", json.dumps({"drill": 1, "name": "kid", "steps": steps}))]


@pytest.mark.every_store
async def test_a_flow_that_is_cancelled_ends_after_its_child(tmp_path: Path) -> None:
    async with World(tmp_path, hands=Stubborn(held={"work"})) as world:
        run = await world.start(CALLS, applied=kid({"call": "work", "grace": "60s"}))
        await run.cancel("enough")
        await world.advance(59)
        assert await run.status() == "waiting"
        await world.advance(1)

        assert await run.status() == "cancelled"
        assert world.engine is not None
        child = await world.engine.find(RunId(f"{run.id}.1"))
        parent = await world.engine.find(run.id)
        assert child.ended_at is not None and parent.ended_at is not None
        assert child.ended_at <= parent.ended_at


async def test_a_child_that_is_stuck_is_waited_for_one_grace(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(CALLS, applied=kid({"sleep": "1h"}))
        child = RunId(f"{run.id}.1")
        with sqlite3.connect(world.path) as store:  # nobody will ever be able to decide it
            store.execute("UPDATE runs SET program = x'00' WHERE id = ?", (child,))
        await run.cancel("enough")
        await world.advance(9)
        assert await run.status() == "waiting"
        await world.advance(1)

        assert await run.status() == "cancelled"
        assert world.engine is not None
        assert (await world.engine.find(child)).stuck
