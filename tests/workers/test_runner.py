"""The worker: one outcome per assignment, whatever the function does."""

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.workers.scene import Ledger, at_work, details_of, failure_of, on_loop, outcome_of, task, value_of

from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.tasks.assignments import NOT_IMPORTED
from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import Registry, shared, slow_providers
from perdure.workers import task_execution
from perdure.workers.concurrency_limits import Limits
from perdure.workers.task_execution import Deadlines
from perdure.workers.worker import DEADLINE_EXCEEDED, Worker, system_clock

SOON = Limits(grace=0.05)


def one(function: Callable[..., Any], **options: Any) -> Registry:
    registry = Registry()
    registry.provider("it", **options)(function)
    return registry


def itself() -> list[Any]:
    knot: list[Any] = []
    knot.append(knot)
    return knot


@on_loop
async def test_echo_gives_back_its_input_or_its_value() -> None:
    assert value_of(await outcome_of("echo", {}, {"x": 1})) == {"x": 1}
    assert value_of(await outcome_of("echo", {"value": None}, {"x": 1})) is None


@on_loop
async def test_an_inline_provider_is_done_before_perform_returns() -> None:
    outcomes: list[Outcome] = []
    async with at_work() as worker:
        worker.perform(task("echo", input=5), Ledger(), outcomes.append)

        assert outcomes == [Succeeded(b"5")]


@on_loop
async def test_a_provider_that_is_not_loaded_is_known_as_such() -> None:
    async with at_work() as worker:
        assert (worker.can_perform("echo"), worker.can_perform("not.loaded")) == (True, False)
        assert failure_of(await worker.run(task("not.loaded"), Ledger())) == ("Platform.ProviderFault", False)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object, "object"),
        (lambda: math.nan, "nan"),
        (lambda: [1, {"a": -math.inf}], "inf"),
        (itself, "contains itself"),
        (lambda: {1: {2j}}, "complex"),
        (lambda: "\ud800", "surrogates"),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_a_result_that_is_not_json_is_a_fault(value: Callable[[], Any], problem: str, inline: bool) -> None:
    outcome = asyncio.run(outcome_of("it", registry=one(lambda: value(), inline=inline)))

    assert failure_of(outcome) == ("Platform.ProviderFault", False)
    assert problem in str(outcome)


@on_loop
async def test_a_result_of_100_megabytes_is_refused() -> None:
    outcome = await outcome_of("it", registry=one(lambda: "x" * 100_000_000))

    assert failure_of(outcome) == ("Platform.ResultTooLarge", False)
    assert details_of(outcome) == {"size": 100_000_002, "limit": 64 * 1024 * 1024}


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, RecursionError, GeneratorExit]
)
@pytest.mark.parametrize("mode", ["inline", "thread", "async"])
def test_no_exception_of_a_function_gets_past_its_task(error: type[BaseException], mode: str) -> None:
    def fail() -> None:
        raise error("out")

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise error("out")

    registry = one(fail_later) if mode == "async" else one(fail, inline=mode == "inline")
    outcome = asyncio.run(outcome_of("it", registry=registry))

    assert failure_of(outcome) == (f"Provider.Call.It.Errors.{error.__name__}", None)
    assert isinstance(outcome, Failed)
    assert outcome.message == "out"


@on_loop
async def test_a_failure_on_purpose_is_reported_as_it_is_raised() -> None:
    def decline() -> None:
        raise ProviderFailure("Payment.Declined", "no funds", retryable=False, details={"balance": 3})

    outcome = await outcome_of("it", registry=one(decline))

    assert outcome == Failed("Payment.Declined", "no funds", False, b'{"balance":3}')


@on_loop
async def test_details_without_a_json_form_do_not_hide_the_failure() -> None:
    def decline() -> None:
        raise ProviderFailure("Payment.Declined", details=object())

    outcome = await outcome_of("it", registry=one(decline))

    assert failure_of(outcome)[0] == "Payment.Declined"
    assert "unrepresentable" in details_of(outcome)


