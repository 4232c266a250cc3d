"""Scenarios through the client of a server: the same steering as in `tests.dialects.played`, over HTTP.

Many of them are on one server at once. Their clock is one (`tests.dialects.scenario_server`): time passes for all of
them together, and what is said to a run is said at its instant.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import perdure
from perdure.dialects.flow.views.result_comparison import differences as flow_differences
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.server.api_client.remote_engine import RemoteEngine, RemoteHandle
from perdure.services.flow.conformance import Scenario
from tests.cli.commandline import Running
from tests.dialects.differences import differences
from tests.dialects.playbook import cases as playbooks
from tests.dialects.story import cases as stories
from tests.dialects.story.world import ENGRAMS, engram, template
from tests.dialects.universe import START

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 240.0  # seconds: one server is for many scenarios
MOST_STEPS = 20_000  # of time, before scenarios that do not come to rest are told so


@dataclass
class Clock:
    """The server's, over a connection of its own."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    now: Instant = START
    next: Instant | None = None

    async def order(self, **order: Any) -> None:
        self.writer.write(json.dumps(order).encode() + b"\n")
        answer = json.loads(await self.reader.readline())
        self.now, self.next = answer["now"], answer["next"]

    async def stand(self) -> None:
        """What happens at this instant happens."""
        await self.order(until=self.now)


PEOPLE = ("operator", "ada", "ann")


@dataclass
class ScenarioServer:
    """Who decides is who the token is (SRV-082): each of those who are named in scenarios has one."""

    engines: dict[str, RemoteEngine]
    clock: Clock

    @property
    def engine(self) -> RemoteEngine:
        return self.engines[PEOPLE[0]]


@asynccontextmanager
async def scenario_server(folder: Path, **env: str) -> AsyncIterator[ScenarioServer]:
    running = _start(folder, env)
    try:
        port = int(running.hear("time passes on ").split()[-1])
        url = running.hear("listening on ").split()[-1]
        token = (folder / "perdure.db-server" / "admin-token").read_text().strip()
        async with AsyncExitStack() as stack:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.push_async_callback(writer.wait_closed)
            stack.callback(writer.close)
            admin = await stack.enter_async_context(perdure.connect(url, token))
            engines = {}
            for name in PEOPLE:
                made = await admin.call("POST", "/api/v1/tokens", {"name": name, "role": "author"})
                engines[name] = await stack.enter_async_context(perdure.connect(url, made["token"]))
            yield ScenarioServer(engines, Clock(reader, writer))
        running.send(signal.SIGTERM)
        assert running.end().code == 0
    finally:
        if running.process.poll() is None:
            running.kill()
            running.end()


def _start(folder: Path, env: dict[str, str]) -> Running:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dialects.scenario_server", "serve", "--listen", "127.0.0.1:0"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(REPOSITORY), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Running(process, PATIENCE)


class Part(Protocol):
    """One scenario on a server: how it is started, what is said to it, and what must be seen of it in the end."""

    @property
    def name(self) -> str: ...
    @property
    def steer(self) -> Sequence[dict[str, Any]]: ...
    @property
    def is_alone(self) -> bool:
        """Whether what it shows depends on instants that others on the same clock would move."""

    async def start(self, engine: RemoteEngine, namespace: str) -> RemoteHandle: ...
    def differences(self, shown: Any) -> Iterable[str]: ...


@dataclass
class Play:
    part: Part
    handle: RemoteHandle
    left: list[dict[str, Any]]
    began: Instant
    failed: str = ""

    @property
    def due(self) -> Instant | None:
        """When the next thing is said; None: when nothing moves any more."""
        return self.began + int(self.left[0]["at"] * SECOND) if "at" in self.left[0] else None

    def as_expected(self, shown: Any) -> Any:
        """What it shows, as if it had begun with the first instant, and were called `run`."""
        text = (
            jsontext.encode(shown).decode().replace(self.handle.id, "run").replace(namespace_of(self.part), "default")
        )
        if isinstance(name := shown.get("metadata", {}).get("name"), str):
            text = text.replace(name, "run")
        return jsontext.decode(INSTANT.sub(self._shifted, text).encode())

    def _shifted(self, match: re.Match[str]) -> str:
        at = datetime.fromisoformat(match[0]) - (_instant(self.began) - _instant(START))
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


HASHED = re.compile("effect-[0-9a-f]{16}")
INSTANT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _instant(at: Instant) -> datetime:
    return datetime.fromtimestamp(at / SECOND, UTC)


async def play_all(server: ScenarioServer, parts: Sequence[Part]) -> dict[str, list[str]]:
    """What each shows that was not expected; those that can be are on the server at once."""
    differences_by_part: dict[str, list[str]] = {}
    for part in parts:
        if part.is_alone:
            differences_by_part |= await _play(server, [part])
    return differences_by_part | await _play(server, [part for part in parts if not part.is_alone])


async def _play(server: ScenarioServer, parts: Sequence[Part]) -> dict[str, list[str]]:
    clock = server.clock
    await clock.stand()
    plays, refused = [], {}
    started = await asyncio.gather(
        *(part.start(server.engine, namespace_of(part)) for part in parts), return_exceptions=True
    )
    for part, handle in zip(parts, started, strict=True):
        if isinstance(handle, PerdureError):
            refused[part.name] = [f"not started: {handle}"]
        elif isinstance(handle, BaseException):
            raise handle
        else:
            plays.append(Play(part, handle, list(part.steer), clock.now))
    await clock.stand()
    for _ in range(MOST_STEPS):
        await _say_what_is_due(server, plays)
        at = min((play.due for play in plays if play.left and play.due is not None), default=None)
        if clock.next is None and at is None:
            resting = [play for play in plays if play.left]
            if not resting:
                break
            await asyncio.gather(*(_say(server, play, play.left.pop(0)) for play in resting))
            await clock.stand()
        else:
            await clock.order(until=at)
    else:
        raise AssertionError("the scenarios do not come to rest")
    shown = await asyncio.gather(*(play.handle.show() for play in plays))
    return refused | {
        play.part.name: [*filter(None, [play.failed]), *play.part.differences(play.as_expected(picture))]
        for play, picture in zip(plays, shown, strict=True)
    }


