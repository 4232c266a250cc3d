"""Built-in steps of a topology: the hub does them for every packet (STR-057, 058, 134)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.dialects.story.resources.durations import BadDuration, read_duration, read_positive
from perdure.dialects.story.resources.resource import merged
from perdure.dialects.story.steps.stop import stop_phase
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.streams.expressions import render_static
from perdure.services.story.streams.stream_session import StreamSession
from perdure.services.story.streams.worker_context import InboundMessage
from perdure.streams.stream_graph import StreamStep
from perdure.streams.stream_messages import ERROR, StreamMessage, error_payload

if TYPE_CHECKING:
    from perdure.services.story.streams.live_topology import LiveTopology


async def run(topology: "LiveTopology", plan: StreamStep, session: StreamSession) -> None:
    await _KINDS[plan.kind](topology, plan, session)


async def _pass_on(topology: "LiveTopology", plan: StreamStep, session: StreamSession) -> None:
    """`condition`, and both ends of `parallel`: every packet goes on unchanged."""
    while (inbound := await session.next()) is not None:
        inbound.staged.append(_copy(inbound.packet.message))
        await session.finish(inbound)


def _copy(message: StreamMessage, **changes: Any) -> StreamMessage:
    return msgspec.structs.replace(message, inputs=None if message.payload is not None else message.inputs, **changes)


def _settings(topology: "LiveTopology", plan: StreamStep, inbound: InboundMessage) -> dict[str, Any]:
    """The step's `with`, with its rendered `runtime` over it."""
    settings: dict[str, Any] = merged(_with(topology, plan), inbound.inputs or {})
    return settings


def _with(topology: "LiveTopology", plan: StreamStep) -> dict[str, Any]:
    """The `with` of the step, which only reads the inputs of the run."""
    return dict(render_static(topology.task["templates"][plan.name]["with"], topology.task["inputs"]))


class _InOrder:
    """Work on many packets at a time; those of one partition go on in the order in which they came."""

    def __init__(self, session: StreamSession) -> None:
        self._session = session
        self._last: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, inbound: InboundMessage, work: Awaitable[StreamMessage]) -> None:
        partition = inbound.packet.partition
        task = asyncio.get_running_loop().create_task(self._go_on(inbound, work, self._last.get(partition)))
        self._last[partition] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget(partition, done))

    def _forget(self, partition: str, task: asyncio.Task[None]) -> None:
        """Packets name their partitions: those without work are not remembered."""
        if self._last.get(partition) is task:
            del self._last[partition]

    async def _go_on(
        self, inbound: InboundMessage, work: Awaitable[StreamMessage], before: "asyncio.Task[None] | None"
    ) -> None:
        message = await work
        if before is not None:
            await before
        inbound.staged.append(message)
        await self._session.finish(inbound)

    async def settle(self) -> None:
        """Raise what went wrong, and forget what is over."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            await task

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _work_in_order(session: StreamSession, work: Callable[[InboundMessage], Awaitable[StreamMessage]]) -> None:
    in_order = _InOrder(session)
    try:
        while (inbound := await session.next()) is not None:
            session.keep_open(inbound)
            in_order.add(inbound, work(inbound))
            await in_order.settle()
        await in_order.finish()
    finally:
        in_order.cancel()


async def _sleep(topology: "LiveTopology", plan: StreamStep, session: StreamSession) -> None:
    """Delay each packet, from when it arrived here; a packet that comes again does not begin anew."""

    async def delayed(inbound: InboundMessage) -> StreamMessage:
        text = _settings(topology, plan, inbound).get("duration")
        try:
            duration = read_duration(text)
        except BadDuration as problem:
            return _error(inbound, str(problem))
        until = inbound.packet.at + duration
        await asyncio.sleep(max(0, until - topology.now()) / SECOND)
        return _copy(inbound.packet.message)

    await _work_in_order(session, delayed)


async def _stop(topology: "LiveTopology", plan: StreamStep, session: StreamSession) -> None:
    from perdure.services.story.streams.workers import StopRequest

    inbound = await session.next()
    if inbound is None:
        return
    phase, message = stop_phase(_settings(topology, plan, inbound), plan.name)
    await session.finish(inbound)
    if phase is None:
        raise EngramError(message, type="validation_error", exit_class="terminal")
    topology.stop_by(StopRequest(plan.name, phase.value, message))
    while (inbound := await session.next()) is not None:
        await session.finish(inbound)


async def _execute_story(topology: "LiveTopology", plan: StreamStep, session: StreamSession) -> None:
    async def executed(inbound: InboundMessage) -> StreamMessage:
        settings = _with(topology, plan)
        waits = settings.get("waitForCompletion") is not False
        inputs = merged(settings.get("with") or {}, inbound.inputs or {})
        timeout = read_positive(topology.task["messageTimeout"]) / SECOND
        return await _sub_run(topology, plan, inbound, inputs, waits=waits, timeout=timeout)

    await _work_in_order(session, executed)


async def _hybrid(topology: "LiveTopology", plan: StreamStep, session: StreamSession) -> None:
    """An Engram that is a job has a StepRun for each packet; its output is the step's payload (STR-067, 140)."""

    async def executed(inbound: InboundMessage) -> StreamMessage:
        message = await _sub_run(topology, plan, inbound, inbound.inputs, waits=True)
        if message.kind == ERROR or message.payload is None:
            return message
        return msgspec.structs.replace(message, payload=jsontext.encode(jsontext.decode(message.payload).get("value")))

    await _work_in_order(session, executed)


async def _sub_run(
    topology: "LiveTopology",
    plan: StreamStep,
    inbound: InboundMessage,
    inputs: Any,
    *,
    waits: bool,
    timeout: float | None = None,
) -> StreamMessage:
    """Start the run of a packet, or find it, and wait for it; the packet goes on with its output or an error."""
    key = f"{plan.name}/{inbound.message_id}"
    ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    topology.children[key] = ended  # before it is asked for: its end may be here first
    request = {"step": plan.name, "packet": inbound.message_id, "with": inputs, "waits": waits}
    try:
        answer = await topology.report({"child": request})
        if "error" in answer:
            return _error(inbound, answer["error"])
        if not waits:
            return _copy(inbound.packet.message)
        if not answer["isOpen"]:
            if "output" not in answer:
                return _error(inbound, f"sub-story run '{answer['subRun']}' did not succeed")
            return _copy(inbound.packet.message, payload=jsontext.encode(answer["output"]))
        async with asyncio.timeout(timeout):
            result = await ended
    except TimeoutError:
        return _error(inbound, f"sub-story run '{answer['subRun']}' did not end within {timeout:g} s", "timeout")
    finally:
        if topology.children.get(key) is ended:
            del topology.children[key]
    if result["phase"] != "Succeeded":
        text = result["text"] or f"sub-story run '{answer['subRun']}' did not succeed"
        return _error(inbound, text, details={"subRun": answer["subRun"]})
    return _copy(inbound.packet.message, payload=jsontext.encode(result["output"]))


def _error(inbound: InboundMessage, text: str, type: str = "execution_error", **members: Any) -> StreamMessage:
    payload = jsontext.encode(error_payload(text, type, **members))
    return _copy(inbound.packet.message, kind=ERROR, payload=payload)


_KINDS: dict[str, Callable[["LiveTopology", StreamStep, StreamSession], Awaitable[None]]] = {
    "condition": _pass_on,
    "parallel": _pass_on,
    "join": _pass_on,
    "sleep": _sleep,
    "stop": _stop,
    "executeStory": _execute_story,
    "hybrid": _hybrid,
}
