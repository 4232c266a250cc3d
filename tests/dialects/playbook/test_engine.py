"""Playbooks on the real engine: a store that dies at every commit, orders of results, and a patch while nobody runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Succeeded
from perdure.stores.protocol import RunFilter, Store
from perdure.testing.crashing import CrashingStore
from perdure.testing.world import RunInWorld, World
from tests.dialects.playbook.world import playbook
from tests.sampling import Sample

pytestmark = pytest.mark.every_store

TEXT = playbook("""
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: each}]}
  - step: left
    tool:
      - one: {kind: noop, result: 1}
      - two: {kind: echo, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {left: true}}}}]}}}
    next: {arcs: [{step: join}]}
  - step: each
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2, reduce: {sum: sum}}}
    tool: {kind: noop, result: "{{ iter.n }}", spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {sum: "{{ iter.n }}"}}}}]}}}
    next: {arcs: [{step: wait}]}
  - step: wait
    tool: {kind: fails, spec: {policy: {rules: [{when: "{{ _attempt < 3 }}", then: {do: retry, delay: 60}}, {else: {then: {do: break}}}]}}}
  - step: join
    spec: {policy: {admit: {rules: [{when: "{{ ctx.left and ctx.sum == 6 and steps.wait.status == 'ok' }}", then: {allow: true}}]}}}
    tool: {kind: noop, result: "{{ ctx.sum }}"}
""")  # noqa: E501


def fails(arguments: Any, input: Any) -> Any:
    raise RuntimeError("not today")


async def start(world: World) -> RunInWorld:
    assert world.engine is not None
    handle = await world.engine.start(TEXT.encode())
    return RunInWorld(world, handle.id)


def essence(view: Any) -> Any:
    return {name: view[name] for name in ("status", "ctx", "steps", "branches", "failures", "result")}


@pytest.fixture
def registered() -> Any:
    """Names that documents may use as kinds; the hands of the world perform them."""
    from perdure.providers.registry import Provider, shared

    if not shared.knows("fails"):
        shared.add(Provider.of("fails", fails))


async def test_a_crash_at_any_commit_changes_nothing_about_the_end(
    tmp_path: Path, registered: Any, sample: Sample
) -> None:
    """PBK-195 PBK-198."""
    (tmp_path / "calm").mkdir()
    counted: list[CrashingStore] = []

    def count(store: Store) -> Any:
        counted.append(CrashingStore(store, 10_000, after=False))
        return counted[-1]

    async with World(tmp_path / "calm", functions={"fails": fails}, wrap=count) as world:
        run = await start(world)
        await world.advance(300)
        expected = essence(await run.show())
    assert expected["status"] == "success" and expected["result"] == 6
    assert counted[0].commits > 5

    for commit in sample.take(range(2, counted[0].commits)):
        for after in (False, True):
            folder = tmp_path / f"{commit}-{after}"
            folder.mkdir()
            stores: list[CrashingStore] = []

            def dying(store: Store, commit: int = commit, after: bool = after, stores: Any = stores) -> Any:
                stores.append(CrashingStore(store, commit if not stores else 10_000, after=after))
                return stores[-1]

            async with World(folder, functions={"fails": fails}, wrap=dying) as world:
                run = await start(world)
                going = asyncio.ensure_future(world.advance(300))
                dead = asyncio.ensure_future(stores[0].crashed.wait())
                await asyncio.wait({going, dead}, return_when=asyncio.FIRST_COMPLETED)
                going.cancel()
                await asyncio.gather(going, return_exceptions=True)
                await world.crash()
                await world.boot()
                await world.advance(300)

                assert essence(await run.show()) == expected, (commit, after)


async def test_a_patch_reaches_a_run_that_waits_after_a_restart(tmp_path: Path) -> None:
    """PBK-230 PBK-156."""
    text = playbook("""
workflow:
  - step: s
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: echo}
""")
    async with World(tmp_path, held={"echo"}) as world:
        assert world.engine is not None
        handle = await world.engine.start(text.encode())
        run = RunInWorld(world, handle.id)
        await world.settle()
        assert (await run.show())["status"] == "waiting"
        await world.crash()
        await world.boot()

        await world.engine.steer(run.id, "patch", {"ctx": {"go": True}})
        await world.settle()
        world.hands.release(Succeeded(jsontext.encode(5)))

        assert (await run.result())["result"] == 5


@pytest.mark.parametrize("cascade", [False, True])
async def test_a_cancel_reaches_children_and_with_cascade_also_those_nobody_waits_for(
    tmp_path: Path, cascade: bool
) -> None:
    """PBK-190 PBK-204: descendants are found by their parent."""
    waits = 'spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}'
    kid = playbook(f"workflow: [{{step: s, {waits}, tool: {{kind: noop}}}}]").replace("tests/test", "kid")
    mid = playbook("workflow: [{step: m, tool: {kind: playbook, path: kid, spec: {detach: true}}}]").replace(
        "tests/test", "mid"
    )
    text = playbook("""
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: awaited}, {step: left_alone}]}
  - {step: awaited, tool: {kind: playbook, path: kid}}
  - {step: left_alone, tool: {kind: playbook, path: mid}}
""")
    async with World(tmp_path) as world:
        assert world.engine is not None
        handle = await world.engine.start(
            text.encode(), applied=[AppliedDocument("kid.yaml", kid), AppliedDocument("mid.yaml", mid)]
        )
        await world.settle()

        await world.engine.cancel(handle.id, "enough", cascade=cascade)
        await world.settle()

        rows = await world.engine.search(RunFilter())
        stand = {row.id.removeprefix(handle.id): row.status.value for row in rows}
        if cascade:
            await world.engine.cancel(handle.id, "again", cascade=True)  # twice is as once

    detached = {name: status for name, status in stand.items() if name.count(".") == 2}
    assert stand.pop("") == "cancelled"
    assert list(detached.values()) == ["cancelled" if cascade else "waiting"]
    assert sorted(status for name, status in stand.items() if name.count(".") == 1) == ["cancelled", "succeeded"]
