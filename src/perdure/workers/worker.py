"""The worker inside an engine's process: it takes assignments and gives back one outcome each.

It knows where a provider's function runs and how it is stopped there.
It knows nothing of runs, stores or languages, and it retries nothing.

    inline    called at once          cannot be stopped
    async     a task on the loop      cancelled, then abandoned
    thread    a thread of our own     told through its context, then abandoned
    isolated  a warm subprocess       SIGTERM, then SIGKILL
    apart     a subprocess of its own, whatever its provider says; stopped as isolated ones are
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from perdure.kernel import jsontext
from perdure.kernel.assignments import Assignment, RunPort
from perdure.kernel.ids import family_of
from perdure.kernel.outcomes import Cancelled, Code, Failed, Outcome
from perdure.kernel.sealed_arguments import read_secret_places
from perdure.kernel.values import SECOND, Instant
from perdure.providers.policy import refusal_in_force
from perdure.providers.registry import DATABASE, Mode, Provider, Registry, shared
from perdure.providers.task_outcomes import RESULT_LIMIT, settle
from perdure.workers.concurrency_limits import LONG, GroupLimit, LanguageLimit
from perdure.workers.secrets import KeychainSource, Masks, Resolver, Secrets, fill_mask, from_environment
from perdure.workers.task_execution import PROCESS, Done, TaskExecution, is_isolated, not_open
from perdure.workers.threads import Threads

if TYPE_CHECKING:
    from perdure.providers.isolation.pool import ProcessPools
    from perdure.workers.task_execution import Answer
    from perdure.workers.unsealer import Unsealer

DEADLINE_EXCEEDED = "Platform.DeadlineExceeded"

_Key = tuple[str, int, int, int]

# Members of an enumeration are found slowly, and every task asks for these.
_INLINE, _THREAD, _ISOLATED = Mode.INLINE, Mode.THREAD, Mode.ISOLATED


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker allows itself. `grace` is the time between a polite stop and giving a task up."""

    result_bytes: int = RESULT_LIMIT
    threads: int = 32
    processes: int = 4
    processes_apart: int = 16  # for suspects; those that wait for a place are held up by no more than each other
    tasks_per_process: int = 1000
    process_memory: int | None = None  # bytes of address space
    grace: float = 5.0  # seconds
    groups: Mapping[str, int] = field(default_factory=lambda: {DATABASE: 4})  # at a time, of providers of one group
    languages: Mapping[str, int] = field(default_factory=dict)  # at a time, of runs in one language
    long: float = LONG  # seconds after which one that others wait for does not count among them


def system_clock() -> Instant:
    return time.time_ns() // 1000


