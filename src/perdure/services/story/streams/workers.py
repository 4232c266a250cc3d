"""Workers of a topology: how the code of each step runs, is retried, and ends.

connecting ─▶ at work ─▶ returned | failed | closed
                └─ raised ─▶ (retry policy of the step) ─▶ connecting
"""

import asyncio
from collections.abc import Coroutine
from random import random
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.dialects.story.plan.execution_policy import Retry
from perdure.dialects.story.run.attempts import RETRIED
from perdure.dialects.story.values.engram_contract import classify_failure
from perdure.dialects.story.views.stream_views import shown_stream
from perdure.kernel.documents.lookups import FROM_API, ORIGIN
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.providers.context import TaskContext
from perdure.providers.policy import of_api_document, refusal_in_force
from perdure.providers.remote_steps import StreamConnectionLost
from perdure.providers.task_outcomes import describe
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.hydration import hydrate_inputs
from perdure.services.story.engrams.registry import shared_engrams
from perdure.services.story.streams import built_in_steps
from perdure.services.story.streams.command_worker import run_command
from perdure.services.story.streams.function_worker import is_plain, run_function
from perdure.services.story.streams.remote_worker import ReadyWorker, RemoteConversation, RemoteStepOfTopology
from perdure.services.story.streams.stream_session import StreamSession
from perdure.services.story.streams.worker_context import StreamContext
from perdure.streams.hub import Draining, StaleSession
from perdure.streams.stream_graph import JOIN, StreamStep

if TYPE_CHECKING:
    from perdure.services.story.streams.live_topology import LiveTopology

COMMAND = "engram.command"