@on_loop
async def test_arguments_must_be_an_object() -> None:
    assert failure_of(await outcome_of("echo", [1]))[0] == "Provider.Call.Echo.Errors.TypeError"


@on_loop
async def test_many_threads_deliver_every_result_once() -> None:
    async with at_work(one(lambda n: n), limits=Limits(threads=4)) as worker:
        outcomes = await asyncio.gather(*(worker.run(task("it", {"n": n}, task=n), Ledger()) for n in range(3000)))

    assert [value_of(outcome) for outcome in outcomes] == list(range(3000))


@on_loop
async def test_blocking_functions_run_side_by_side() -> None:
    meeting = threading.Barrier(3)

    async with at_work(one(lambda: meeting.wait(10) >= 0)) as worker:
        outcomes = await asyncio.gather(*(worker.run(task("it", task=n), Ledger()) for n in range(3)))

    assert outcomes == [Succeeded(b"true")] * 3


@on_loop
async def test_cancelling_a_coroutine_ends_it() -> None:
    tidied = asyncio.Event()

    async def wait(context: TaskContext) -> None:
        context.log("running")
        try:
            await asyncio.Event().wait()
        finally:
            assert context.cancelled
            tidied.set()

    ledger = Ledger()
    async with at_work(one(wait)) as worker:
        running = asyncio.create_task(worker.run(task("it"), ledger))
        await ledger.heard("running")
        assert worker.cancel(task("it"), "enough")

        assert await running == Cancelled("enough")
    assert tidied.is_set()


@on_loop
async def test_a_coroutine_may_wait_for_its_cancel() -> None:
    async def wait(context: TaskContext) -> str:
        context.log("running")
        try:
            await context.wait_cancelled()
        except asyncio.CancelledError:
            await context.wait_cancelled()
        return "a result after the cancel does not count"

    ledger = Ledger()
    async with at_work(one(wait)) as worker:
        running = asyncio.create_task(worker.run(task("it"), ledger))
        await ledger.heard("running")
        worker.cancel(task("it"))

        assert await running == Cancelled()


@on_loop
async def test_a_coroutine_that_swallows_its_cancel_is_abandoned() -> None:
    release = asyncio.Event()

    async def stay(context: TaskContext) -> None:
        context.log("running")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    ledger = Ledger()
    async with at_work(one(stay), limits=SOON) as worker:
        running = asyncio.create_task(worker.run(task("it"), ledger))
        await ledger.heard("running")
        worker.cancel(task("it"))

        assert await running == Cancelled()
        release.set()


@on_loop
async def test_a_thread_hears_of_its_cancel() -> None:
    def poll(context: BlockingContext) -> None:
        context.log("running")
        while not context.cancelled:
            time.sleep(0.001)
        context.log("tidied up")

    ledger = Ledger()
    async with at_work(one(poll)) as worker:
        running = asyncio.create_task(worker.run(task("it"), ledger))
        await ledger.heard("running")
        worker.cancel(task("it"))

        assert await running == Cancelled()
    assert ledger.messages == ["running", "tidied up"]


@on_loop
async def test_a_thread_that_cannot_hear_is_abandoned_and_its_late_result_dropped() -> None:
    running, release = threading.Event(), threading.Event()

    def block() -> str:
        running.set()
        release.wait(10)
        return "late"

    outcomes: list[Outcome] = []
    async with at_work(one(block), limits=Limits(threads=1)) as worker:
        worker.perform(task("it"), Ledger(), outcomes.append)
        await asyncio.to_thread(running.wait)
        worker.cancel(task("it"))
        assert outcomes == [Cancelled()]

        running.clear()  # its only thread is lost, so another one is started
        after = asyncio.create_task(worker.run(task("it", task=2), Ledger()))
        await asyncio.to_thread(running.wait)
        release.set()

        assert value_of(await after) == "late"
    assert outcomes == [Cancelled()]