async def _say_what_is_due(server: ScenarioServer, plays: Sequence[Play]) -> None:
    while due := [play for play in plays if play.left and play.due is not None and play.due <= server.clock.now]:
        await asyncio.gather(*(_say(server, play, play.left.pop(0)) for play in due))
        await server.clock.stand()


async def _say(server: ScenarioServer, play: Play, action: dict[str, Any]) -> None:
    run = play.handle
    try:
        match action:
            case {"gate": gate}:
                decides = server.engines[gate.get("by", PEOPLE[0])].handle(run.id)
                decide = decides.approve if gate["state"] == "Approved" else decides.reject
                await decide(gate["step"], gate.get("message", ""))
            case {"cancel": reason}:
                await run.cancel(reason)
            case {"signal": {"name": name, "value": value}}:
                await run.signal(name, value)
            case {"redrive": redrive}:
                await run.redrive(redrive.get("step", ""), key=redrive.get("token", "again"))
            case {"patch": ctx}:
                await run.patch(ctx)
            case {"verb": "pause"}:
                await run.pause()
            case {"verb": "resume"}:
                await run.unpause()
            case {"apply": resource}:
                await server.engine.apply([resource], namespace_of(play.part))
            case {"at": _, **rest} if not rest:
                pass
            case _:
                raise AssertionError(f"nobody can say {action}")
    except PerdureError as error:
        play.failed = f"{action}: {error}"


def namespace_of(part: Part) -> str:
    return "default" if part.is_alone else f"of-{re.sub('[^a-z0-9]+', '-', part.name.lower()).strip('-')}"[:63]


@dataclass(frozen=True)
class FlowPart:
    scenario: Scenario
    steer: Sequence[dict[str, Any]] = ()
    is_alone: bool = False

    @property
    def name(self) -> str:
        return self.scenario.name

    async def start(self, engine: RemoteEngine, namespace: str) -> RemoteHandle:
        options = {} if self.scenario.arguments is None else {"args": self.scenario.arguments}
        return await engine.start(self.scenario.definition, self.scenario.input, options=options, namespace=namespace)

    def differences(self, shown: Any) -> Iterable[str]:
        return flow_differences(self.scenario.expected, shown)


@dataclass(frozen=True)
class PlaybookPart:
    case: playbooks.Case
    is_alone: bool = False

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def steer(self) -> Sequence[dict[str, Any]]:
        return self.case.steer

    async def start(self, engine: RemoteEngine, namespace: str) -> RemoteHandle:
        return await engine.start(
            self.case.document.encode(),
            self.case.workload,
            applied=list(self.case.children.values()),
            namespace=namespace,
        )

    def differences(self, shown: Any) -> Iterable[str]:
        return differences(self.case.expected, shown)


@dataclass(frozen=True)
class StoryPart:
    """What the Story refers to comes with the start; `from_catalog`: it was applied before."""

    case: stories.Case
    from_catalog: bool = False

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def steer(self) -> Sequence[dict[str, Any]]:
        steer: Sequence[dict[str, Any]] = self.case.told.get("steer", [])
        return steer

    @property
    def is_alone(self) -> bool:
        if "namespace" in repr([self.case.story, self.case.others]):
            return True
        waits_for_rest = any("at" not in action for action in self.steer)
        tells_times = (
            any("at" in action for action in self.steer) or INSTANT.search(repr(self.case.expected)) is not None
        )
        return waits_for_rest and tells_times

    async def start(self, engine: RemoteEngine, namespace: str) -> RemoteHandle:
        applied = self._applied()
        if self.from_catalog and applied:
            await engine.apply(applied, namespace)
            applied = []
        inputs = self.case.told.get("inputs")
        return await engine.start(self.case.story, inputs, applied=applied, namespace=namespace)

    def _applied(self) -> list[Any]:
        """What the scenario brings, and what it takes for granted (see `story.world.bundle`)."""
        brought = {(other["kind"], other["metadata"]["name"]) for other in self.case.others}
        made = [] if self.case.told.get("missing") else [engram(name, "") for name in ENGRAMS]
        made = [resource for resource in made if ("Engram", resource["metadata"]["name"]) not in brought]
        names = {
            resource["spec"]["templateRef"]["name"]
            for resource in [*made, *self.case.others]
            if resource["kind"] == "Engram"
        }
        if not self.case.told.get("missing"):
            made += [template(name) for name in sorted(names) if ("EngramTemplate", name) not in brought]
        for resource in made:
            resource["metadata"] = {name: value for name, value in resource["metadata"].items() if value}
        return [*self.case.others, *made]

    def differences(self, shown: Any) -> Iterable[str]:
        """Names that have a hash of the run's name are compared without it: here a run is not called `run`."""
        expected, actual = (
            HASHED.sub("effect-", jsontext.encode(document).decode()) for document in (self.case.expected, shown)
        )
        return differences(jsontext.decode(expected.encode()), jsontext.decode(actual.encode()))
