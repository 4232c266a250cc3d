"""`perdure.Engine(processes=N)`: N engines on one store, this one and others in processes of their own.

Starts are dealt out to all of them, and those who wait for a run hear of its end. A process that ends is started again,
and what it had is taken up by the others. See `engine_process` for what is said between them.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.random_ids import new_run_id
from perdure.engine.runs import run_views
from perdure.engine.runs.document_start import StartRequest, start_run
from perdure.engine.runs.run_waiters import Ended, RunWaiters
from perdure.engine.settings import Settings
from perdure.kernel.errors import EngineProcessesRefused, EngineStopped
from perdure.kernel.ids import ServerGroup
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.providers.isolation.frames import encode_frame
from perdure.providers.policy import policy_in_force
from perdure.providers.process import Process
from perdure.providers.registry import shared
from perdure.services.engine_process import (
    CodeOrder,
    LookOrder,
    NewRunOrder,
    ProcessConnection,
    ProcessReady,
    ProcessSetup,
    RunBegun,
    RunEndNotice,
)

if TYPE_CHECKING:
    from perdure.wiring import Engine

_log = logging.getLogger("perdure.engine")

MOST = 64
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds before a process that has ended is started again
STEADY = 30.0  # seconds after which a process that ended had worked well
STOP_TIMEOUT = 10.0  # seconds to stop in order; its runs are durable
LOOK_EVERY = 1.0  # seconds between looks at a run whose end somebody waits for: who should tell may have been killed
_PROGRAM = "from perdure.services.engine_process import be_engine; be_engine()"


def code_to_import() -> CodeOrder:
    """What another process imports to have the providers of this one; raises `EngineProcessesRefused`."""
    unfit: dict[str, str] = {}
    providers: list[str] = []
    modules: list[str] = []
    declared: dict[str, Any] = {}
    for provider in shared:
        if not shared.has_code(provider.name):
            declared[provider.name] = provider.declared
        elif not shared.can_be_imported(provider):
            unfit[provider.name] = provider.place
        elif not shared.is_installed(provider.name):
            providers.append(provider.name)
            modules.append((provider.stands_for or provider.function.call).__module__)
    if unfit:
        named = ", ".join(f"{name!r} (defined at {place})" for name, place in sorted(unfit.items()))
        raise EngineProcessesRefused(f"other processes cannot import the functions of {named}")
    return CodeOrder(list(shared.sources), list(dict.fromkeys(modules)), providers, declared)


class EngineProcess:
    """One of the other processes, as the program sees it."""

    def __init__(self, group: ServerGroup, set_up: Callable[[ServerGroup], ProcessSetup]) -> None:
        self.group = group
        self._set_up = set_up
        self._connection: ProcessConnection | None = None
        self._process: Process | None = None
        self._begun: dict[int, asyncio.Future[str | None]] = {}
        self.is_ready = False
        self.ended: Callable[[RunEndNotice], None] = lambda notice: None

    async def start(self) -> None:
        """Until its engine is open; raises `EngineProcessesRefused`."""
        near, far = socket.socketpair()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connection = await ProcessConnection.open(near, self._receive, self._lost)
        setup = self._set_up(self.group)
        self._connection.send(setup)
        # A session of its own: a terminal's Ctrl-C is for the program, which stops the others.
        argv = [sys.executable, "-P", "-c", _PROGRAM]
        self._process = await Process.start(argv, stdin=far.detach(), stdout=_inherited(1), stderr=_inherited(2))
        if problem := await self._answer:
            await self._process.exited
            raise EngineProcessesRefused(f"process {self.group.place + 1} of {self.group.size} {problem}")
        self.is_ready = True
        if (code := self._set_up(self.group).code) != setup.code:  # some was loaded meanwhile
            self.send(code)

    def _receive(self, message: Any) -> None:
        match message:
            case RunBegun(number, run):
                if (future := self._begun.pop(number, None)) is not None and not future.done():
                    future.set_result(run)
            case RunEndNotice():
                self.ended(message)
            case ProcessReady(problem):
                if not self._answer.done():
                    self._answer.set_result(problem and f"cannot begin: {problem}")

    def _lost(self) -> None:
        self.is_ready = False
        if not self._answer.done():
            self._answer.set_result("ended before it was ready")
        for future in self._begun.values():
            if not future.done():
                future.set_result(None)
        self._begun.clear()

    async def begin(self, order: NewRunOrder) -> str | None:
        """The run, which is on disk; None: it is not known to be."""
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._begun[order.number] = future
        try:
            self.send(order)
            return await future
        finally:
            self._begun.pop(order.number, None)

    def send(self, message: Any) -> None:
        assert self._connection is not None
        self._connection.send(message)

    async def exited(self) -> int:
        assert self._process is not None
        return await asyncio.shield(self._process.exited)

    async def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(asyncio.shield(self._process.exited), STOP_TIMEOUT)
        except TimeoutError:
            self._process.signal(signal.SIGKILL)
            await self._process.exited


class EngineProcesses:
    """The other processes of an engine: started, watched, started again when one ends, and stopped together."""

    def __init__(
        self,
        engine: "Engine",
        store: Any,
        settings: Settings,
        count: int,
        languages: Sequence[Callable[..., Any]],
    ) -> None:
        if not 1 < count <= MOST:
            raise EngineProcessesRefused(f"{count!r} is not a number of processes (expected 1 to {MOST})")
        if not isinstance(store, str) or store.rpartition("/")[2] == ":memory:":
            raise EngineProcessesRefused(
                "several processes need the address of a store that they can share, not a store in memory or an object",
                hint="Name a SQLite file (sqlite:///runs.db) or a PostgreSQL database.",
            )
        if settings.serves or not settings.drives:
            raise EngineProcessesRefused("`processes` is not for servers: see `perdure serve --processes`")
        self._engine, self._store = engine, store
        in_flight = ceil(settings.tasks_in_flight / count)
        self.settings = msgspec.structs.replace(settings, processes=count, tasks_in_flight=in_flight)
        self._languages = [f"{language.__module__}:{language.__qualname__}" for language in languages]
        self.group = ServerGroup(secrets.token_hex(6), 0, count)
        self._places = [EngineProcess(self.group._replace(place=place), self._set_up) for place in range(1, count)]
        self._turn = self._number = 0
        self._keepers: list[asyncio.Task[None]] = []
        self._waiters = RunWaiters()
        self._has_new_code = self._begins_here = False

    def _set_up(self, group: ServerGroup) -> ProcessSetup:
        settings = msgspec.structs.replace(self.settings, place=group.place)
        policy, code = policy_in_force(), self._code
        return ProcessSetup(
            self._store, settings, group, sys.path, self._folder, policy, self._languages, code
        )  # fmt: skip

    def prepare(self) -> None:
        """Raises what keeps other processes from having the code of this one."""
        self._code, self._folder = code_to_import(), str(Path.cwd())

    async def open(self) -> None:
        for place in self._places:
            place.ended = self._note_end
        started = await asyncio.gather(*(place.start() for place in self._places), return_exceptions=True)
        for problem in started:
            if problem is not None:
                await self.close()
                raise problem
        self._keepers = [asyncio.ensure_future(self._keep(place)) for place in self._places]

    async def close(self) -> None:
        self._waiters.fail(EngineStopped("the engine was closed"))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(place.stop() for place in self._places))

    async def _keep(self, place: EngineProcess) -> None:
        clock, pause = asyncio.get_running_loop().time, FIRST_PAUSE
        while True:
            began, was_ready = clock(), place.is_ready
            code = await place.exited()
            pause = FIRST_PAUSE if was_ready and clock() - began >= STEADY else min(LONGEST_PAUSE, pause * 2)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            group = place.group
            _log.warning(
                "process %d of %d %s; it is started again in %.1f s", group.place + 1, group.size, how, pause
            )  # fmt: skip
            for other in self._ready():
                other.send(LookOrder())
            self._engine.runtime.look_for_orphans()
            await asyncio.sleep(pause)
            try:
                await place.start()
            except (EngineProcessesRefused, OSError) as error:
                _log.warning("%s", error)

    def _ready(self) -> list[EngineProcess]:
        return [place for place in self._places if place.is_ready]

    # Code that is loaded later.

    def code_changed(self, loop: asyncio.AbstractEventLoop) -> None:
        """On any thread: a provider was added."""
        self._has_new_code = True
        loop.call_soon_threadsafe(self.pass_code_on)

    def pass_code_on(self) -> None:
        if not self._has_new_code or self._begins_here:
            return
        self._has_new_code = False
        try:
            self._code = code_to_import()
        except EngineProcessesRefused as error:
            self._begins_here = True
            _log.warning("%s: from now on, runs begin in this process only", error)
            return
        for place in self._ready():
            place.send(self._code)

    # Starting runs, and waiting for them.

    async def start(self, document: Any, input: Any, **how: Any) -> RunId:
        """Begin a run in the process whose turn it is. What another process does not begin, for whatever reason, is
        begun here under the same id: if it was begun there after all, it is found.
        """
        self.pass_code_on()
        place = self._next_place()
        order = None if place is None else self._order(document, input, how)
        if place is None or order is None:
            return await start_run(self._engine, document, input, **how)
        if (run := await place.begin(order)) is not None:
            return RunId(run)
        self._engine.running().scheduler.must_run()
        return await start_run(self._engine, document, input, **how | {"request": StartRequest(order.run, b"")})

    def _next_place(self) -> EngineProcess | None:
        """None: it is the turn of this process."""
        if self._begins_here:
            return None
        for _ in range(len(self._places)):
            self._turn = (self._turn + 1) % (len(self._places) + 1)
            if self._turn == 0:
                return None
            if (place := self._places[self._turn - 1]).is_ready:
                return place
        return None

    def _order(self, document: Any, input: Any, how: Mapping[str, Any]) -> NewRunOrder | None:
        """None: it cannot be said to another process."""
        if how["request"] is not None or how["checked"] is not None or how["seen"] is not None:
            return None
        if is_file := isinstance(document, str | Path):
            if not Path(document).is_absolute() and str(Path.cwd()) != self._folder:
                return None
            document = os.fsencode(document)
        options = {name: value for name, value in how.items() if name not in ("request", "checked", "seen", "options")}
        self._number += 1
        try:
            text = document if isinstance(document, bytes) else msgspec.json.encode(document)
            order = NewRunOrder(
                self._number,
                new_run_id(self._engine.clock.now()),
                text,
                is_file,
                jsontext.encode(input),
                jsontext.encode(how["options"]),
                **options,
            )
            encode_frame(order)
        except (TypeError, ValueError):  # whoever starts it here says what is wrong with it
            return None
        return order

    def _note_end(self, notice: RunEndNotice) -> None:
        self._waiters.settle(RunId(notice.run), (notice.status, notice.outcome))

    async def wait(self, run: RunId) -> Ended | None:
        """How a run of another process ends; None: it is one of this process."""
        future = self._waiters.wait(run)
        try:
            while not future.done():
                if self._engine.runtime.is_open_here(run):
                    return None
                row = await self._engine.find(run)
                if row.partition in self._engine.runtime.partitions:
                    return None
                if row.status.is_final:
                    execution = await run_views.load(self._engine.store, self._engine.languages, row)
                    assert execution.state.outcome is not None
                    return row.status, execution.state.outcome
                await asyncio.wait([future], timeout=LOOK_EVERY)
            return future.result()
        finally:
            self._waiters.leave(run, future)


def _inherited(descriptor: int) -> int:
    """One of the program's own outputs, for another process."""
    try:
        return os.dup(descriptor)
    except OSError:  # the program has closed it
        return os.open(os.devnull, os.O_WRONLY)
