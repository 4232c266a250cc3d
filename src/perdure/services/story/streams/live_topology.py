"""A topology at work in this process: it drives the hub, writes its rows, reports to its run, and ends.

open ─▶ restore ─▶ workers ─▶ … ─▶ every worker returned ─▶ end
                              └─▶ cancelled, stopped, failed ─▶ drain ─▶ end
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

import msgspec

from perdure.dialects.story.state.folding.topologies import REPLACING
from perdure.kernel.json_values.values import RunId
from perdure.providers.context import TaskContext
from perdure.services.story.engrams.hydration import families_of
from perdure.services.story.streams.expressions import TopologyTemplates
from perdure.services.story.streams.packet_logs import packet_log
from perdure.services.story.streams.recording import PacketRecorder
from perdure.services.story.streams.stream_session import StreamSession
from perdure.services.story.streams.topology_stop import TopologyStop
from perdure.services.story.streams.worker_context import StreamContext
from perdure.services.story.streams.workers import StopRequest, WorkerTask
from perdure.streams.guards import HubCapacity, HubGuards, capacity_of
from perdure.streams.hub import STEP_READY, STORY_READY, Hub, StaleSession
from perdure.streams.stream_graph import JOIN, SECOND, read_topology
from perdure.streams.stream_messages import StreamMessage, read_message

_log = logging.getLogger("perdure.stream")

TICK = 0.1  # seconds between looks at what time brings
UNHURRIED = 0.02  # seconds that changes wait for others if nobody waits for them; a packet done by then is not written
REPORT_EVERY = 1.0  # seconds between two writings of the numbers

GUARDS = HubGuards()

TOPOLOGIES: dict[RunId, "LiveTopology"] = {}
"""The topologies of this process, by run: whoever has something for one finds it here."""


class LiveTopology:
    def __init__(self, context: TaskContext, task: dict[str, Any]) -> None:
        self._context = context
        self.task = task
        self.run: dict[str, str] = task["storyRun"]
        self.families = families_of(task, context.run)
        readable = None if task.get("offloadedData") == "error" else self.families
        self.templates = TopologyTemplates(task["templates"], task["inputs"], readable)
        identity = {"name": self.run["name"], "namespace": self.run["namespace"]}
        self.hub = Hub(read_topology(task["topology"]), self.templates, identity)
        self._log = packet_log(context, task, self.hub)
        self.writes_everything = self._log.writes_everything
        self.redact = context.secrets.redact
        self.hides = bool(getattr(getattr(context.secrets, "mask", None), "hides", False))
        self.sessions: dict[str, StreamSession] = {}
        self.contexts: dict[str, StreamContext] = {}
        self._workers: dict[str, WorkerTask] = {}
        self._recorder = PacketRecorder(task.get("recording") or {}, self.run, self.redact)
        self._ids = self._totals = 0
        self._generation = f"{task['life']}.{context.delivery}"  # part of every id that is made up here
        self._waiters: list[asyncio.Future[None]] = []  # for a flush
        self._held: list[asyncio.Future[None]] = []  # publishers
        self._flush_wanted = asyncio.Event()
        self._changed = asyncio.Event()  # a worker has ended
        self._spawned: set[asyncio.Task[Any]] = set()
        self._states: dict[str, str] = {}  # as reported
        self._connected: set[str] = set()
        self._handoffs: set[str] = set()  # steps whose worker is being replaced
        self._hooks: set[str] = set()
        self._ended: dict[str, dict[str, Any]] = {}
        self.stop_request: StopRequest | None = None
        self._fault: BaseException | None = None
        self._stop = TopologyStop(self, context, self._workers)
        self.children: dict[str, asyncio.Future[dict[str, Any]]] = {}
        checkpoints = [plan.settings.checkpoint for plan in self.hub.graph.steps.values() if plan.settings.is_durable]
        self._checkpoint = min(checkpoints, default=0) / SECOND
        self.hang_limit: float = task.get("hangTimeout", 0) / SECOND  # seconds; 0: none

    def now(self) -> int:
        return time.time_ns() // 1_000

    def new_id(self, step: str) -> str:
        self._ids += 1
        return f"{step}-{self._generation}-{self._ids}"

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: "asyncio.Task[Any]") -> None:
        self._spawned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, StaleSession):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if self._fault is None:
            self._fault = error
        self._changed.set()

    # The life of the topology.

    async def carry(self) -> dict[str, Any]:
        run = RunId(self._context.run)
        services = [self.spawn(self._flush()), self.spawn(self._tick()), self.spawn(self._stop.watch())]
        try:
            if not await self._is_admitted():
                return {}
            TOPOLOGIES[run] = self
            await self._open()
            await self._live()
            return await self._close()
        finally:
            GUARDS.leave(run)
            if TOPOLOGIES.get(run) is self:
                del TOPOLOGIES[run]
            for task in (*services, *(worker.task for worker in self._workers.values())):
                task.cancel()
            futures: list[asyncio.Future[Any]] = [*self._waiters, *self._held, *self.children.values()]
            for future in futures:
                future.cancel()
            await self._log.close()

    async def report(self, body: dict[str, Any]) -> Any:
        return await self._context.report({"stream": body})

    async def _is_admitted(self) -> bool:
        """Wait for room in this process (STR-078); False: the topology is to end before there is any."""
        need, limit = capacity_of(self.hub.graph), HubCapacity(**self.task["guards"])
        while not GUARDS.admit(self._context.run, need, limit, self.check):
            await self.report({"queued": f"Queued: no room for {need.streams} streams and {need.buffers} buffers"})
            await self._changed.wait()
            self._changed.clear()
            if self._fault is not None:
                raise self._fault
            if self._stop.is_draining:
                return False
        return True

    async def _open(self) -> None:
        known = await self.report({"opened": True})
        self._hooks = set(known["hooks"])
        self.hub.restore(await self._log.open(), self.now())
        graph = self.hub.graph.steps
        ended = {name for name in known["ended"] if name in graph}
        for name in ended:
            self.hub.close(name, self.now())
        for name, plan in graph.items():
            if plan.public_name not in ended:
                self._workers[name] = WorkerTask(self, self._context, name, plan)
        for worker in self._workers.values():
            worker.connect()
        for worker in self._workers.values():
            worker.start()

    async def _live(self) -> None:
        """Until every worker has ended, or the topology is asked to."""
        while not self._is_over():
            await self._changed.wait()
            self._changed.clear()
            await self._report_ends()
            if self.stop_request is not None or self._has_failed():
                self._stop.drain()

    def check(self) -> None:
        """Have the life of the topology looked at: something has changed."""
        self._changed.set()

    def _is_over(self) -> bool:
        if self._fault is not None:
            raise self._fault
        if self._stop.is_handing_over:
            return False
        open_workers = [worker for worker in self._workers.values() if not worker.has_ended]
        if not open_workers:
            return True
        # A built-in step without upstreams is fed by hooks alone: it does not keep a topology alive.
        if all(worker.is_fed_by_hooks for worker in open_workers):
            for worker in open_workers:
                worker.session_stop()
        return False

    def _has_failed(self) -> bool:
        topology = self.hub.graph.topology
        return any(
            worker.failure is not None and not worker.plan.allow_failure and not topology.continues_on_failure
            for worker in self._workers.values()
        )

    async def _close(self) -> dict[str, Any]:
        await self._report_notices(is_last=True)
        ends = [worker.end() for name, worker in self._workers.items() if name not in self._ended]
        await self._log.clear()
        if self._context.cancelled and ends:  # the result of a cancelled task does not count: it is reported
            await self.report({"ended": [end for end in ends if end is not None]})
            return {}
        stop = None if self.stop_request is None else msgspec.to_builtins(self.stop_request)
        return {"ended": [end for end in ends if end is not None], "stop": stop}

    async def _report_ends(self) -> None:
        """Workers that have ended on their own are final at once; built-in steps end with the topology."""
        ends = []
        for name, worker in () if self._stop.is_handing_over else self._workers.items():
            is_final = worker.has_ended and name not in self._ended and worker.is_engram
            is_final = is_final and (worker.failure is not None or worker.returned_itself)
            if is_final and (end := worker.end()) is not None:
                self._ended[name] = end
                ends.append(end)
        if ends and not all(worker.has_ended for worker in self._workers.values()):  # else the result says it anyway
            await self.report({"ended": ends})
        elif ends:
            for end in ends:
                del self._ended[end["step"]]

    # Workers come and go.

    def connected(self, name: str, session: StreamSession, context: StreamContext) -> None:
        self.sessions[name] = session
        self.contexts[name] = context
        self._handoffs.discard(name)
        is_new = name not in self._connected
        self._connected.add(name)
        self.wake()
        if is_new:
            self.spawn(self._greet(name))

    async def _greet(self, name: str) -> None:
        """Report that the worker is here, then send the hooks that ask for it, once (STR-079, 080)."""
        plan = self.hub.graph.steps[name]
        if self._workers[name].is_engram:
            self._states[name] = "ready"
            await self.report({"states": [{"step": name, "state": "ready"}]})
            await self._fire(STEP_READY, plan.public_name)
        if all(other in self._connected for other, worker in self._workers.items() if worker.is_engram):
            await self._fire(STORY_READY, "")

    async def _fire(self, event: str, step: str) -> None:
        key = f"{event}:{step}"
        if key in self._hooks:
            return
        self._hooks.add(key)
        targets = [plan.public_name for plan in self.hub.graph.steps.values() if event in plan.hooks]
        if targets and await self.report({"hook": {"event": event, "step": step, "targets": targets}}):
            self.hub.fire_hook(event, step, self.now())
            self.wake()

    def worker_ended(self, name: str) -> None:
        if self._stop.is_handing_over:  # its step goes on with the next owner
            return
        if self._has_failed():  # before those below it hear that it is closed
            self._stop.drain()
        self.hub.close(name, self.now())
        self.wake()
        self._changed.set()

    def stop_by(self, request: StopRequest) -> None:
        if self.stop_request is None:
            self.stop_request = request
            self._changed.set()

    # Waking, flushing, time.

    def wake(self) -> None:
        """Tell workers that something waits for them, and publishers that they may go on."""
        hub = self.hub
        if self.writes_everything and hub.rows:
            self._flush_wanted.set()
        if hub.woken:
            for name in hub.woken:
                session = self.sessions.get(name)
                if session is not None:
                    session.wake()
            hub.woken.clear()
        if hub.released:
            hub.released = False
            held, self._held = self._held, []
            for future in held:
                if not future.done():
                    future.set_result(None)

    def wait_released(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(future)
        return future

    def flushed(self) -> "asyncio.Future[None]":
        """Done once everything that the hub has decided so far is kept."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._flush_wanted.set()
        return future

    async def _flush(self) -> None:
        while True:
            await self._flush_wanted.wait()
            if not self._waiters and self.writes_everything:
                await asyncio.sleep(UNHURRIED)
            self._flush_wanted.clear()
            waiters, self._waiters = self._waiters, []
            changes = self.hub.take_changes()
            try:
                if changes:
                    await self._log.write(changes)
            except BaseException as error:
                for future in waiters:
                    future.cancel()
                self.fail(error)
                raise
            for future in waiters:
                if not future.done():
                    future.set_result(None)

    async def _tick(self) -> None:
        reported_at = checkpointed_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            self.hub.tick(self.now())
            self.wake()
            at = time.monotonic()
            if self._checkpoint and at - checkpointed_at >= self._checkpoint:
                checkpointed_at = at
                self._flush_wanted.set()
            if at - reported_at >= REPORT_EVERY:
                reported_at = at
                await self._note_numbers()
                await self._report_notices()
                await asyncio.to_thread(self._recorder.write)

    async def _note_numbers(self) -> None:
        """Have the numbers of all steps written, if they have changed (STR-100)."""
        states = {name: inlet.state for name, inlet in self.hub.inlets.items()}
        before, numbers = self._totals, [state.counters for state in states.values()]
        self._totals = sum(counters.received + counters.published + counters.acked for counters in numbers)
        if self._totals == before:
            return
        for name in self.hub.inlets:
            self.hub.rows.touch(name)
        self._flush_wanted.set()
        await self._log.show_numbers(states)

    def note_worker(self, step: str, *, worker: str = "", awaits: str = "") -> None:
        """Who does the step elsewhere, or why nobody does; written with the next numbers."""
        state = self.hub.inlets[step].state
        state.worker, state.awaits, state.since, self._totals = worker, awaits, self.now(), -1

    async def note_handoff(self, step: str, message: str) -> None:
        """The worker of a step is being replaced; the message says how far that is (STR-088)."""
        self._handoffs.add(step)
        self._states[step] = message  # whatever it is next is told
        state = "ready" if message == REPLACING else "draining"
        await self.report({"states": [{"step": step, "state": state, "message": message}]})

    async def _report_notices(self, *, is_last: bool = False) -> None:
        states = []
        for name, worker in self._workers.items():
            state = "ready" if worker.is_connected else "connecting"
            is_open = worker.is_engram and not worker.has_ended and name not in self._handoffs
            if is_open and self._states.get(name, state) != state:
                self._states[name] = state
                message = "" if worker.last_error is None else f"lost: {worker.last_error}"
                states.append({"step": name, "state": state, "message": message})
        notices = [
            {**msgspec.to_builtins(notice), "step": notice.step.removesuffix(JOIN)}
            for notice in self.hub.notices.take(self.now(), is_last=is_last)
        ]
        if notices or (states and not is_last):
            await self.report({"notices": notices, "states": [] if is_last else states})
        if is_last:
            await asyncio.to_thread(self._recorder.write, is_last=True)

    # From outside.

    def takes(self, step: str) -> bool:
        """Whether the step is there; one whose workers are elsewhere also before one has come."""
        return step in self.sessions or (step in self._workers and self._workers[step].is_remote)

    async def receive(self, step: str, value: Any) -> None:
        """Take a packet from outside; returns once it is kept, where it is (STR-092, 121)."""
        message = value if isinstance(value, StreamMessage) else read_message(value, "", self.now() // 1_000)
        is_explicit = bool(message.id)
        if not is_explicit:
            message.id, message.origin = self.new_id(step), step
        while not self.hub.may_receive(step, message):
            await self.wait_released()
        self.hub.receive(step, message, self.now(), is_explicit=is_explicit)
        self.wake()
        if self.hub.graph.steps[step].settings.is_durable:
            await self.flushed()

    def child_ended(self, key: str, result: dict[str, Any]) -> None:
        future = self.children.pop(key, None)
        if future is not None and not future.done():
            future.set_result(result)

    def record(self, step: str, message: StreamMessage) -> None:
        if self._recorder.is_on:
            self._recorder.add(step, message, self.hub.inlets[step].counters)
