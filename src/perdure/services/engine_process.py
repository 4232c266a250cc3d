"""One of the other processes of `perdure.Engine(processes=N)`: its messages, and what it does.

    this program, with an engine ──ProcessSetup, NewRunOrder, CodeOrder, LookOrder──▶ process 2 … N, with an engine
                                 ◀──ProcessReady, RunBegun, RunEndNotice──

Each has a whole engine with runs of its own, so no promise depends on these messages: they deal out starts, and tell
early what the store tells as well. It is a new interpreter, because a program that embeds an engine has threads and
cannot be forked; so it has to import all code. When the program ends, however it ends, the socket does, and so does
this process, in order.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.clock import SystemClock
from perdure.engine.decision_threads import collect_seldom
from perdure.engine.runs.document_start import StartRequest
from perdure.engine.settings import Settings
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import PerdureError
from perdure.kernel.ids import ServerGroup
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Outcome, Status
from perdure.providers.isolation.frames import FrameReader, encode_frame
from perdure.providers.policy import Policy, use_policy
from perdure.providers.registry import shared
from perdure.providers.source_loading import LoadError, load

if TYPE_CHECKING:
    from perdure.engine.runs.run_waiters import Ended
    from perdure.wiring import Engine

_log = logging.getLogger("perdure.engine")


class CodeOrder(msgspec.Struct, array_like=True, tag=1):
    """Import this; then these providers are there."""

    sources: list[str]
    modules: list[str]
    providers: list[str]
    declared: dict[str, Any]  # providers of workers elsewhere, and the schemas of their arguments


class ProcessSetup(msgspec.Struct, array_like=True, tag=2):
    """The first message to a process."""

    store: str
    settings: Settings
    group: ServerGroup
    import_path: list[str]
    folder: str
    policy: Policy
    languages: list[str]  # module:name of what `add_language` was given
    code: CodeOrder


class NewRunOrder(msgspec.Struct, array_like=True, tag=3):
    number: int
    run: str
    document: bytes  # or the name of its file
    is_file: bool
    input: bytes
    options: bytes
    name: str | None
    applied: list[AppliedDocument]
    chosen: str
    token: str | None
    labels: dict[str, str]
    system_labels: dict[str, str]
    seed: int | None
    namespace: str | None
    started_by: tuple[str, str]
    from_api: bool


class LookOrder(msgspec.Struct, array_like=True, tag=4):
    """A process has ended: take up what it had."""


class ProcessReady(msgspec.Struct, array_like=True, tag=5):
    """`problem`: why it cannot begin."""

    problem: str = ""


class RunBegun(msgspec.Struct, array_like=True, tag=6):
    """`run` None: it was not started here, for whatever reason."""

    number: int
    run: str | None


class RunEndNotice(msgspec.Struct, array_like=True, tag=7):
    run: str
    status: Status
    outcome: Outcome


_decoder: "msgspec.msgpack.Decoder[Any]" = msgspec.msgpack.Decoder(
    CodeOrder | ProcessSetup | NewRunOrder | LookOrder | ProcessReady | RunBegun | RunEndNotice
)


class ProcessConnection(asyncio.Protocol):
    """One end of the socket between the program and one of its processes."""

    _transport: asyncio.Transport

    def __init__(self, receive: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._reader = FrameReader(decoder=_decoder)
        self._receive, self._lost = receive, lost

    @classmethod
    async def open(
        cls, end: socket.socket, receive: Callable[[Any], None], lost: Callable[[], None]
    ) -> "ProcessConnection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(receive, lost), sock=end)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (message := self._reader.next()) is not None:
            self._receive(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()

    def send(self, message: Any) -> None:
        self._transport.write(encode_frame(message))

    def close(self) -> None:
        self._transport.close()


# In the process.


def be_engine() -> None:
    """The whole program of such a process; the standard input is the socket to whoever started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows from Ctrl-C is decided by the program
    end = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    setup = _read_setup(end)
    if setup is None:
        return
    sys.path[:] = setup.import_path
    with suppress(OSError):  # it is gone: whatever needs it will report that
        os.chdir(setup.folder)
    use_policy(setup.policy)
    try:
        import_code(setup.code)
        languages = [resolve_name(name) for name in setup.languages]
    except Exception as error:
        end.sendall(encode_frame(ProcessReady(str(error) or repr(error))))
        sys.exit(1)
    sys.exit(asyncio.run(_serve_program(end, setup, languages)))


