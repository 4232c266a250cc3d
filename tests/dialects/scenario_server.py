"""`perdure serve` for scenarios: the real program, with a clock that stands until it is moved and scripted tasks.

Everything else is as its users have it: the store, the languages, the policy, the API. The first words on stderr name a
port of its own, on which one line of JSON asks to let time pass, and one line answers:

    {"until": 1800000005000000}     nothing moves before that instant: to it; `null`: to the next thing that is due
"""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from perdure import provider
from perdure.cli.main import main
from perdure.cli.verbs import serve
from perdure.kernel.json_values.values import Instant
from perdure.kernel.tasks.assignments import Assignment
from perdure.providers.registry import shared
from perdure.testing import FakeClock
from perdure.wiring import Engine
from tests.dialects.playbook.cases import VARIABLES, tools
from tests.dialects.played import Outside
from tests.dialects.story.world import ENGRAMS, providers
from tests.dialects.universe import Work

CALM = 5  # looks in a row at which nothing moves


class WorkByNamespace(dict[str, dict[str, Work]]):
    """Each scenario has a namespace of its own, and in it tasks that remember only its calls."""

    def __missing__(self, namespace: str) -> dict[str, Work]:
        self[namespace] = {**tools(), **providers()}
        return self[namespace]


class ScenarioTasks(Outside):
    def __init__(self) -> None:
        self._by_namespace = WorkByNamespace()
        super().__init__(self._by_namespace["default"], {}, VARIABLES)

    def work(self, assignment: Assignment) -> Work:
        return self._by_namespace[assignment.namespace][assignment.provider]


class ScenarioEngine(Engine):
    """The engine of the server, driven by whoever is connected to its port."""

    def __init__(self, store: Any, *, clock: FakeClock, **options: Any) -> None:
        self.tasks = ScenarioTasks()
        super().__init__(store, clock=clock, hands=self.tasks, **options)
        self.virtual = self.tasks.clock = clock
        self.tasks.store = self.store
        self.tasks.languages = self.languages
        self._port = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        server = await self._port.enter_async_context(await asyncio.start_server(self._obey, "127.0.0.1", 0))
        sys.stderr.write(f"time passes on {server.sockets[0].getsockname()[1]}\n")
        sys.stderr.flush()
        return self

    async def __aexit__(self, *exit: Any) -> None:
        await self._port.aclose()
        await super().__aexit__(*exit)

    async def run_services(self, say: Callable[[str], None]) -> None:
        """None: days pass here, and ended runs would be removed before anybody has looked at them."""
        await asyncio.Event().wait()

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await self._pass_time(json.loads(line)["until"])
            answer = {"now": self.virtual.now(), "next": self.virtual.next_alarm()}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _pass_time(self, until: Instant | None) -> None:
        await self._settle()
        due = self.virtual.next_alarm()
        if until is not None and (due is None or due > until):
            self.virtual.move_to(until)
        elif due is not None:
            self.virtual.move_to(due)
        await self._settle()

    async def _settle(self) -> None:
        """Messages are read at once: nobody waits for the next look."""
        await self._rest()
        await self.runtime.read_inbox()
        await self._rest()

    async def _rest(self) -> None:
        calm = 0
        while calm < CALM:
            await asyncio.sleep(0 if calm else 0.0005)
            is_calm = self.runtime.is_quiet and not self.tasks.is_busy
            calm = calm + 1 if is_calm and self.runtime.tasks_in_flight <= len(self.tasks.waiting) else 0


def declare() -> None:
    """The names of what the scenarios call, as loaded code has them; `ScenarioTasks` does it."""
    for name in tools():
        if shared.find(name) is None:
            provider(name)(_never)
    for name in ENGRAMS:
        if not shared.knows(f"engram:{name}@1.0.0"):  # the code alone: scenarios bring the resources
            provider(f"engram:{name}@1.0.0")(_never)


def _never(**arguments: Any) -> None:
    raise AssertionError(f"called with {arguments}")


def patch(module: Any, **names: Callable[..., Any]) -> None:
    for name, value in names.items():
        assert hasattr(module, name)
        setattr(module, name, value)


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())
    declare()
    patch(serve, SystemClock=FakeClock, Engine=ScenarioEngine)
    sys.exit(main())
