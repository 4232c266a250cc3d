"""A paused run records what arrives, makes no move and hands nothing out; bounds go on, waits do not run out."""

from pathlib import Path
from typing import Any

import pytest

from perdure.engine.settings import Settings
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.execution import Limits
from perdure.kernel.outcomes import Succeeded
from perdure.testing import RunInWorld, World
from perdure.views.runs.run_status import run_status
from tests.engine.documents import drill
from tests.engine.scenes import make_world
from tests.engine.test_control_messages import elsewhere, gate, phase, playbook, story

pytestmark = pytest.mark.every_store


async def pause(run: RunInWorld, reason: str = "", by: str = "") -> None:
    await run.handle.pause(reason, by=by)
    await run._world.settle()


async def unpause(run: RunInWorld) -> None:
    await run.handle.unpause()
    await run._world.settle()


async def events(run: RunInWorld) -> list[str]:
    return [event["event"] for event in await run.handle.history(raw=True)]


async def test_a_task_at_work_ends_and_the_next_is_not_handed_out(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"call": "slow"}, {"call": "echo", "input": "next"}, {"return": "done"}))
        await pause(run, "look", by="Ada")
        assert await run.status() == "paused"

        world.hands.release(Succeeded(b'"first"'))
        await world.settle()
        assert (await events(run))[-1] == "TaskEnded", "its result is recorded"
        assert len(world.hands.performed) == 1

        for _ in range(2):
            await world.crash()
            await world.boot()
            assert await run.status() == "paused"
            assert len(world.hands.performed) == 1, "nor after a restart"

        await unpause(run)
        assert await run.result() == "done"
        assert (await events(run)).count("TaskRedelivered") == 0


async def test_a_task_that_was_lost_is_delivered_again_only_when_unpaused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"call": "slow"}, {"return": "done"}))
        await pause(run)
        await world.crash()
        await world.boot()
        assert len(world.hands.performed) == 1

        await unpause(run)
        assert [assignment.delivery for assignment in world.hands.performed] == [1, 2]
        world.hands.release(Succeeded(b"null"))
        assert await run.result() == "done"


async def test_a_retry_that_comes_due_waits(tmp_path: Path) -> None:
    document = drill({"call": "broken", "retry": {"attempts": 2, "delay": "10s"}}, {"return": "never"})
    async with make_world(tmp_path) as world:
        run = await world.start(document)
        await pause(run)
        await world.advance(60)
        assert len(world.hands.performed) == 1

        await unpause(run)
        assert len(world.hands.performed) == 2
        assert await run.status() == "failed"


async def test_a_bound_goes_on_and_counts_when_the_run_goes_on(tmp_path: Path) -> None:
    document = drill(
        {"call": "slow", "timeout": "2s", "grace": "1s", "catch": [{"call": "echo", "input": "late"}]},
        {"return": "moved on"},
    )
    async with make_world(tmp_path) as world:
        run = await world.start(document)
        await pause(run)
        await world.advance(10)
        assert "TimerFired" in await events(run)
        assert await run.status() == "paused"

        await unpause(run)
        await world.advance(2)
        assert await run.result() == "moved on"


async def test_a_gate_does_not_run_out_while_its_run_is_paused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(story(gate(timeout="1m")))
        await pause(run)
        await world.advance(300)
        await world.crash()
        await world.boot()
        await world.advance(300)
        assert await phase(run) == "Paused", "the step's own phase: it waits for a decision"
        assert await run.status() == "paused"

        await run.handle._engine.steer(run.id, "gate", {"step": "g", "state": "Approved"})
        await world.settle()
        assert await run.status() == "paused", "the decision is recorded"
        await unpause(run)
        assert await phase(run) == "Succeeded", "and counts, although the gate's time is over"


async def test_a_gate_whose_time_is_over_ends_when_unpaused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(story(gate(timeout="1m")))
        await pause(run)
        await world.advance(300)
        await unpause(run)
        assert await phase(run) == "Timeout"


async def test_a_cancel_ends_the_pause(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}, cleanup=[{"call": "echo", "input": "swept"}]))
        await pause(run)
        await run.cancel("enough")
        assert await run.status() == "cancelled"
        assert [name for name in await events(run) if "Paus" in name or "paus" in name] == ["RunPaused", "RunUnpaused"]


async def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}))
        with pytest.raises(Conflict, match="the run is not paused"):
            await run.handle.unpause()
        await run.handle.pause(key="one")
        await run.handle.pause(key="one")
        with pytest.raises(Conflict, match="the run is paused already"):
            await run.handle.pause(key="two")
        await unpause(run)
        await run.signal("go")
        assert await run.status() == "succeeded"
        with pytest.raises(Conflict, match="already succeeded"):
            await run.handle.pause()


