"""The task context: one set of rules, for coroutines, threads and subprocesses alike."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, on_loop, task, value_of

from perdure.kernel.outcomes import Outcome
from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.registry import Registry

Effect = Callable[[], Any]


def registry_with(effect: Effect) -> Registry:
    """The same effect behind a coroutine and behind a plain function."""
    registry = Registry()

    @registry.provider("async")
    async def in_coroutine(context: TaskContext) -> Any:
        return await context.effect_once("mail", effect)

    @registry.provider("thread")
    def in_thread(context: BlockingContext) -> Any:
        return context.effect_once("mail", effect)

    return registry


async def perform(provider: str, effect: Effect, ledger: Ledger, **facts: Any) -> Outcome:
    async with at_work(registry_with(effect)) as worker:
        return await worker.run(task(provider, **facts), ledger)


both = pytest.mark.parametrize("provider", ["async", "thread"])


@both
def test_an_effect_is_performed_and_recorded(provider: str) -> None:
    ledger = Ledger()

    assert value_of(asyncio.run(perform(provider, lambda: {"id": 7}, ledger))) == {"id": 7}
    assert ledger.completed == {"mail": b'{"id":7}'}


@both
def test_a_completed_effect_answers_with_its_record(provider: str) -> None:
    ledger = Ledger()
    ledger.completed["mail"] = b'"before"'

    assert value_of(asyncio.run(perform(provider, lambda: pytest.fail("ran again"), ledger))) == "before"


@both
def test_an_effect_in_doubt_runs_again_under_the_same_key(provider: str) -> None:
    ledger = Ledger()
    ledger.claimed.add("mail")

    assert value_of(asyncio.run(perform(provider, lambda: "again", ledger, delivery=2))) == "again"


@both
def test_an_effect_in_doubt_is_held_when_the_step_says_so(provider: str) -> None:
    ledger = Ledger()
    ledger.claimed.add("mail")
    outcome = asyncio.run(perform(provider, lambda: pytest.fail("ran"), ledger, delivery=2, hold_effects_in_doubt=True))

    assert failure_of(outcome) == ("Platform.EffectInDoubt", False)
    assert details_of(outcome) == {"effect": "mail", "idempotency_key": "r1/main/step"}
    assert ledger.released == []


@both
def test_an_effect_that_raises_is_given_back(provider: str) -> None:
    def fail() -> None:
        raise OSError("line is busy")

    ledger = Ledger()
    outcome = asyncio.run(perform(provider, fail, ledger))

    assert failure_of(outcome)[0].endswith(".Errors.OSError")
    assert (ledger.released, ledger.completed) == (["mail"], {})


@on_loop
async def test_an_effect_may_be_a_coroutine_only_in_a_coroutine() -> None:
    async def send() -> str:
        await asyncio.sleep(0)
        return "sent"

    effect: Callable[[], Awaitable[str]] = send

    assert value_of(await perform("async", effect, Ledger())) == "sent"
    assert failure_of(await perform("thread", effect, Ledger()))[0].endswith(".Errors.TypeError")


@on_loop
async def test_the_facts_of_the_task_are_there() -> None:
    registry = Registry()

    @registry.provider("facts")
    def facts(context: BlockingContext) -> list[Any]:
        assert context.deadline == datetime(2100, 1, 1, tzinfo=UTC)
        return [
            context.run,
            context.path,
            context.attempt,
            context.delivery,
            context.idempotency_key,
            context.cancelled,
        ]

    due = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    async with at_work(registry) as worker:
        value = value_of(await worker.run(task("facts", attempt=2, delivery=3, deadline=due), Ledger()))

    assert value == ["r1", "main/step", 2, 3, "r1/main/step", False]


@on_loop
async def test_what_a_thread_says_arrives_in_order() -> None:
    registry = Registry()

    @registry.provider("talk")
    def talk(context: BlockingContext) -> Any:
        for n in range(3):
            context.log(f"step {n}", level="debug", n=n)
        context.heartbeat({"done": 3})
        context.emit_signal("ready", {"n": 3})
        return context.record_effect("receipt", 1), context.record_effect("receipt", 2)

    ledger = Ledger()
    async with at_work(registry) as worker:
        value = value_of(await worker.run(task("talk"), ledger))

    assert value == [1, 1]
    assert ledger.lines == [("debug", f"step {n}", {"n": n}) for n in range(3)]
    assert (ledger.heartbeats, ledger.signals) == ([b'{"done":3}'], [("ready", b'{"n":3}')])
