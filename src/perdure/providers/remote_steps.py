"""Streaming steps that are done by workers elsewhere, and workers that wait for one (STR-112).

    the topology: `request` ─▶ a step without a worker ┐
                                                       ├─▶ the step has the worker's connection
    the server:   `take`    ─▶ a worker without a step ┘

Both are in one process: a step is given to a worker that is connected to the server which carries its topology.
"""

import asyncio
from collections.abc import Collection
from typing import Any, Protocol

import msgspec

Frame = dict[str, Any]


class StreamConnectionLost(ConnectionError):
    """The worker is not there any more, or was told to go."""


class WorkerConnection(Protocol):
    """One worker that does one step. Frames are JSON objects with a member `type`."""

    worker: str
    frame_size: int  # bytes of the frame that was received last

    async def send(self, frame: Frame) -> None:
        """Raises `StreamConnectionLost`."""

    async def receive(self) -> Frame:
        """Raises `StreamConnectionLost`."""

    async def close(self) -> None: ...


class Offer(msgspec.Struct, frozen=True):
    """What a worker is ready to do: providers by their short names, of these pools; None: in every namespace."""

    pools: Collection[str]
    providers: Collection[str]
    namespaces: Collection[str] | None = None


def lack_of(pool: str, provider: str) -> str:
    return f"no streaming worker of pool {pool} offers {provider}"


class RemoteStep:
    """A step that waits for a worker. `connection` is done when there is one."""

    def __init__(self, namespace: str, pool: str, provider: str, run: str, name: str) -> None:
        self.namespace = namespace
        self.pool = pool
        self.provider = provider
        self.run = run
        self.name = name
        self.connection: asyncio.Future[WorkerConnection] = asyncio.get_running_loop().create_future()

    @property
    def lack(self) -> str:
        """Why it waits: a worker that offers it gets it at once."""
        return lack_of(self.pool, self.provider)

    def fits(self, offer: Offer) -> bool:
        return (
            self.pool in offer.pools
            and self.provider in offer.providers
            and (offer.namespaces is None or self.namespace in offer.namespaces)
        )


class RemoteSteps:
    """Steps and workers of this process that wait for each other, each in the order in which they came."""

    def __init__(self) -> None:
        self._steps: list[RemoteStep] = []
        self._workers: list[tuple[Offer, asyncio.Future[RemoteStep]]] = []

    @property
    def waiting(self) -> list[RemoteStep]:
        return list(self._steps)

    def request(self, step: RemoteStep) -> None:
        """A step needs a worker."""
        if not self._is_given(step):
            self._steps.append(step)

    def withdraw(self, step: RemoteStep) -> None:
        """The step needs none any more."""
        if step in self._steps:
            self._steps.remove(step)

    async def take(self, offer: Offer) -> RemoteStep:
        """The next step that fits; whoever takes it gives it a connection."""
        step = next((step for step in self._steps if step.fits(offer)), None)
        if step is not None:
            self._steps.remove(step)
            return step
        future: asyncio.Future[RemoteStep] = asyncio.get_running_loop().create_future()
        entry = offer, future
        self._workers.append(entry)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and not self._is_given(future.result()):  # nobody will connect
                self._steps.insert(0, future.result())
            raise
        finally:
            if entry in self._workers:
                self._workers.remove(entry)

    def _is_given(self, step: RemoteStep) -> bool:
        """Whether a worker was waiting for it. Only what is new is compared: there may be thousands of both."""
        entry = next((entry for entry in self._workers if step.fits(entry[0]) and not entry[1].done()), None)
        if entry is not None:
            self._workers.remove(entry)
            entry[1].set_result(step)
        return entry is not None


remote_steps = RemoteSteps()
"""Those of this process."""