@on_loop
async def test_an_abandoned_thread_can_no_longer_touch_its_run() -> None:
    released, ended = threading.Event(), threading.Event()
    errors: list[str] = []

    def work_on(context: BlockingContext) -> None:
        context.log("running")
        released.wait(10)
        try:
            context.effect_once("mail", lambda: "sent")
        except RuntimeError as error:
            errors.append(type(error).__name__)
        ended.set()

    ledger = Ledger()
    async with at_work(one(work_on), limits=SOON) as worker:
        running = asyncio.create_task(worker.run(task("it"), ledger))
        await ledger.heard("running")
        worker.cancel(task("it"))
        assert await running == Cancelled()

        released.set()
        await asyncio.to_thread(ended.wait)
    assert (errors, ledger.claimed) == (["StaleTask"], set())


@on_loop
async def test_a_task_that_waits_for_a_thread_can_be_cancelled() -> None:
    running, release = threading.Event(), threading.Event()
    calls: list[int] = []

    def block(n: int) -> None:
        calls.append(n)
        running.set()
        release.wait(10)

    async with at_work(one(block), limits=Limits(threads=1)) as worker:
        first = asyncio.create_task(worker.run(task("it", {"n": 1}, task=1), Ledger()))
        await asyncio.to_thread(running.wait)
        second = asyncio.create_task(worker.run(task("it", {"n": 2}, task=2), Ledger()))
        await asyncio.sleep(0)
        worker.cancel(task("it", task=2))

        assert await second == Cancelled()
        release.set()
        assert value_of(await first) is None
        assert value_of(await worker.run(task("it", {"n": 3}, task=3), Ledger())) is None
    assert calls == [1, 3]


@on_loop
async def test_cancelling_what_is_not_in_hand_answers_no() -> None:
    async with at_work() as worker:
        assert not worker.cancel(task("echo"))


@on_loop
async def test_a_deadline_ends_the_task() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    release = threading.Event()
    deadline = system_clock() + 50_000
    async with at_work(one(wait)) as worker:
        outcome = await worker.run(task("it", deadline=deadline), Ledger())
    async with at_work(one(lambda: release.wait(10))) as worker:
        blocked = await worker.run(task("it", deadline=system_clock() + 50_000), Ledger())
    release.set()

    assert failure_of(outcome)[0] == failure_of(blocked)[0] == DEADLINE_EXCEEDED


@on_loop
async def test_a_task_past_its_deadline_does_not_begin() -> None:
    calls: list[int] = []
    async with at_work(one(lambda: calls.append(1), inline=True), now=lambda: 1000) as worker:
        late = await worker.run(task("it", deadline=1000), Ledger())
        in_time = await worker.run(task("it", deadline=1001), Ledger())

    assert (failure_of(late)[0], value_of(in_time), calls) == (DEADLINE_EXCEEDED, None, [1])


