"""Many who follow a run cost little more than one (SRV-014, invariant 33)."""

import asyncio
from pathlib import Path
from typing import Any

from tests.workers.scene import on_loop

import perdure
from perdure.kernel.json_values.values import RunId
from perdure.views.runs.live_events import COMMENT_EVERY, LOOKS, LiveEvents

PLAYBOOK = {
    "apiVersion": "noetl.io/v10",
    "kind": "Playbook",
    "metadata": {"name": "many", "path": "many"},
    "workload": {"xs": list(range(50))},
    "workflow": [{"step": "start", "loop": {"in": "{{ workload.xs }}", "iterator": "x"}, "tool": {"kind": "noop"}}],
}


class _CountingClient:
    """Counts how often a whole history is read."""

    def __init__(self, engine: perdure.Engine) -> None:
        self._engine = engine
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def history(self, *arguments: Any, **more: Any) -> Any:
        self.reads += 1
        return await self._engine.history(*arguments, **more)


async def _followed(live: LiveEvents, run: RunId, after: int = 0) -> list[int]:
    numbers = []
    async for event in live.follow(run, after):
        if event is not None:
            numbers.append(event["seq"])
        await asyncio.sleep(0)  # as when it is sent
    return numbers


@on_loop
async def test_a_history_is_read_once_for_all_who_follow_it(tmp_path: Path) -> None:
    """Forty followers of a run of a few thousand events stopped every other run of the server."""
    async with perdure.Engine(f"sqlite:///{tmp_path}/perdure.db") as engine:
        handle = await engine.start(PLAYBOOK)
        await handle.result()
        whole = [event["seq"] for event in await engine.history(handle.id)]
        client = _CountingClient(engine)
        live = LiveEvents(client)  # type: ignore[arg-type]
        histories = await asyncio.gather(*(_followed(live, handle.id) for _ in range(30)))
        assert histories == [whole] * 30 and len(whole) > 50
        assert client.reads <= 2

        client.reads = 0
        places = [10, 40, 25, 0, len(whole)]
        histories = await asyncio.gather(*(_followed(live, handle.id, after) for after in places))
        assert histories == [whole[after:] for after in places]


@on_loop
async def test_all_events_are_told_while_a_run_goes_on(tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/perdure.db") as engine:
        live = LiveEvents(engine)
        live.open()
        try:
            handle = await engine.start(PLAYBOOK)
            histories = await asyncio.gather(*(_followed(live, handle.id) for _ in range(5)))
        finally:
            live.close()
        assert histories == [[event["seq"] for event in await engine.history(handle.id)]] * 5


@on_loop
async def test_whoever_hears_nothing_is_not_woken_to_find_that_out(tmp_path: Path) -> None:
    """A thousand followers of quiet runs took 5 % of a core: each of them woke every second."""
    document = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "nap",
        "steps": {"nap": {"action": "Sleep", "for": "PT1H", "next": "end"}, "end": {"action": "Return", "value": 1}},
    }
    async with perdure.Engine(f"sqlite:///{tmp_path}/perdure.db") as engine:
        handle = await engine.start(document)
        live = LiveEvents(engine)
        live._poll_later = lambda: None  # type: ignore[method-assign]
        live.open()
        received: list[dict[str, Any] | None] = []
        is_allowed = True

        async def follow() -> None:
            async for event in live.follow(handle.id, goes_on=lambda: is_allowed):
                received.append(event)

        followers = [asyncio.create_task(follow()) for _ in range(20)]
        begun = len(await engine.history(handle.id))
        async with asyncio.timeout(30):
            while len(received) < 20 * begun:
                await asyncio.sleep(0.01)
        received.clear()

        async def seconds(count: int) -> int:
            for _ in range(count * LOOKS):
                live._poll()
            await asyncio.sleep(0.02)
            return len(received)

        assert await seconds(COMMENT_EVERY - 3) == 0
        assert await seconds(4) == 20 and set(map(str, received)) == {"None"}
        is_allowed = False
        assert await seconds(1) >= 40
        live.close()
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