class WorkerTask:
    """One step of the topology at work."""

    def __init__(self, topology: "LiveTopology", context: TaskContext, name: str, plan: StreamStep) -> None:
        self.plan = plan
        self._topology = topology
        self._context = context
        self._name = name
        self._spec: dict[str, Any] = topology.task["workers"].get(name, {})
        self.is_engram = bool(self._spec)
        self._session: StreamSession | None = None
        self._remote = RemoteStepOfTopology(topology, name, self._spec) if self._spec.get("pool") else None
        self._is_closing = False
        handoff = self._spec.get("handoff") or {"drain": topology.task["drain"]}
        self.drain: float = min(handoff["drain"], topology.task["drain"]) / SECOND  # seconds for what it has in hand
        self.task: asyncio.Task[None]
        self.failure: dict[str, Any] | None = None
        self.last_error: str | None = None
        self.has_ended = self.returned_itself = self.is_connected = False

    @property
    def is_remote(self) -> bool:
        return self._remote is not None

    @property
    def is_fed_by_hooks(self) -> bool:
        return not self.is_engram and not self.plan.needs

    def connect(self) -> None:
        """Every worker is connected before any of them works: nothing is published to a step that is about to come."""
        if self._remote is None:
            self._session = StreamSession(self._topology, self._name)

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._run())

    def session_stop(self) -> None:
        if self._session is not None:
            self._session.stop()
        elif self._remote is not None and self._remote.is_waiting:
            self._is_closing = True
            self.task.cancel()

    def close(self) -> None:
        """End without another message; what waits for something else is cancelled."""
        if self.has_ended or self._is_closing:
            return
        self._is_closing = True
        self.session_stop()
        if self._session is None or not self.plan.needs or self._topology.hub.inlets[self._name].pending:
            self.task.cancel()

    def leave(self) -> None:
        """End now: what is in hand and not done comes again with the next owner of the run."""
        if not self._is_closing:
            self._is_closing = True
            self.task.cancel()

    def abandon(self) -> None:
        self.task.cancel()
        self._end()

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.is_connected = False
            self._topology.worker_ended(self._name)

    def end(self) -> dict[str, Any] | None:
        """How the step has ended, as the run records it; None for the inner part of a parallel step."""
        hub, name, stop = self._topology.hub, self._name, self._topology.stop_request
        if self.plan.kind == "join":
            return None
        output = hub.outputs.get(f"{name}{JOIN}") or hub.outputs.get(name)
        end: dict[str, Any] = {
            "step": name,
            "stream": shown_stream(hub.inlets[name].state, "closed"),
            "output": None if output is None else jsontext.decode(output),
        }
        if self.failure is not None:
            return end | {"phase": "Failed", "message": self.failure["message"], "error": self.failure}
        if stop is not None and stop.step == name:
            return end | {"phase": stop.phase, "message": stop.message}
        if not self.is_engram:
            return end | {"phase": "Succeeded", "message": "The topology has ended."}
        if self.returned_itself:
            return end | {"phase": "Succeeded", "message": "StepRun completed successfully."}
        return end | {"phase": "Finished", "message": "Closed with the topology"}

    async def _run(self) -> None:
        retries = 0
        try:
            while True:
                worker = None if self._remote is None else await self._next_worker(self._remote)
                session = self._session or StreamSession(self._topology, self._name)
                self._session = session
                try:
                    await self._attempt(session, worker)
                    self.returned_itself = not self._topology.hub.is_draining
                    return
                except (StaleSession, Draining):
                    return
                except StreamConnectionLost as lost:  # another worker goes on
                    self._lose(str(lost))
                except Exception as error:
                    retries = 0 if session.has_done else retries
                    retries += 1
                    if not await self._recover(error, retries):
                        return
        except asyncio.CancelledError:
            if not self._is_closing and not self._topology.hub.is_draining:
                raise
        finally:
            self._end()

    async def _next_worker(self, remote: RemoteStepOfTopology) -> ReadyWorker:
        self._topology.note_worker(self._name, awaits=remote.lack)
        worker = await remote.next_worker()
        self._topology.note_worker(self._name, worker=f"{worker.connection.worker} of pool {self._spec['pool']}")
        return worker

    async def _attempt(self, session: StreamSession, worker: ReadyWorker | None) -> None:
        task = {**self._spec.get("task", {})}
        loop = asyncio.get_running_loop()
        function = shared_engrams.streaming.get(self._spec.get("provider", ""))
        context = StreamContext(self._context, task, session, loop if function and is_plain(function) else None)
        try:
            if not self.is_engram:
                self._enter(session, context)
                await built_in_steps.run(self._topology, self.plan, session)
                return
            if self._remote is not None and worker is not None:
                if worker.failure is not None:
                    raise worker.failure
                self._enter(session, context)
                await self._watched(
                    RemoteConversation(self._remote, worker, session, self._topology).hold(self._context), session
                )
                return
            config = hydrate_inputs(task, self._context.secrets, context.namespace, self._context.run)
            if self._spec["provider"] == COMMAND:
                self._may_run(COMMAND)
                work = run_command(self._context, task, config, session, lambda: self._enter(session, context))
            elif function is None:
                raise EngramError(f"no loaded code implements {self._spec['provider']}", type="initialization_error")
            else:
                self._enter(session, context)
                work = run_function(function, config, session, context)
            await self._watched(work, session)
        finally:
            self.is_connected = False
            if context.logbook is not None:
                await context.report_log()

    def _enter(self, session: StreamSession, context: StreamContext) -> None:
        """The worker is ready: its code is entered, with a valid configuration (STR-085)."""
        self.is_connected = True
        self._topology.connected(self._name, session, context)

    async def _watched(self, work: Coroutine[Any, Any, None], session: StreamSession) -> None:
        """Let the worker work. Where a limit is set, its session ends if it hangs (STR-087)."""
        limit = self._topology.hang_limit
        if not limit:
            await work
            return
        task = asyncio.get_running_loop().create_task(work)
        try:
            while not (await asyncio.wait((task,), timeout=limit / 4))[0]:
                if session.silence > limit:
                    message = f"the worker hangs: no activity for {limit:g} s, with messages in hand"
                    raise EngramError(message, type="timeout", retryable=True)
            await task
        finally:
            task.cancel()

    def _may_run(self, provider: str) -> None:
        is_from_api = of_api_document.get() or self._spec["task"].get(ORIGIN) == FROM_API
        refusal = refusal_in_force(provider, self._topology.run["namespace"], from_api=is_from_api)
        if refusal is not None:
            raise EngramError(refusal, type="initialization_error", exit_class="terminal")

    def _end_session(self) -> None:
        self._topology.hub.lose(self._name, self._topology.now())
        self._session = None
        self._topology.wake()

    def _lose(self, reason: str) -> None:
        """A worker elsewhere is gone; what it did not acknowledge waits for the next one."""
        self._end_session()
        self.last_error = reason
        name, now = self.plan.public_name, self._topology.now()
        self._topology.hub.notices.add(name, "WorkerLost", "", f"waiting for another worker: {reason}", now)

    async def _recover(self, error: Exception, retries: int) -> bool:
        """Whether the worker is to be started again, after a wait; else it has failed (STR-084, 136)."""
        self._end_session()
        outcome = self._context_failure(error)
        failure = classify_failure(outcome, expired=False)
        self.last_error = failure.error.message
        policy = Retry(**{**self._spec["retry"], "backoff": _backoff(self._spec["retry"])}) if self._spec else Retry(0)
        may_retry = failure.exit_class in RETRIED and failure.may_retry and retries <= policy.most
        if not may_retry or self._is_closing or self._topology.hub.is_draining:
            self.failure = jsontext.decode(failure.error.encode())
            return False
        self._topology.hub.notices.add(
            self.plan.public_name, "WorkerLost", "", f"the worker is started again: {self.last_error}",
            self._topology.now(),
        )  # fmt: skip
        await asyncio.sleep(policy.wait(retries, random) / SECOND)
        return True

    def _context_failure(self, error: Exception) -> Any:
        failed = describe(error, "Engram")
        return msgspec.structs.replace(failed, message=self._topology.redact(failed.message))


def _backoff(retry: dict[str, Any]) -> Any:
    from perdure.kernel.tasks.retry import Backoff

    return Backoff(retry["backoff"])


class StopRequest(msgspec.Struct, frozen=True):
    """A stop step ends the topology."""

    step: str
    phase: str
    message: str