@on_loop
async def test_a_quick_function_has_no_thread_until_a_call_takes_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one with large arguments, and after that for the rest of the process."""
    monkeypatch.setattr(task_execution, "QUICK", 0.3)  # seconds, which a busy machine takes for no reason less often
    threads: list[bool] = []

    def quick(seconds: float, text: str = "") -> None:
        threads.append(threading.current_thread() is not threading.main_thread())
        time.sleep(seconds)

    registry = one(quick, quick=True)
    async with at_work(registry) as worker:
        for arguments in ({"seconds": 0}, {"seconds": 0, "text": "x" * 10_000}, {"seconds": 0}, {"seconds": 0.35}):
            await worker.run(task("it", arguments), Ledger())
    async with at_work(registry) as another:
        await another.run(task("it", {"seconds": 0}), Ledger())
    counted = "it" in slow_providers  # as a server tells (`perdure_slow_functions`)
    slow_providers.discard("it")

    assert threads == [False, True, False, False, True] and counted
    assert [record.getMessage().partition(" took")[0] for record in caplog.records] == [
        "it was declared quick, but a call"
    ]


@on_loop
async def test_closing_reports_nothing_and_leaves_nothing() -> None:
    ended = asyncio.Event()

    async def wait(context: TaskContext) -> None:
        context.log("running")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ledger, outcomes = Ledger(), list[Outcome]()
    worker = Worker(one(wait))
    worker.perform(task("it"), ledger, outcomes.append)
    await ledger.heard("running")
    await worker.close()

    assert ended.is_set()
    assert outcomes == []
    with pytest.raises(RuntimeError, match="closed"):
        worker.perform(task("it"), ledger, outcomes.append)


@on_loop
async def test_closing_wakes_those_who_wait() -> None:
    async def wait(context: TaskContext) -> None:
        context.log("running")
        await asyncio.Event().wait()

    ledger = Ledger()
    async with at_work(one(wait)) as worker:
        running = asyncio.create_task(worker.run(task("it"), ledger))
        await ledger.heard("running")

    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_loop_that_is_shut_down_is_no_outcome_of_its_tasks() -> None:
    """Otherwise Ctrl-C would be recorded as the failure of whatever happened to run."""
    outcomes: list[Outcome] = []

    async def wait() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        Worker(one(wait)).perform(task("it"), Ledger(), outcomes.append)
        await asyncio.sleep(0)

    asyncio.run(main())

    assert outcomes == []


@on_loop
async def test_a_plain_function_may_answer_with_a_coroutine() -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 5

    assert value_of(await outcome_of("it", registry=one(lambda: later()))) == 5
    assert value_of(await outcome_of("it", registry=one(lambda: later(), inline=True))) == 5


@on_loop
async def test_a_message_that_cannot_be_built_does_not_hide_the_failure() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            sys.exit(1)

    def fail() -> None:
        raise Rude

    assert failure_of(await outcome_of("it", registry=one(fail)))[0] == "Provider.Call.It.Errors.Rude"


@pytest.mark.parametrize("provider", ["shell", "python", "http"])
def test_a_cancel_right_after_the_start_is_heard(provider: str) -> None:
    """Whatever it interrupts: the task's first step, a pipe being opened, a process being started."""
    arguments = {
        "shell": {"argv": ["sleep", "60"]},
        "python": {"function": "time:sleep", "args": [60], "isolated": True},
        "http": {"url": "http://127.0.0.1:9/"},
    }

    async def cancel_after(turns: int) -> Outcome:
        async with at_work() as worker:
            early = task(provider, arguments[provider])
            ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            worker.perform(early, Ledger(), ended.set_result)
            for _ in range(turns):
                await asyncio.sleep(0)
            if worker.cancel(early):
                assert isinstance(await ended, Cancelled)
            return await ended

    for turns in range(8):
        asyncio.run(cancel_after(turns))


# What is to be apart, whatever its provider says (invariant 27).


async def apart(provider: str, arguments: Any) -> Outcome:
    async with at_work() as worker:
        assignment = task(provider, arguments, apart=True)
        assert worker.can_keep_apart(assignment)
        return await worker.run(assignment, Ledger())


@on_loop
async def test_a_suspect_is_done_in_a_process_of_its_own() -> None:
    """Invariant 27: it gives what it would give here, and its death is that of its process."""
    arguments: dict[str, Any] = {"function": "os:getpid"}
    first, second = value_of(await apart("python", arguments)), value_of(await apart("python", arguments))
    died = await apart("python", {"function": "os:_exit", "args": [9]})

    assert len({os.getpid(), first, second}) == 3
    assert failure_of(died) == ("Platform.WorkerDied", True)
    assert value_of(await apart("echo", {"value": 7})) == 7, "also what is done inline elsewhere"


@on_loop
async def test_what_is_isolated_by_nature_is_known_as_such() -> None:
    """Invariant 27: such a task is never a suspect."""
    async with at_work() as worker:
        assert worker.keeps_apart(task("python", {"function": "os:getpid", "isolated": True}))
        assert not worker.keeps_apart(task("python", {"function": "os:getpid"}))
        assert not worker.keeps_apart(task("not.loaded"))
        assert not worker.keeps_apart(task("echo"))
    async with at_work(registry=one(lambda: 1, isolated=True)) as worker:
        assert worker.keeps_apart(task("it"))
        assert not worker.can_keep_apart(task("it")), "another process would not find it"


