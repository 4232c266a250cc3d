"""Streaming steps from a server, for `perdure worker`: one WebSocket for each step (STR-112).

connect ─▶ `offer` ─▶ wait for a step ─▶ do it, while the next connection waits for another step
   ▲ lost: again, after a pause that grows (STR-084)
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from perdure.kernel.json_values import jsontext
from perdure.providers.remote_steps import Frame, StreamConnectionLost, WorkerConnection

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds
OPEN_TIMEOUT = 10.0
LARGEST_FRAME = 16 * 1024 * 1024
MOST_STEPS = 1_000  # steps of one worker process
REFUSED = (400, 401, 403, 404)

Perform = Callable[[WorkerConnection, Frame], Awaitable[None]]


class WorkerSocket:
    """The worker's end of one WebSocket."""

    def __init__(self, socket: Any, worker: str) -> None:
        self._socket = socket
        self.worker = worker
        self.frame_size = 0

    async def send(self, frame: Frame) -> None:
        try:
            await self._socket.send(jsontext.encode(frame).decode())
        except Exception as error:
            raise StreamConnectionLost(str(error) or type(error).__name__) from None

    async def receive(self) -> Frame:
        try:
            text = (await self._socket.recv()).encode()
            frame: Frame = jsontext.decode(text)
            self.frame_size = len(text)
        except Exception as error:
            raise StreamConnectionLost(str(error) or type(error).__name__) from None
        return frame

    async def close(self) -> None:
        with suppress(Exception):
            await self._socket.close()


class StreamWorker:
    """Waits for streaming steps of its pools, and does each one in a connection of its own."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        worker: str,
        pools: Sequence[str],
        providers: Sequence[str],
        perform: Perform,
        ca: str | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        parts = urlsplit(url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        self._url = urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/api/v1/worker/stream", "", ""))
        self._ssl = ssl.create_default_context(cafile=ca) if scheme == "wss" else None
        self._token = token
        self._offer = {"type": "offer", "worker": worker, "pools": list(pools), "providers": list(providers)}
        self._worker = worker
        self._perform = perform
        self._say = say
        self._steps: dict[asyncio.Task[None], WorkerSocket] = {}
        self._is_away = False

    @property
    def in_hand(self) -> int:
        return len(self._steps)

    async def run(self) -> None:
        """Until cancelled; steps in hand go on. A worker that is refused says so, and does no streaming steps."""
        if not self._offer["providers"]:
            return
        pause = FIRST_PAUSE
        while True:
            while len(self._steps) >= MOST_STEPS:
                await asyncio.wait(self._steps, return_when=asyncio.FIRST_COMPLETED)
            try:
                connection = await self._connect()
            except PermissionError as refusal:
                self._say(f"no streaming steps: {refusal}")
                return
            except OSError as error:
                if not self._is_away:
                    self._say(f"the server cannot be reached for streaming steps, will retry: {error}")
                self._is_away = True
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self._is_away = False
            try:
                await connection.send(self._offer)
                step = await connection.receive()
            except StreamConnectionLost:
                await connection.close()
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            except asyncio.CancelledError:
                await connection.close()
                raise
            pause = FIRST_PAUSE
            task = asyncio.ensure_future(self._do(connection, step))
            self._steps[task] = connection
            task.add_done_callback(lambda task: self._steps.pop(task, None))

    async def _connect(self) -> WorkerSocket:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        headers = {"Authorization": f"Bearer {self._token}"}
        options: dict[str, Any] = {"ssl": self._ssl} if self._ssl is not None else {}
        try:
            connecting = connect(
                self._url,
                additional_headers=headers,
                open_timeout=OPEN_TIMEOUT,
                max_size=LARGEST_FRAME,
                compression=None,
                proxy=None,
                **options,
            )
            # Nobody else gets our token, whatever the server says.
            connecting.process_redirect = lambda refusal: refusal  # type: ignore[assignment, method-assign]
            socket = await connecting
        except InvalidStatus as refusal:
            status = refusal.response.status_code
            problem = _detail(refusal.response.body)
            if status in REFUSED:
                raise PermissionError(f"the server answered {status}{problem}") from None
            raise ConnectionError(f"the server answered {status}{problem}") from None
        except (WebSocketException, TimeoutError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from None
        return WorkerSocket(socket, self._worker)

    async def _do(self, connection: WorkerSocket, step: Frame) -> None:
        try:
            await self._perform(connection, step)
        except StreamConnectionLost:
            pass
        finally:
            await connection.close()

    async def leave(self, grace: float) -> int:
        """Have other workers take the steps in hand; how many did not end in time."""
        for connection in list(self._steps.values()):
            with suppress(StreamConnectionLost):
                await connection.send({"type": "leaving"})
        left: set[asyncio.Task[None]] = set()
        if self._steps:
            _, left = await asyncio.wait(set(self._steps), timeout=grace)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)


def _detail(body: bytes | bytearray | None) -> str:
    try:
        return f": {jsontext.decode(bytes(body))['detail']}" if body else ""
    except (ValueError, KeyError, TypeError):
        return ""
