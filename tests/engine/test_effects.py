"""Invariant 14 on the engine: effects that were performed, that nobody knows of, and what an operator says of them."""

from pathlib import Path
from typing import Any

import pytest

from perdure.engine.client import Client
from perdure.engine.runs import effects
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict
from perdure.kernel.outcomes import Code, Failed, Succeeded
from perdure.kernel.tasks.assignments import RunPort
from perdure.testing import RunInWorld, World
from perdure.wiring import languages
from tests.engine.documents import drill
from tests.engine.scenes import check_fold

HELD = drill({"call": "slow", "hold_effects": True, "save": "x"}, {"return": "$x"})
REPEATED = drill({"call": "slow", "save": "x"}, {"return": "$x"})


def in_hand(world: World) -> RunPort:
    _, port, _ = next(iter(world.hands.waiting.values()))
    return port


def in_doubt(key: str) -> Failed:
    """What a worker reports that may not perform an effect again."""
    return Failed(Code.EFFECT_IN_DOUBT, "may have happened", False, b'{"effect":"%s"}' % key.encode())


async def states(world: World, run: RunInWorld) -> dict[str, tuple[str, bool]]:
    assert world.engine is not None
    return {effect["name"]: (effect["state"], effect["held"]) for effect in await effects.effects(world.engine, run.id)}


async def settle(world: World, run: RunInWorld, effect: str, result: bytes | None, **more: Any) -> None:
    assert world.engine is not None
    await effects.settle(world.engine, run.id, effect, result, **more)


async def held_after_a_crash(world: World) -> RunInWorld:
    """A run whose process died in the middle of an effect, and whose task is held for it."""
    run = await world.start(HELD)
    await in_hand(world).claim_effect("charge")
    await world.crash()
    await world.boot()
    await check_fold(world)
    assert (await in_hand(world).claim_effect("charge")).in_doubt
    world.hands.release(in_doubt("charge"))
    await world.settle()
    return run


@pytest.mark.every_store
async def test_a_task_is_held_for_its_effect_and_goes_on_when_that_is_settled(tmp_path: Path) -> None:
    """Invariant 14: neither a worker nor memory waits for the operator."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await held_after_a_crash(world)
        assert world.engine is not None
        assert await run.status() == "waiting"
        assert world.engine.runtime.tasks_in_flight == 0
        assert not world.engine.runtime.is_open_here(run.id)
        assert await states(world, run) == {"charge": ("in_doubt", True)}

        await settle(world, run, "charge", b'"receipt 7"', by="Ada")
        await world.settle()
        claim = await in_hand(world).claim_effect("charge")
        assert (claim.completed, claim.result) == (True, b'"receipt 7"')
        world.hands.release(Succeeded(b'"paid"'))
        await world.settle()

        assert await run.result() == "paid"
        assert (await run.events()).count("TaskEnded") == 1


async def test_an_effect_settled_as_not_done_is_performed_again_without_doubt(tmp_path: Path) -> None:
    """Invariant 14."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await held_after_a_crash(world)
        await run.handle.settle_effect("charge", done=False, by="Ada")
        await world.settle()
        claim = await in_hand(world).claim_effect("charge")

        assert (claim.completed, claim.in_doubt) == (False, False)
        assert await states(world, run) == {"charge": ("performing", False)}
        assert [effect["key"] for effect in await run.handle.effects()] == ["0:/0#charge"]


async def test_a_held_task_stays_held_over_a_restart_and_costs_nothing(tmp_path: Path) -> None:
    """Invariants 12 and 14: it is in nobody's hands, so it loses no delivery."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await held_after_a_crash(world)
        for _ in range(6):
            await world.crash()
            await world.boot()
            await world.settle()
        assert world.hands.waiting == {}
        assert await states(world, run) == {"charge": ("in_doubt", True)}
        await settle(world, run, "charge", b"1")
        await world.settle()
        world.hands.release(Succeeded(b"2"))
        await world.settle()

        assert await run.result() == 2


async def test_a_held_task_can_be_cancelled(tmp_path: Path) -> None:
    """Invariant 13."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await held_after_a_crash(world)
        await run.cancel()
        await world.settle()

        assert await run.status() == "cancelled"


