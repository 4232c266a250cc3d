"""The worker inside an engine's process: it takes assignments and gives back one outcome each.

It knows where a provider's function runs and how it is stopped there; nothing of runs, stores, languages, retries.

    inline    called at once          cannot be stopped; so are quick ones, until one of their calls takes long
    async     a task on the loop      cancelled, then abandoned
    thread    a thread of our own     told through its context, then abandoned
    isolated  a warm subprocess       SIGTERM, then SIGKILL
    apart     a subprocess of its own, whatever its provider says; stopped as isolated ones are
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Cancelled, Code, Failed, Outcome
from perdure.kernel.secrets.sealed_arguments import has_secret_places, read_secret_places
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.providers.registry import Mode, Provider, Registry, shared
from perdure.providers.task_outcomes import to_outcome
from perdure.workers.concurrency_limits import Limits, TaskSemaphore
from perdure.workers.secrets import KeychainSource, Masks, Resolver, Secrets, from_environment, look_at_secrets
from perdure.workers.task_execution import PROCESS, Deadlines, Done, TaskExecution, is_isolated, mode_of, why_refused
from perdure.workers.threads import Threads, Together, call_at_once

if TYPE_CHECKING:
    from perdure.providers.isolation.pool import ProcessPools
    from perdure.workers.task_execution import Answer
    from perdure.workers.unsealer import Unsealer

DEADLINE_EXCEEDED = "Platform.DeadlineExceeded"
_EXPIRED = Failed(DEADLINE_EXCEEDED, "the task did not end before its deadline")
_CANNOT_OPEN = Failed(Code.PROVIDER_FAULT, "sealed arguments cannot be opened by this worker", False)
_Key = tuple[str, int, int, int]

# Members of an enumeration are found slowly, and every task asks for these.
_INLINE, _THREAD, _ISOLATED = Mode.INLINE, Mode.THREAD, Mode.ISOLATED
_MUCH = jsontext.PIECE  # bytes of arguments or input


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
        self._executions: dict[_Key, TaskExecution] = {}
        self._deadlines = Deadlines(lambda execution: self._stop(execution, _EXPIRED))
        groups = {**self._limits.groups, PROCESS: self._limits.processes}
        long, languages = self._limits.long, self._limits.languages
        self._groups = {name: TaskSemaphore(limit, self._enter_language, long) for name, limit in groups.items()}
        self._languages = {name: TaskSemaphore(limit, self._begin, long) for name, limit in languages.items()}
        self._together: Together = call_at_once
        self._threads: Threads[TaskExecution, Answer] | None = None
        self._pools: ProcessPools | None = None
        self._waits: set[asyncio.Future[Outcome]] = set()
        self._is_closed = False

    def report_through(self, together: Together) -> None:
        self._together = together

    def can_perform(self, provider: str) -> bool:
        return self._registry.has_code(provider)  # a task whose provider is not loaded waits

    def keeps_apart(self, assignment: Assignment) -> bool:
        """Whether it is done in a subprocess by nature. Sealed arguments that might say so say nothing here."""
        provider = self._known(assignment.provider)
        return provider is not None and (provider.carries_streams or is_isolated(provider, assignment))

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
        if (refusal := why_refused(assignment)) is not None:
            done(Failed(Code.NOT_ALLOWED, refusal, False))
            return
        mask = self._masks.of(family := family_of(assignment.run))
        keychain, limit = self._keychain and self._keychain.for_task(assignment), self._limits.result_bytes
        secrets = Secrets(self._resolve_secret, mask, keychain)
        mode = _ISOLATED if assignment.apart else mode_of(provider, assignment) if provider.is_quick else provider.mode
        execution = TaskExecution(assignment, port, provider, done, secrets, limit, family, mode, provider.group)
        if not assignment.secrets:
            self._enter(execution)
            return
        self._track(execution)
        execution.coroutine = looking = self._look_at_secrets(execution)
        execution.task = asyncio.get_running_loop().create_task(looking)

    async def _look_at_secrets(self, execution: TaskExecution) -> None:
        """Those that the document names, as they are now; then begin as any other."""
        assignment = execution.assignment
        try:
            await look_at_secrets(execution.secrets, assignment.secrets, self._resolve_secret, assignment.namespace)
        except BaseException as error:
            self._finish(execution, self._outcome_of_error(execution, error))
            return
        execution.task = execution.coroutine = None
        self._enter(execution)

    def _enter(self, execution: TaskExecution) -> None:
        assignment = execution.assignment
        is_envelope = assignment.sealed and not has_secret_places(assignment.arguments)
        has_much = len(assignment.arguments) > _MUCH or len(assignment.input) > _MUCH
        if has_much or is_envelope:  # the event loop should not read it
            if assignment.deadline is None or self._arm(execution, assignment.deadline):
                self._unseal(execution) if is_envelope else self._prepare_first(
                    execution, asyncio.to_thread(execution.read_aside)
                )
            return
        try:
            execution.open(read_secret_places(assignment.arguments) if assignment.sealed else None)
        except Exception as error:
            self._finish(execution, execution.failure(error))
            return
        if assignment.deadline is None or self._arm(execution, assignment.deadline):
            (self._admit if execution.group else self._enter_language)(execution)

    def _admit(self, execution: TaskExecution) -> None:
        if execution.group and (group := self._groups.get(execution.group)) is not None:
            self._track(execution)
            group.enter(execution)
        else:
            self._enter_language(execution)

    def _enter_language(self, execution: TaskExecution) -> None:
        if execution.mode is not _INLINE:
            assignment = execution.assignment
            self._executions[_key(assignment)] = execution
            if (language := self._languages.get(assignment.language)) is not None:
                language.enter(execution)
                return
        self._begin(execution)

    def _begin(self, execution: TaskExecution) -> None:
        if execution.mode is _THREAD:
            (self._threads or self._begin_threads()).submit(execution)
        elif execution.mode is _ISOLATED:
            self._launch(execution, self._isolate(execution))
        else:
            self._continue(execution, execution.attempt())

    async def run(self, assignment: Assignment, port: RunPort) -> Outcome:
        """`perform` for callers that can wait; cancelling the wait cancels the assignment."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.perform(assignment, port, lambda outcome: None if future.done() else future.set_result(outcome))
        self._waits.add(future)
        try:
            return await future
        except asyncio.CancelledError:
            self.cancel(assignment)
            raise
        finally:
            self._waits.discard(future)

    def cancel(self, assignment: Assignment, reason: str = "") -> bool:
        """Ask the assignment to stop; it ends as `Cancelled`, at the latest after the grace.

        False: it is not in hand (any more), so its outcome was or will be reported by itself.
        """
        execution = self._executions.get(_key(assignment))
        if execution is None:
            return False
        self._stop(execution, Cancelled(reason))
        return True

    async def close(self) -> None:
        """End everything this worker started, and report none of it; those who wait in `run` are cancelled."""
        self._is_closed = True
        for wait in self._waits:
            wait.cancel()
        executions = list(self._executions.values())
        for execution in executions:
            execution.done = lambda outcome: None
            self._stop(execution, Cancelled("the worker was closed"))
        if self._pools is not None:
            await self._pools.close()
        if tasks := [execution.task for execution in executions if execution.task is not None]:
            await asyncio.wait(tasks, timeout=self._limits.grace)
        for execution in list(self._executions.values()):
            self._finish(execution, Cancelled())
        self._masks.close()
        self._deadlines.close()
        for semaphore in (*self._groups.values(), *self._languages.values()):
            semaphore.close()
        if self._threads is not None:
            self._threads.close()
        if self._unsealer is not None:
            await self._unsealer.close()
        for provider in self._registry:
            if provider.close is not None:
                await provider.close()

    def _begin_threads(self) -> "Threads[TaskExecution, Answer]":
        loop = asyncio.get_running_loop()

        def work(execution: TaskExecution) -> "Answer":  # it may have been stopped in the queue
            return Cancelled() if execution.is_over else execution.attempt(loop)

        self._threads = threads = Threads(work, self._continue, self._limits.threads, self._follow, self._together)
        return threads

    def _follow(self, execution: TaskExecution, answer: "Answer") -> TaskExecution | None:
        """In the execution's thread: who has it next. A call that goes on as a coroutine keeps its place."""
        language = self._languages.get(execution.assignment.language)
        return None if language is None or isinstance(answer, CoroutineType) else language.follow(execution)

    def _continue(self, execution: TaskExecution, answer: "Answer") -> None:
        """The call has answered: with its end, or with a coroutine that has to run here."""
        if not isinstance(answer, CoroutineType):  # as `iscoroutine` has it; a class of `collections.abc` is slow
            self._finish(execution, answer)
        elif execution.is_over or execution.stopped is not None:
            answer.close()
            self._finish(execution, Cancelled())
        else:
            self._launch(execution, answer)

    def _unseal(self, execution: TaskExecution) -> None:
        """Get the secrets first, on the loop; then begin as any other."""
        secrets = execution.secrets
        if self._unsealer is None:
            self._finish(execution, _CANNOT_OPEN)
            return
        self._prepare_first(execution, self._unsealer.open(execution.assignment, secrets.mask, secrets.keychain))

    def _prepare_first(self, execution: TaskExecution, arguments: Coroutine[Any, Any, dict[str, Any]]) -> None:
        self._track(execution)
        execution.coroutine = arguments
        execution.task = asyncio.get_running_loop().create_task(self._prepare(execution, arguments))

    async def _prepare(self, execution: TaskExecution, coroutine: Coroutine[Any, Any, dict[str, Any]]) -> None:
        execution.take_up()
        try:
            arguments = await coroutine
        except BaseException as error:
            self._finish(execution, self._outcome_of_error(execution, error))
            return
        execution.task = execution.coroutine = None
        if execution.stopped is not None:
            self._finish(execution, execution.stopped)
            return
        try:
            execution.take(arguments)
        except Exception as error:
            self._finish(execution, execution.failure(error))
            return
        sizes = len(execution.assignment.arguments), len(execution.assignment.input)
        if execution.mode is _INLINE and max(sizes) > _MUCH:
            execution.mode = _THREAD  # its result may be as large
        self._admit(execution)

    def _outcome_of_error(self, execution: TaskExecution, error: BaseException) -> Outcome:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and execution.stopped is None and task and task.cancelling():
            # Not our doing: the loop is being shut down. The task did not end, it will be delivered again.
            execution.is_over = True
            raise error
        return execution.failure(error)

    def _launch(self, execution: TaskExecution, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._track(execution)
        execution.coroutine = coroutine
        execution.task = asyncio.get_running_loop().create_task(self._drive(execution, coroutine))

    async def _drive(self, execution: TaskExecution, coroutine: Coroutine[Any, Any, Any]) -> None:
        execution.take_up()
        try:
            value = await coroutine
            if execution.mode is not _ISOLATED and jsontext.is_large(value):
                outcome = await asyncio.to_thread(execution.settle_aside, value)
            else:
                outcome = value if execution.mode is _ISOLATED else to_outcome(value, execution.limit)
        except BaseException as error:
            outcome = self._outcome_of_error(execution, error)
        self._finish(execution, outcome)

    async def _isolate(self, execution: TaskExecution) -> Outcome:
        from perdure.providers.isolation.pool import ProcessPools

        if self._pools is None:
            self._pools = ProcessPools(
                idle_children=self._limits.processes,
                limit_apart=self._limits.processes_apart,
                calls_per_child=self._limits.tasks_per_process,
                memory=self._limits.process_memory,
                grace=self._limits.grace / 2,  # killed before it would be given up
            )
        order, provider = execution.order(self._registry.sources), execution.provider
        key = "" if provider.turn_key is None else provider.turn_key(execution.arguments)
        return await self._pools.run(order, provider, key, execution.answer, execution.hear)

    def _track(self, execution: TaskExecution) -> None:
        self._executions[_key(execution.assignment)] = execution

    def _arm(self, execution: TaskExecution, deadline: Instant) -> bool:
        remaining = (deadline - self._now()) / SECOND
        if remaining <= 0:
            self._finish(execution, _EXPIRED)
            return False
        if execution.mode is not _INLINE or execution.assignment.sealed:
            execution.expiry = self._deadlines.add(execution, remaining)
        return True

    def _stop(self, execution: TaskExecution, verdict: Outcome) -> None:
        if execution.stopped is not None or execution.is_over:
            return
        execution.stopped = verdict
        if execution.expiry:
            self._deadlines.remove(execution)
        if execution.cancellation is not None:
            execution.cancellation.request()
        if execution.provider.carries_streams and execution.has_begun and not self._is_closed:
            return  # what it has may flow; it ends by itself
        if execution.task is not None:
            execution.task.cancel()
            if execution.coroutine is not None and getcoroutinestate(execution.coroutine) == CORO_CREATED:
                # A task cancelled before its first step ends without entering `_drive`: nobody else would report it.
                execution.coroutine.close()
                self._finish(execution, verdict)
                return
        elif not execution.can_be_cancelled:
            self._abandon(execution)  # nothing is won by waiting
            return
        execution.timer = asyncio.get_running_loop().call_later(self._limits.grace, self._abandon, execution)

    def _abandon(self, execution: TaskExecution) -> None:
        is_in_thread = execution.has_begun and execution.task is None and not execution.is_over
        if is_in_thread and self._threads is not None:
            self._threads.give_up(execution)
        self._finish(execution, Cancelled())

    def _finish(self, execution: TaskExecution, outcome: Outcome) -> None:
        if execution.is_over:
            return  # a late answer of something given up
        execution.end()
        if execution.expiry:
            self._deadlines.remove(execution)
        if execution.timer is not None:
            execution.timer.cancel()
        key = _key(execution.assignment)
        if self._executions.get(key) is execution:
            del self._executions[key]
        self._masks.report(execution.family, execution.secrets.mask, execution.stopped or outcome, execution.done)
        if self._is_closed:
            return
        if execution.group and (group := self._groups.get(execution.group)) is not None:
            group.leave(execution)
        if (language := self._languages.get(execution.assignment.language)) is not None:
            language.leave(execution)


def _key(assignment: Assignment) -> _Key:
    return (assignment.run, assignment.task, assignment.attempt, assignment.delivery)