async def test_long_work_stops_between_two_slices(tmp_path: Path) -> None:
    settings = Settings(limits=Limits(slice=10), poll=0.005)
    async with make_world(tmp_path, settings=settings) as world:
        assert world.engine is not None
        handle = await world.engine.start(drill({"spin": 5_000}, {"return": "done"}))
        run = world.run(handle.id)
        await pause(run)
        before = (await run.handle.show())["status"]
        count = len(await events(run))
        assert before == "paused"
        await world.crash()
        await world.boot()
        assert len(await events(run)) == count, "nothing moves"
        await unpause(run)
        assert await run.result() == "done"


async def test_a_paused_playbook_is_paused_in_every_view(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(playbook(wait_timeout_s=60))
        await pause(run, "look", by="Ada")
        assert await run.status() == "paused"
        assert (await run.show())["status"] == "paused"
        await world.advance(600)
        assert await run.status() == "paused", "the wait of its gate does not run out"
        await run.handle._engine.steer(run.id, "patch", {"ctx": {"approved": True}})
        await world.settle()
        assert await run.status() == "paused"
        await unpause(run)
        assert await run.status() == "succeeded"


async def test_why_it_waits_is_told_with_the_command(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(story(gate()))
        await pause(run, "the warehouse is down", by="Ada")
        assert world.engine is not None
        status = await run_status(world.engine, run.id)
        (wait,) = status.waits
        assert wait.about.endswith(f"by Ada (the warehouse is down); perdure unpause {run.id}")
        assert not status.goes_on


async def test_a_fork_of_a_paused_run_is_not_paused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}, {"return": "done"}))
        await pause(run)
        fork = world.run((await world.engine.fork(run.id)).id)  # type: ignore[union-attr]
        await world.settle()
        assert await fork.status() == "waiting"
        await fork.signal("go")
        assert await fork.result() == "done"
        assert await run.status() == "paused"


async def test_a_pause_that_nobody_reads_yet_is_pending(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(story(gate(timeout="1m")))
        await world.crash()
        async with elsewhere(world) as observer:
            await observer.steer(run.id, "pause", {"reason": "x"}, by="Ada")
            with pytest.raises(Conflict, match="paused already"):
                await observer.steer(run.id, "pause", {"reason": "y"}, by="Bob")
            _, execution, pending = await observer.outlook(run.id)
            assert execution.state.activity == "paused"
            assert [message.text.split(" at ")[0] for message in pending] == ["pause"]
        await world.boot()
        await world.advance(300)
        assert await run.status() == "paused"


async def test_a_task_of_a_pool_is_withdrawn_when_it_is_lost_and_offered_again_later(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"call": "slow", "pool": "gpu", "save": "x"}, {"return": "$x"}))
        await pause(run)
        assert world.engine is not None
        store = world.engine.store
        (number,) = (await world.engine.execution(run.id)).state.tasks
        assert await store.is_offered(run.id, number), "it was offered before"
        await world.engine.runtime.ask(run.id, i.TaskLost(number, 1, "its worker is gone"))
        assert not await store.is_offered(run.id, number)
        await world.crash()
        await world.boot()
        assert not await world.engine.store.is_offered(run.id, number)

        await unpause(run)
        assert await world.engine.store.is_offered(run.id, number)
        await run.cancel()
        await world.advance(60)
        assert await run.status() == "cancelled"


async def test_a_kept_back_task_of_a_pool_ends_with_a_cancel(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        run = await world.start(drill({"call": "slow", "pool": "gpu", "save": "x"}, {"return": "$x"}))
        await pause(run)
        assert world.engine is not None
        (number,) = (await world.engine.execution(run.id)).state.tasks
        await world.engine.runtime.ask(run.id, i.TaskLost(number, 1, "its worker is gone"))
        await run.cancel()
        await world.settle()
        assert await run.status() == "cancelled"
        assert not await world.engine.store.is_offered(run.id, number)


async def test_an_older_server_would_not_understand_a_pause(tmp_path: Path) -> None:
    """A Playbook could be paused before, and says so in the words that every server knows."""
    async with World(tmp_path, wrap=OlderNeighbour) as world:
        run = await world.start(drill({"signal": "go"}))
        with pytest.raises(PerdureError, match="older version"):
            await run.handle.pause()
        other = await world.start(playbook())
        await pause(other)
        assert (await other.show())["status"] == "paused"
        assert "RunPaused" not in await events(other)
        await unpause(other)
        assert (await other.show())["status"] == "waiting"


class OlderNeighbour:
    """A store that is shared with a server that reads records up to 3."""

    min_record_version = 3

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