@on_loop
async def test_a_function_that_another_process_cannot_import_is_not_begun_there() -> None:
    """Invariant 27: it is known beforehand, or told; it never fails of that."""

    def inside() -> int:
        return 1

    shared.provider("test.inside")(inside)
    shared.provider("test.later")(late)  # at the top of a module, which does not register it when it is imported
    async with at_work() as worker:
        assert not worker.can_keep_apart(task("test.inside"))
        assert worker.can_keep_apart(task("test.later"))
        assert failure_of(await worker.run(task("test.later", apart=True), Ledger())) == (NOT_IMPORTED, False)


def late() -> int:
    return 1


MUCH = [{"id": at, "name": f"name {at}"} for at in range(20_000)]


@pytest.mark.parametrize(
    ("value", "order"), [([1], ["done", "loop"]), (MUCH, ["loop", "done"])], ids=["small", "large"]
)
@on_loop
async def test_the_event_loop_goes_on_while_a_large_result_is_written(value: Any, order: list[str]) -> None:
    """Invariant 29: what is large is written in a thread, in pieces."""
    seen: list[str] = []
    outcomes: list[Outcome] = []

    async def give() -> Any:
        asyncio.get_running_loop().call_soon(seen.append, "loop")
        return value

    def done(outcome: Outcome) -> None:
        seen.append("done")
        outcomes.append(outcome)

    async with at_work(one(give)) as worker:
        worker.perform(task("it"), Ledger(), done)
        while len(seen) < 2:
            await asyncio.sleep(0)

        assert seen == order
        assert value_of(outcomes[0]) == value


@on_loop
async def test_large_arguments_and_inputs_are_read_in_a_thread() -> None:
    """Invariant 29: an inline provider, which else is done at once, is done later."""
    outcomes: list[Outcome] = []
    async with at_work() as worker:
        for assignment in (task("echo", {"value": MUCH}), task("echo", input=MUCH)):
            outcomes.clear()
            worker.perform(assignment, Ledger(), outcomes.append)
            assert outcomes == []
            while not outcomes:
                await asyncio.sleep(0)
            assert value_of(outcomes[0]) == MUCH


@on_loop
async def test_a_large_result_of_a_thread_is_the_same() -> None:
    async with at_work(one(lambda: MUCH)) as worker:
        assert value_of(await worker.run(task("it"), Ledger())) == MUCH


@on_loop
async def test_a_task_that_is_stopped_while_its_arguments_are_read_ends_as_cancelled() -> None:
    async with at_work() as worker:
        assignment = task("echo", {"value": MUCH})
        outcomes: list[Outcome] = []
        worker.perform(assignment, Ledger(), outcomes.append)
        await asyncio.sleep(0)
        assert worker.cancel(assignment)
        while not outcomes:
            await asyncio.sleep(0)
        assert isinstance(outcomes[0], Cancelled)


class Watched:
    """As much of an execution as `Deadlines` looks at."""

    expiry = 0


async def test_one_alarm_serves_all_deadlines_and_forgets_what_is_over() -> None:
    expired: list[Any] = []
    all_done = asyncio.Event()

    def expire(execution: Any) -> None:
        deadlines.remove(execution)
        expired.append(execution)
        if len(expired) == 2:
            all_done.set()

    deadlines = Deadlines(expire)
    first, second, never = Watched(), Watched(), Watched()
    for execution, remaining in ((never, 3600.0), (second, 0.02), (first, 0.01)):
        execution.expiry = deadlines.add(execution, remaining)  # type: ignore[arg-type]
    for _ in range(5_000):
        short = Watched()
        short.expiry = deadlines.add(short, 1800.0)  # type: ignore[arg-type]
        deadlines.remove(short)  # type: ignore[arg-type]

    await asyncio.wait_for(all_done.wait(), 30)
    deadlines.close()

    assert expired == [first, second]
    assert len(deadlines._order) <= 1_100, "those that are over are dropped"
