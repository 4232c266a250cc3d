"""`perdure.testing.World`: loaded functions and mocks do the work, and a timeout says what is missing."""

import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.providers.registry import shared
from perdure.testing import World

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "a",
    "steps": {
        "a": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/world-greeter/v1", "with": {"name": "{{ step.input }}"}},
            "next": "b",
        },
        "b": {"action": "Return"},
    },
}
STORY = b"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps: [{name: a, ref: {name: world-shouter}, with: {text: "{{ inputs.text }}"}}]
  output: {said: "{{ steps.a.output.said }}"}
"""


@perdure.provider("world-greeter")
def greet(name: str) -> str:
    return f"{name} from {'a thread' if threading.current_thread() is not threading.main_thread() else 'the loop'}"


@perdure.engram("world-shouter")
def shout(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"said": inputs["text"].upper()}


async def test_loaded_functions_do_the_work(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        assert await (await world.start(FLOW, "Ada")).result() == "Ada from a thread"
        assert await (await world.start(STORY, {"text": "hi"})).result() == {"said": "HI"}
        assert world.calls("world-greeter") == [{"name": "Ada"}] and world.calls("world-shouter") == [{"text": "hi"}]


async def test_mocks_answer_by_name_and_may_fail(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        raise perdure.ProviderFailure("Greeter.Shy", f"not to {name}")

    async with World(
        tmp_path, mocks={"world-greeter": "mocked", "world-shouter": lambda inputs: {"said": "?"}}
    ) as world:
        assert await (await world.start(FLOW, "Ada")).result() == "mocked"
        assert await (await world.start(STORY, {"text": "hi"})).result() == {"said": "?"}
        world.mock("world-greeter", fail)
        with pytest.raises(perdure.RunFailed, match=r"Greeter\.Shy"):
            await (await world.start(FLOW, "Ada")).result()


async def test_a_mock_of_a_provider_that_is_not_loaded_exists_as_long_as_its_world(tmp_path: Path) -> None:
    text = str(FLOW).replace("world-greeter", "world-unknown").replace("'", '"').encode()
    async with World(tmp_path, mocks={"world-unknown": 3}) as world:
        assert await (await world.start(text, "Ada")).result() == 3
    assert not shared.knows("world-unknown")


async def test_a_timeout_says_what_the_run_waits_for(tmp_path: Path) -> None:
    sleeper = {**FLOW, "steps": {"a": {"action": "Sleep", "for": "PT1H", "next": "b"}, "b": {"action": "Return"}}}
    async with World(tmp_path, held={"world-greeter"}) as world:
        held, asleep = await world.start(FLOW, "Ada"), await world.start(sleeper)
        with pytest.raises(TimeoutError, match=r"'world-greeter' \(it is held: release it\)"):
            await held.result(timeout=0.01)
        with pytest.raises(TimeoutError, match=r"a timer that is due in 3600 s"):
            await asleep.result(timeout=0.01)
        await world.advance_to_end(asleep)
        assert await asleep.status() == "succeeded"


async def test_a_shipped_provider_is_used_only_if_it_is_named(tmp_path: Path) -> None:
    playbook = (
        b"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
        b"workflow: [{step: a, tool: {kind: shell, cmds: ['echo hi']}}]\n"
    )
    folders = [tmp_path / name for name in ("unused", "used")]
    for folder in folders:
        folder.mkdir()
    async with World(folders[0]) as world:
        run = await world.start(playbook)
        with pytest.raises(
            TimeoutError, match="nobody performs it: load its function, mock it, or name it in `shipped`"
        ):
            await run.result(timeout=0.01)
    async with World(folders[1], shipped={"shell"}) as world:
        run = await world.start(playbook)
        await run.result()
        assert await run.status() == "succeeded"


async def test_a_handle_decides_patches_and_redrives(tmp_path: Path) -> None:
    gated = b"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: g}
spec: {steps: [{name: ok, type: gate}]}
"""
    async with perdure.Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(gated)
        with pytest.raises(TimeoutError, match=f"run {run.id} has not ended within 0.01 s"):
            await run.result(timeout=0.01)
        await run.reject("ok", "not now", by="Ada")
        with pytest.raises(perdure.RunFailed, match="failed step: ok"):
            await run.result(timeout=60)
        await run.redrive(by="Ada")
        await run.approve("ok", by="Ada")
        await run.result(timeout=60)
        assert (await run.status()).value == "succeeded"