def _read_setup(end: socket.socket) -> ProcessSetup | None:
    reader = FrameReader(decoder=_decoder)
    while (message := reader.next()) is None:
        if not (data := end.recv(1 << 16)):
            return None
        reader.feed(data)
    assert isinstance(message, ProcessSetup)
    return message


def import_code(code: CodeOrder) -> None:
    """Raises an error that says what is missing."""
    for source in (*code.sources, *code.modules):
        load(source)
    for name, parameters in code.declared.items():
        shared.declare(name, parameters)
    missing = [name for name in code.providers if not shared.knows(name)]
    if missing:
        names = ", ".join(map(repr, missing))
        raise LoadError(", ".join(code.modules), f"importing it does not register {names}")


async def _serve_program(end: socket.socket, setup: ProcessSetup, languages: list[Callable[[], Any]]) -> int:
    from perdure.wiring import Engine, add_language, open_store

    for language in languages:
        add_language(language)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    program = _Program(stop)
    connection = program.connection = await ProcessConnection.open(end, program.receive, stop.set)
    clock = SystemClock()
    try:
        store = open_store(setup.store, clock, group=setup.group)
        async with Engine(store, clock=clock, settings=setup.settings) as engine:
            program.engine = engine
            engine.runtime.hear_ends(program.tell_end)
            connection.send(ProcessReady())
            collect_seldom()
            return await _stay(engine, stop)
    except PerdureError as error:
        connection.send(ProcessReady(str(error)))
        return 1
    finally:
        connection.close()


async def _stay(engine: "Engine", stop: asyncio.Event) -> int:
    """Until it is to stop, or its engine has: then the next process opens the store anew."""
    stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            nobody = RunId("")
            stopped = engine.runtime.ended(nobody)  # fails when the engine stops
            try:
                await asyncio.wait({stopping, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    stopped.result()
            finally:
                engine.runtime.unwait(nobody, stopped)
        return 0
    except PerdureError as error:
        _log.error("the engine of this process has stopped: %s", error)
        return 1
    finally:
        stopping.cancel()


class _Program:
    """The program that has started this process, as the process sees it."""

    connection: ProcessConnection
    engine: "Engine"

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._starting: set[asyncio.Task[None]] = set()

    def tell_end(self, run: RunId, ended: "Ended") -> None:
        if "." not in run and not self._stop.is_set():  # of a run below another, its parent hears
            self.connection.send(RunEndNotice(run, *ended))

    def receive(self, message: Any) -> None:
        match message:
            case NewRunOrder():
                task = asyncio.ensure_future(self._start(message))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)
            case CodeOrder():
                try:
                    import_code(message)
                except LoadError as error:
                    _log.warning("%s", error)
            case LookOrder():
                self.engine.runtime.look_for_orphans()

    async def _start(self, order: NewRunOrder) -> None:
        run: str | None = None
        try:
            handle = await self.engine.start(
                os.fsdecode(order.document) if order.is_file else order.document,
                jsontext.decode(order.input),
                options=jsontext.decode(order.options),
                name=order.name,
                applied=order.applied,
                chosen=order.chosen,
                token=order.token,
                labels=order.labels,
                system_labels=order.system_labels,
                seed=order.seed,
                namespace=order.namespace,
                started_by=order.started_by,
                from_api=order.from_api,
                request=StartRequest(order.run, b""),
            )
            run = handle.id
        except Exception as error:  # the program tries it itself, and tells the caller what is wrong
            _log.debug("a start was refused: %s", error)
        if not self._stop.is_set():
            self.connection.send(RunBegun(order.number, run))