class Worker:
    """Runs assignments on the event loop it is used from. Not thread-safe; one per loop."""

    def __init__(
        self,
        registry: Registry = shared,
        *,
        now: Callable[[], Instant] = system_clock,
        resolve_secret: Resolver = from_environment,
        keychain: KeychainSource | None = None,
        unsealer: "Unsealer | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._registry = registry
        self._now = now
        self._resolve_secret = resolve_secret
        self._keychain = keychain
        self._unsealer = unsealer
        self._masks = Masks()
        self._limits = limits or Limits()
        self._errands: dict[_Key, TaskExecution] = {}
        groups = {**self._limits.groups, PROCESS: self._limits.processes}
        self._groups = GroupLimit(groups, self._place, self._limits.long)
        self._crowds = {
            name: LanguageLimit(limit, self._begin, self._limits.long) for name, limit in self._limits.languages.items()
        }
        self._threads: Threads[TaskExecution, Answer] | None = None
        self._pools: ProcessPools | None = None
        self._waits: set[asyncio.Future[Outcome]] = set()
        self._is_closed = False

    def can_perform(self, provider: str) -> bool:
        """False for a task that must wait until its provider is loaded."""
        return self._registry.knows(provider)

    def keeps_apart(self, assignment: Assignment) -> bool:
        """Whether it is done in a subprocess by nature. Sealed arguments that might say so say nothing here."""
        provider = self._known(assignment.provider)
        return provider is not None and is_isolated(provider, assignment)

    def can_keep_apart(self, assignment: Assignment) -> bool:
        """Whether a subprocess could import its function."""
        provider = self._known(assignment.provider)
        return provider is not None and self._registry is shared and self._registry.can_be_imported(provider)

    def _known(self, name: str) -> Provider | None:
        try:
            return self._registry.find(name)
        except Exception:  # it cannot be imported, which `perform` tells
            return None

    def perform(self, assignment: Assignment, port: RunPort, done: Done) -> None:
        """Start the assignment and call `done` once, with its outcome.

        An inline provider is done before this returns; the caller must bear being called back from inside.
        After `close` nothing is reported any more: what was open then is for the next delivery.
        """
        if self._is_closed:
            raise RuntimeError("the worker is closed")
        try:
            provider = self._registry.find(assignment.provider)
        except Exception as error:  # an installed provider whose module cannot be imported
            problem = f"provider {assignment.provider!r} cannot be imported: {type(error).__name__}: {error}"
            done(Failed(Code.PROVIDER_FAULT, problem, False))
            return
        if provider is None:
            done(Failed(Code.PROVIDER_FAULT, f"no provider is named {assignment.provider!r}", False))
            return
        name = assignment.provider
        refusal = not_open(name, assignment.language) or refusal_in_force(name, assignment.namespace)
        if refusal is not None:  # what the document was judged by, or among, may have changed since
            done(Failed(Code.NOT_ALLOWED, refusal, False))
            return
        family = family_of(assignment.run)
        mask = self._masks.of(family)
        if assignment.secrets:
            fill_mask(mask, assignment.secrets, self._resolve_secret, self._keychain)
        secrets = Secrets(self._resolve_secret, mask)
        errand = TaskExecution(assignment, port, provider, done, secrets, self._limits.result_bytes, family)
        is_sealed = assignment.sealed and read_secret_places(assignment.arguments) is None
        has_much = len(assignment.arguments) > jsontext.PIECE or len(assignment.input) > jsontext.PIECE
        if is_sealed or (has_much and not assignment.sealed):  # the event loop should not read it
            if assignment.deadline is None or self._arm(errand, assignment.deadline):
                self._unseal(errand) if is_sealed else self._prepare_first(errand, asyncio.to_thread(errand.read_aside))
            return
        try:
            errand.open()
        except Exception as error:
            self._finish(errand, errand.failure(error))
            return
        if assignment.deadline is None or self._arm(errand, assignment.deadline):
            self._admit(errand)

    def _admit(self, errand: TaskExecution) -> None:
        if self._groups.enter(errand):
            self._place(errand)
        else:
            self._track(errand)

    def _place(self, errand: TaskExecution) -> None:
        crowd = self._crowds.get(errand.assignment.language)
        if crowd is None or errand.mode is _INLINE:
            self._begin(errand)
        else:
            self._track(errand)
            crowd.enter(errand)

    def _begin(self, errand: TaskExecution) -> None:
        mode = errand.mode
        if mode is _THREAD:
            self._track(errand)
            self._hands().submit(errand)
        elif mode is _ISOLATED:
            self._launch(errand, self._isolate(errand))
        else:
            self._continue(errand, errand.attempt())

    async def run(self, assignment: Assignment, port: RunPort) -> Outcome:
        """`perform` for callers that can wait; cancelling the wait cancels the assignment."""
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.perform(assignment, port, lambda outcome: None if ended.done() else ended.set_result(outcome))
        self._waits.add(ended)
        try:
            return await ended
        except asyncio.CancelledError:
            self.cancel(assignment)
            raise
        finally:
            self._waits.discard(ended)

    def cancel(self, assignment: Assignment, reason: str = "") -> bool:
        """Ask the assignment to stop; it ends as `Cancelled`, at the latest after the grace.

        False: it is not in hand (any more), so its outcome was or will be reported by itself.
        """
        errand = self._errands.get(_key(assignment))
        if errand is None:
            return False
        self._stop(errand, Cancelled(reason))
        return True

    async def close(self) -> None:
        """End everything this worker started, and report none of it; those who wait in `run` are cancelled."""
        self._is_closed = True
        for wait in self._waits:
            wait.cancel()
        errands = list(self._errands.values())
        for errand in errands:
            errand.done = _unheard
            self._stop(errand, Cancelled("the worker was closed"))
        if self._pools is not None:
            await self._pools.close()
        if tasks := [errand.task for errand in errands if errand.task is not None]:
            await asyncio.wait(tasks, timeout=self._limits.grace)
        for errand in list(self._errands.values()):
            self._finish(errand, Cancelled())
        self._groups.close()
        for crowd in self._crowds.values():
            crowd.close()
        if self._threads is not None:
            self._threads.close()
        if self._unsealer is not None:
            await self._unsealer.close()
        for provider in self._registry:
            if provider.close is not None:
                await provider.close()

    def _hands(self) -> "Threads[TaskExecution, Answer]":
        if self._threads is None:
            loop = asyncio.get_running_loop()

            def work(errand: TaskExecution) -> "Answer":
                return Cancelled() if errand.is_over else errand.attempt(loop)  # it may have been stopped in the queue

            self._threads = Threads(work, self._continue, self._limits.threads, self._follow)
        return self._threads

    def _follow(self, errand: TaskExecution, answer: "Answer") -> TaskExecution | None:
        """In the errand's thread: who has it next. A call that goes on as a coroutine keeps its place."""
        crowd = self._crowds.get(errand.assignment.language)
        return None if crowd is None or isinstance(answer, CoroutineType) else crowd.follow(errand)

    def _continue(self, errand: TaskExecution, answer: "Answer") -> None:
        """The call has answered: with its end, or with a coroutine that has to run here."""
        if not isinstance(answer, CoroutineType):  # as `iscoroutine` has it; a class of `collections.abc` is slow
            self._finish(errand, answer)
        elif errand.is_over or errand.stopped is not None:
            answer.close()
            self._finish(errand, Cancelled())
        else:
            self._launch(errand, answer)

    def _unseal(self, errand: TaskExecution) -> None:
        """Get the secrets first, on the loop; then begin as any other."""
        if self._unsealer is None:
            self._finish(errand, Failed(Code.PROVIDER_FAULT, "sealed arguments cannot be opened by this worker", False))
            return
        self._prepare_first(errand, self._unsealer.open(errand.assignment, errand.secrets.mask))

    def _prepare_first(self, errand: TaskExecution, arguments: Coroutine[Any, Any, dict[str, Any]]) -> None:
        self._track(errand)
        errand.coroutine = arguments
        errand.task = asyncio.get_running_loop().create_task(self._prepare(errand, arguments))

    async def _prepare(self, errand: TaskExecution, coroutine: Coroutine[Any, Any, dict[str, Any]]) -> None:
        errand.take_up()
        try:
            arguments = await coroutine
        except BaseException as error:
            self._finish(errand, self._broken(errand, error))
            return
        errand.task = errand.coroutine = None
        if errand.stopped is not None:
            self._finish(errand, errand.stopped)
            return
        try:
            errand.take(arguments)
        except Exception as error:
            self._finish(errand, errand.failure(error))
            return
        self._admit(errand)

    def _broken(self, errand: TaskExecution, error: BaseException) -> Outcome:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and errand.stopped is None and task and task.cancelling():
            # Not our doing: the loop is being shut down. The task did not end, it will be delivered again.
            errand.is_over = True
            raise error
        return errand.failure(error)

    def _launch(self, errand: TaskExecution, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._track(errand)
        errand.coroutine = coroutine
        errand.task = asyncio.get_running_loop().create_task(self._drive(errand, coroutine))

    async def _drive(self, errand: TaskExecution, coroutine: Coroutine[Any, Any, Any]) -> None:
        errand.take_up()
        try:
            value = await coroutine
            if errand.mode is not _ISOLATED and jsontext.is_large(value):
                outcome = await asyncio.to_thread(errand.settle_aside, value)
            else:
                outcome = value if errand.mode is _ISOLATED else settle(value, errand.limit)
        except BaseException as error:
            outcome = self._broken(errand, error)
        self._finish(errand, outcome)

    async def _isolate(self, errand: TaskExecution) -> Outcome:
        from perdure.providers.isolation.pool import ProcessPools

        if self._pools is None:
            self._pools = ProcessPools(
                idle_children=self._limits.processes,
                limit_apart=self._limits.processes_apart,
                orders_per_child=self._limits.tasks_per_process,
                memory=self._limits.process_memory,
                grace=self._limits.grace / 2,  # killed before it would be given up
            )
        order, provider = errand.order(self._registry.sources), errand.provider
        key = "" if provider.turn_key is None else provider.turn_key(errand.arguments)
        return await self._pools.run(order, provider, key, errand.answer, errand.hear)

    def _track(self, errand: TaskExecution) -> None:
        self._errands[_key(errand.assignment)] = errand

    def _arm(self, errand: TaskExecution, deadline: Instant) -> bool:
        left = (deadline - self._now()) / SECOND
        verdict = Failed(DEADLINE_EXCEEDED, "the task did not end before its deadline")
        if left <= 0:
            self._finish(errand, verdict)
            return False
        if errand.mode is not _INLINE or errand.assignment.sealed:
            errand.timer = asyncio.get_running_loop().call_later(left, self._stop, errand, verdict)
        return True

    def _stop(self, errand: TaskExecution, verdict: Outcome) -> None:
        if errand.stopped is not None or errand.is_over:
            return
        errand.stopped = verdict
        if errand.timer is not None:
            errand.timer.cancel()
        if errand.cancellation is not None:
            errand.cancellation.request()
        if errand.task is not None:
            errand.task.cancel()
            if errand.coroutine is not None and getcoroutinestate(errand.coroutine) == CORO_CREATED:
                # A task cancelled before its first step ends without entering `_drive`: nobody else would report it.
                errand.coroutine.close()
                self._finish(errand, verdict)
                return
        elif not errand.can_hear:
            self._abandon(errand)  # nothing is won by waiting
            return
        errand.timer = asyncio.get_running_loop().call_later(self._limits.grace, self._abandon, errand)

    def _abandon(self, errand: TaskExecution) -> None:
        is_in_thread = errand.has_begun and errand.task is None and not errand.is_over
        if is_in_thread and self._threads is not None:
            self._threads.give_up(errand)
        self._finish(errand, Cancelled())

    def _finish(self, errand: TaskExecution, outcome: Outcome) -> None:
        if errand.is_over:
            return  # a late answer of something given up
        errand.is_over = True
        if errand.timer is not None:
            errand.timer.cancel()
        key = _key(errand.assignment)
        if self._errands.get(key) is errand:
            del self._errands[key]
        mask = errand.secrets.mask
        self._masks.leave(errand.family, mask)
        following = self._groups.leave(errand)
        outcome = errand.stopped or outcome
        errand.done(mask.outcome(outcome) if mask.hides else outcome)
        if self._is_closed:
            return
        if following is not None:
            self._place(following)
        crowd = self._crowds.get(errand.assignment.language)
        if crowd is not None:
            crowd.leave(errand)


def _key(assignment: Assignment) -> _Key:
    return (assignment.run, assignment.task, assignment.attempt, assignment.delivery)


def _unheard(outcome: Outcome) -> None:
    """Where outcomes go once the worker is closed."""
