"""What is shown of runs, without a command line: as an HTTP API would ask for it."""

from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.testing import World
from perdure.views.access import StoreAccess
from perdure.views.errors import BadRequest
from perdure.views.runs.history_events import event_at
from perdure.views.runs.live_overview import topology_json
from perdure.views.runs.run_details import run_at, show_json, status_json
from perdure.views.runs.run_list_json import ListQuery, list_all
from perdure.views.runs.run_status import WaitReason, run_status
from perdure.views.runs.run_steps import list_steps
from perdure.views.times import iso

SLEEPER = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "nap",
    "steps": {
        "nap": {"action": "Sleep", "for": "PT1H", "next": "done"},
        "done": {"action": "Return", "value": "woken"},
    },
}


async def started(world: World) -> tuple[Any, RunId]:
    run = await world.start(SLEEPER)
    return world.engine, run.id


async def test_a_list_names_every_run_with_its_owner(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        client, run = await started(world)

        (listed,) = [run.plain() for run in (await list_all(StoreAccess(client), ListQuery())).runs]

        assert (listed["id"], listed["status"], listed["live"]) == (run, "waiting", True)
        assert listed["created_at"] == iso(world.clock.now()) and listed["ended_at"] is None
        assert listed["pending"] == []


async def test_a_waiting_run_says_what_it_waits_for(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        client, run = await started(world)

        status = await run_status(client, run)
        facts = await status_json(client, run)

        (wait,) = status.waits
        assert wait.reason is WaitReason.TIMER and wait.due == world.clock.now() + 3_600 * SECOND
        assert status.goes_on and status.is_owned
        assert (facts["execution_id"], facts["live"]) == (run, True)
        assert facts["waits_for"] == [wait.text(world.clock.now())]


async def test_a_run_is_shown_now_and_as_it_was(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        client, run = await started(world)
        await world.advance(3_600)

        _, execution, pending = await run_at(client, run, None)
        assert execution.state.status == "succeeded"
        assert (await show_json(client, execution, pending))["value"] == "woken"

        _, execution, pending = await run_at(client, run, 1)
        assert execution.state.ended_at is None
        assert len((await show_json(client, execution, pending, checksum=True))["checksum"]) == 64


async def test_an_event_is_named_by_number_id_or_time(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        client, run = await started(world)

        assert await event_at(client, run, "2") == await event_at(client, run, f"{run}/2") == 2
        assert await event_at(client, run, "2100-01-01") == len(await client.history(run))
        with pytest.raises(Conflict, match="had not started"):
            await event_at(client, run, "2001-01-01")
        with pytest.raises(BadRequest, match="is not an event of run"):
            await event_at(client, run, "other/2")
        with pytest.raises(BadRequest, match="is neither a time"):
            await event_at(client, run, "soon")


async def test_the_loop_of_a_playbook_is_done_when_its_items_are(tmp_path: Path) -> None:
    loop = {"in": "{{ [1, 2, 3] }}", "iterator": "item"}
    document = {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": "many", "path": "many"},
        "workflow": [{"step": "start", "loop": loop, "tool": {"kind": "noop"}}],
    }
    async with World(tmp_path) as world:
        run = await world.start(document)
        await run.result()
        assert world.engine is not None
        (step,) = await list_steps(world.engine, run.id, None)

        assert (step["status"], step["visits"]["open"], step["items"]["done"]) == ("done", 0, 3)
        assert step["ended_at"] is not None


@pytest.mark.parametrize("picture", [{"status": "success"}, {"status": {"phase": "Running"}}, {}, [], "done", None])
def test_a_run_without_streams_has_no_topology(picture: Any) -> None:
    """Each language has a picture of its own."""
    topology = topology_json(RunId("r1"), picture, SECOND)
    assert (topology["run"], topology["steps"], topology["edges"]) == ("r1", [], [])
