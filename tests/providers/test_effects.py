"""Effects of one execution (invariant 14): performed once among its callers, and never forgotten by a stop or a result
that cannot be told."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.providers import samples
from tests.workers.scene import Ledger, at_work, details_of, failure_of, is_cancelled, on_loop, task, value_of

import perdure
from perdure.kernel.outcomes import Failed, Outcome
from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.registry import Registry
from perdure.workers.concurrency_limits import Limits
from perdure.workers.worker import system_clock

IN_DOUBT = "Platform.EffectInDoubt"
UNFIT = "Platform.EffectUnfit"


async def perform(function: Callable[..., Any], ledger: Ledger, **facts: Any) -> Outcome:
    registry = Registry()
    registry.provider("mine")(function)
    async with at_work(registry) as worker:
        return await worker.run(task("mine", **facts), ledger)


# Exclusive within an execution (STY-167, STY-282).


@on_loop
async def test_coroutines_of_one_execution_perform_an_effect_once_and_share_its_result() -> None:
    """STY-282."""
    performed: list[str] = []

    async def provider(context: TaskContext) -> list[str]:
        all_called = asyncio.Event()

        async def charge() -> str:
            await all_called.wait()
            performed.append("charged")
            return f"receipt {len(performed)}"

        async def call(number: int) -> str:
            if number == 2:
                all_called.set()
            return await context.effect_once("charge", charge)

        return await asyncio.gather(*(call(number) for number in range(3)))

    assert value_of(await perform(provider, Ledger())) == ["receipt 1"] * 3
    assert performed == ["charged"]


@on_loop
async def test_threads_of_one_execution_perform_an_effect_once_and_share_its_result() -> None:
    """STY-282."""
    performed: list[str] = []

    def provider(context: BlockingContext) -> list[str]:
        together = threading.Barrier(4)

        def charge() -> str:
            performed.append("charged")
            return f"receipt {len(performed)}"

        def call() -> str:
            together.wait()
            return context.effect_once("charge", charge)

        with ThreadPoolExecutor(4) as threads:
            return [item.result() for item in [threads.submit(call) for _ in range(4)]]

    assert value_of(await perform(provider, Ledger())) == ["receipt 1"] * 4
    assert performed == ["charged"]


@pytest.mark.parametrize("provider", ["sample.crowd", "sample.crowd-of-coroutines"])
def test_callers_in_a_subprocess_perform_an_effect_once_and_share_its_result(provider: str, tmp_path: Path) -> None:
    """STY-282, across the pipe to an isolated task."""

    async def run() -> Outcome:
        async with at_work() as worker:
            return await worker.run(task(provider, {"name": str(tmp_path / "performed"), "callers": 4}), Ledger())

    assert samples is not None
    assert value_of(asyncio.run(asyncio.wait_for(run(), 60))) == [1, 1, 1, 1]


@on_loop
async def test_the_next_caller_performs_what_the_one_before_gave_back() -> None:
    performed: list[int] = []

    async def provider(context: TaskContext) -> list[Any]:
        first_is_in = asyncio.Event()

        async def fail() -> str:
            first_is_in.set()
            await asyncio.sleep(0)
            raise OSError("line is busy")

        async def succeed() -> str:
            performed.append(1)
            return "sent"

        async def second() -> str:
            await first_is_in.wait()
            return await context.effect_once("mail", succeed)

        ended = await asyncio.gather(context.effect_once("mail", fail), second(), return_exceptions=True)
        return [str(item) for item in ended]

    assert value_of(await perform(provider, Ledger())) == ["line is busy", "sent"]
    assert performed == [1]


@on_loop
async def test_a_caller_that_gives_up_waiting_holds_nobody_else_up() -> None:
    async def provider(context: TaskContext) -> list[str]:
        first_is_in, go = asyncio.Event(), asyncio.Event()

        async def charge() -> str:
            first_is_in.set()
            await go.wait()
            return "receipt"

        first = asyncio.create_task(context.effect_once("charge", charge))
        await first_is_in.wait()
        impatient = asyncio.create_task(context.effect_once("charge", charge))
        third = asyncio.create_task(context.effect_once("charge", charge))
        await asyncio.sleep(0)
        impatient.cancel()
        go.set()
        return [await first, await third]

    assert value_of(await perform(provider, Ledger())) == ["receipt", "receipt"]


@on_loop
async def test_an_effect_inside_itself_is_refused_instead_of_waiting_for_itself() -> None:
    async def provider(context: TaskContext) -> Any:
        async def outer() -> Any:
            return await context.effect_once("charge", lambda: 1)

        return await context.effect_once("charge", outer)

    def blocking(context: BlockingContext) -> Any:
        return context.effect_once("charge", lambda: context.effect_once("charge", lambda: 1))

    for function in (provider, blocking):
        outcome = await perform(function, Ledger())
        assert isinstance(outcome, Failed)
        assert "nested in itself" in outcome.message


# Completed without a fit result.


@on_loop
async def test_an_effect_whose_result_has_no_json_form_is_never_performed_again() -> None:
    """STY-282: it happened, so every later attempt hears of the same failure, and none of null."""
    performed: list[int] = []

    def charge() -> Any:
        performed.append(1)
        return {"socket": object()}

    async def in_coroutine(context: TaskContext) -> Any:
        return await context.effect_once("charge", charge)

    def in_thread(context: BlockingContext) -> Any:
        return context.effect_once("charge", charge)

    for function in (in_coroutine, in_thread):
        performed.clear()
        ledger = Ledger()
        outcomes = [await perform(function, ledger, attempt=attempt, task=attempt) for attempt in (1, 2, 3)]

        assert {failure_of(outcome) for outcome in outcomes} == {(UNFIT, False)}
        assert len({outcome.message for outcome in outcomes if isinstance(outcome, Failed)}) == 1
        assert details_of(outcomes[2])["effect"] == "charge"
        assert (performed, ledger.released, list(ledger.unfit)) == ([1], [], ["charge"])


def test_an_unfit_result_in_a_subprocess_leaves_the_effect_performed(tmp_path: Path) -> None:
    """STY-282."""
    name, ledger = tmp_path / "performed", Ledger()

    async def run() -> list[Outcome]:
        async with at_work() as worker:
            return [await worker.run(task("sample.unfit", {"name": str(name)}), ledger) for _ in range(2)]

    outcomes = asyncio.run(asyncio.wait_for(run(), 60))
    assert [failure_of(outcome) for outcome in outcomes] == [(UNFIT, False)] * 2
    assert name.read_text() == "performed\n"


@on_loop
async def test_recording_what_was_performed_with_an_unfit_result_raises_that_failure() -> None:
    async def provider(context: TaskContext) -> Any:
        return await context.record_effect("charge", 1)

    ledger = Ledger()
    ledger.unfit["charge"] = "a socket"

    assert failure_of(await perform(provider, ledger)) == (UNFIT, False)


# In doubt.


@on_loop
async def test_a_cancelled_effect_of_a_coroutine_is_in_doubt() -> None:
    async def provider(context: TaskContext) -> None:
        async def charge() -> None:
            context.log("in flight")
            await asyncio.Event().wait()

        await context.effect_once("charge", charge)

    registry, ledger = Registry(), Ledger()
    registry.provider("mine")(provider)
    async with at_work(registry) as worker:
        ended = asyncio.create_task(worker.run(item := task("mine"), ledger))
        await ledger.heard("in flight")
        worker.cancel(item)

        assert is_cancelled(await ended)
    assert (ledger.claimed, ledger.released) == ({"charge"}, [])


@pytest.mark.parametrize("way", ["coroutine", "thread"])
@on_loop
async def test_an_effect_that_fails_because_it_was_told_to_stop_is_in_doubt(way: str) -> None:
    """It was in flight: what it raises on the way out does not say that nothing happened."""

    async def in_coroutine(context: TaskContext) -> None:
        async def charge() -> None:
            context.log("in flight")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise OSError("connection closed") from None

        await context.effect_once("charge", charge)

    def in_thread(context: BlockingContext) -> None:
        def charge() -> None:
            context.log("in flight")
            while not context.cancelled:
                pause.wait(0.001)
            raise OSError("connection closed")

        context.effect_once("charge", charge)

    pause = threading.Event()
    registry, ledger = Registry(), Ledger()
    registry.provider("coroutine")(in_coroutine)
    registry.provider("thread")(in_thread)
    async with at_work(registry) as worker:
        ended = asyncio.create_task(worker.run(item := task(way), ledger))
        await ledger.heard("in flight")
        worker.cancel(item)

        assert is_cancelled(await ended)
    assert (ledger.claimed, ledger.released) == ({"charge"}, [])


@pytest.mark.parametrize("way", ["coroutine", "thread"])
@on_loop
async def test_a_deadline_leaves_the_effect_in_flight_in_doubt(way: str) -> None:
    async def in_coroutine(context: TaskContext) -> None:
        async def charge() -> None:
            await asyncio.Event().wait()

        await context.effect_once("charge", charge)

    def in_thread(context: BlockingContext) -> None:
        def charge() -> None:
            while not context.cancelled:
                pause.wait(0.001)
            raise OSError("connection closed")

        context.effect_once("charge", charge)

    pause = threading.Event()
    registry, ledger = Registry(), Ledger()
    registry.provider("coroutine")(in_coroutine)
    registry.provider("thread")(in_thread)
    async with at_work(registry, Limits(grace=30)) as worker:
        outcome = await worker.run(task(way, deadline=system_clock() + 1_000_000), ledger)

    assert failure_of(outcome)[0] == "Platform.DeadlineExceeded"
    assert (ledger.claimed, ledger.released) == ({"charge"}, [])


@pytest.mark.parametrize("way", ["coroutine", "thread"])
@on_loop
async def test_an_exit_leaves_the_effect_in_doubt(way: str) -> None:
    async def in_coroutine(context: TaskContext) -> None:
        await context.effect_once("charge", leave)

    def in_thread(context: BlockingContext) -> None:
        context.effect_once("charge", leave)

    def leave() -> None:
        raise SystemExit(3)

    ledger = Ledger()
    await perform(in_coroutine if way == "coroutine" else in_thread, ledger)

    assert (ledger.claimed, ledger.released) == ({"charge"}, [])


@on_loop
async def test_a_cancelled_effect_of_a_subprocess_is_in_doubt() -> None:
    ledger = Ledger()
    async with at_work() as worker:
        ended = asyncio.create_task(worker.run(item := task("sample.stopped-effect"), ledger))
        await ledger.heard("in flight")
        worker.cancel(item)

        assert is_cancelled(await ended)
    assert (ledger.claimed, ledger.released) == ({"mail"}, [])


@pytest.mark.parametrize("way", ["coroutine", "thread"])
@on_loop
async def test_an_effect_may_say_that_it_is_in_doubt(way: str) -> None:
    async def in_coroutine(context: TaskContext) -> None:
        await context.effect_once("charge", charge)

    def in_thread(context: BlockingContext) -> None:
        context.effect_once("charge", charge)

    def charge() -> None:
        raise perdure.EffectInDoubt("the connection broke before the answer", {"order": 7})

    ledger = Ledger()
    outcome = await perform(in_coroutine if way == "coroutine" else in_thread, ledger)

    assert failure_of(outcome) == (IN_DOUBT, None)
    assert details_of(outcome) == {"effect": "charge", "idempotency_key": "r1/main/step", "order": 7}
    assert (ledger.claimed, ledger.released) == ({"charge"}, [])


@pytest.mark.parametrize("hold", [False, True])
@on_loop
async def test_an_effect_given_up_by_its_own_execution_is_in_doubt_there_too(hold: bool) -> None:
    """A wait that the function itself bounds is a cancel like any other."""
    performed: list[str] = []

    async def provider(context: TaskContext) -> str:
        async def never() -> str:
            performed.append("begun")
            await asyncio.Event().wait()
            return ""

        first = asyncio.create_task(context.effect_once("charge", never))
        while not performed:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        return await context.effect_once("charge", lambda: "again")

    outcome = await perform(provider, Ledger(), hold_effects_in_doubt=hold)

    assert (failure_of(outcome) == (IN_DOUBT, False)) if hold else (value_of(outcome) == "again")


@on_loop
async def test_an_effect_that_fails_while_its_task_was_stopping_anyway_is_given_back() -> None:
    """Tidying up after a cancel: nothing interrupts that, so its exception means what it says."""

    async def provider(context: TaskContext) -> None:
        def fail() -> None:
            raise OSError("line is busy")

        context.log("running")
        try:
            await asyncio.Event().wait()
        finally:
            await context.effect_once("refund", fail)

    registry, ledger = Registry(), Ledger()
    registry.provider("mine")(provider)
    async with at_work(registry) as worker:
        ended = asyncio.create_task(worker.run(item := task("mine"), ledger))
        await ledger.heard("running")
        worker.cancel(item)
        await ended

    assert ledger.released == ["refund"]