async def test_a_fork_of_a_held_run_issues_the_task_anew(tmp_path: Path) -> None:
    """Invariant 20: what was not completed belonged to the other run."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await held_after_a_crash(world)
        assert world.engine is not None
        fork = await world.engine.fork(run.id)
        await world.settle()
        claim = await in_hand(world).claim_effect("charge")

        assert (claim.completed, claim.in_doubt) == (False, False)
        assert await fork.status() == "running"


async def test_an_effect_in_doubt_can_be_settled_before_anybody_asks_for_it_again(tmp_path: Path) -> None:
    """Invariant 14: while nobody drives the run, its holders are gone, whatever its log says."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(REPEATED)
        await in_hand(world).claim_effect("charge")
        await world.crash()
        async with Client(world.open_store(), languages(), world.clock, None) as observer:
            (effect,) = await effects.effects(observer, run.id)
            assert effect["state"] == "in_doubt"
            await effects.settle(observer, run.id, effect["key"], b'"receipt 7"')
            (waits,) = await effects.effects(observer, run.id)
            assert (waits["state"], waits["result"]) == ("completed", "receipt 7")
            with pytest.raises(Conflict, match="is completed"):
                await effects.settle(observer, run.id, effect["key"], b'"receipt 8"')
        await world.boot()
        await world.settle()
        claim = await in_hand(world).claim_effect("charge")

        assert (claim.completed, claim.result) == (True, b'"receipt 7"')


async def test_what_is_not_in_doubt_cannot_be_settled(tmp_path: Path) -> None:
    """Invariant 14: an operator overrules neither a record nor work that goes on."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(REPEATED)
        port = in_hand(world)
        with pytest.raises(effects.EffectNotFound):
            await settle(world, run, "charge", b"1")
        await port.claim_effect("charge")
        with pytest.raises(Conflict, match="being performed now"):
            await settle(world, run, "charge", b"1")
        await port.complete_effect("charge", b"2")
        with pytest.raises(Conflict, match="is completed"):
            await settle(world, run, "charge", b"1")
        await port.claim_effect("mail")
        await port.release_effect("mail")
        with pytest.raises(Conflict, match="not performed"):
            await settle(world, run, "mail", b"1")
        world.hands.release(Succeeded(b"null"))
        await world.settle()
        with pytest.raises(Conflict, match="has already succeeded"):
            await settle(world, run, "charge", b"2")


async def test_a_settlement_counts_once_per_key(tmp_path: Path) -> None:
    """Invariant 6."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await held_after_a_crash(world)
        await settle(world, run, "charge", b"1", key="word")
        await settle(world, run, "charge", b"1", key="word")
        with pytest.raises(Conflict, match="used before for something else"):
            await settle(world, run, "charge", None, key="word")

        assert (await run.events()).count("EffectSettled") == 1


async def test_a_settlement_of_another_claim_than_was_seen_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(REPEATED)
        await in_hand(world).claim_effect("charge")
        (seen,) = await effects.effects(world.engine, run.id)  # type: ignore[arg-type]
        await world.crash()
        await world.boot()
        await in_hand(world).claim_effect("charge")
        assert world.engine is not None
        (now,) = await effects.effects(world.engine, run.id)
        assert (seen["takeovers"], now["takeovers"]) == (0, 1)
        word = i.EffectSettle(seen["key"], b"1", (seen["task"], seen["delivery"]), True)
        answer = await world.engine.runtime.ask(run.id, word)

        assert isinstance(answer, i.Refused)
        assert "claimed again" in answer.reason


async def test_an_effect_completed_without_a_fit_result_is_a_state_of_its_own(tmp_path: Path) -> None:
    """Invariant 14: never again, and never null."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(REPEATED)
        await in_hand(world).claim_effect("charge")
        await in_hand(world).complete_effect_unfit("charge", "a socket has no JSON form")
        await world.crash()
        await world.boot()
        await check_fold(world)
        claim = await in_hand(world).claim_effect("charge")

        assert (claim.completed, claim.result, claim.unfit) == (True, None, "a socket has no JSON form")
        assert await states(world, run) == {"charge": ("completed_unfit", False)}


async def test_a_task_that_may_repeat_its_effects_is_never_held(tmp_path: Path) -> None:
    """Only who asked for it; a provider's word alone does not stop a run."""
    async with World(tmp_path, held={"slow"}) as world:
        run = await world.start(REPEATED)
        await in_hand(world).claim_effect("charge")
        world.hands.release(in_doubt("charge"))
        await world.settle()

        assert await run.status() == "failed"
