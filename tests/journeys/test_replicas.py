"""Programs with an engine inside: what one of them leaves behind, another takes up by itself, if it can do it."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, Observer, provider
from perdure.kernel.values import RunId
from perdure.providers.registry import shared
from tests.postgres import as_url

PROGRAM = Path(__file__).with_name("replica.py")
SIGNAL_PATIENCE = 40.0  # seconds; only a bound: the lease of a killed replica is 2 s here


class Replica:
    def __init__(self, store: str, *providers: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), store, *providers],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PERDURE_DB_LEASE": "2"},
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def ask(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path)
        return json.loads(connection.getresponse().read())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def replica() -> Iterator[Callable[..., Replica]]:
    started: list[Replica] = []

    def start(store: str, *providers: str) -> Replica:
        started.append(Replica(store, *providers))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        assert one.process.stdout is not None
        one.process.stdout.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/orders.db"
    return as_url(request.getfixturevalue("postgres_url"))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(shared, "_providers", dict(shared._providers))
    monkeypatch.setenv("PERDURE_DB_LEASE", "2")


async def result(url: str, run: str) -> Any:
    async with Observer(url) as observer, asyncio.timeout(SIGNAL_PATIENCE):
        return await observer.handle(run).result()


async def paid(url: str, run: str) -> None:
    async with Observer(url) as observer:
        await observer.signal(RunId(run), "paid", True)


async def test_the_runs_of_a_killed_replica_go_on_in_another(url: str, replica: Callable[..., Replica]) -> None:
    """Invariant 32: by itself; nobody resumes anything."""
    first = replica(url, "reserve", "ship")
    order = first.ask("POST", "/orders/one")["id"]
    second = replica(url, "reserve", "ship")
    first.kill()
    await paid(url, order)

    assert await result(url, order) == "shipped from shelf 7"
    assert second.ask("GET", f"/orders/{order}") == {"status": "succeeded"}


async def test_the_same_program_with_the_same_token_ends_what_was_begun(
    url: str, replica: Callable[..., Replica]
) -> None:
    first = replica(url, "reserve=hang", "ship")
    order = first.ask("POST", "/orders/one")["id"]
    first.kill()
    again = replica(url, "reserve", "ship")
    assert again.ask("POST", "/orders/one") == {"id": order}
    await paid(url, order)

    assert await result(url, order) == "shipped from shelf 7"


async def home(url: str, run: str) -> int:
    """The partition where a live process has the run; 0 when nobody has."""
    async with Observer(url) as observer:
        row = await observer.find(RunId(run))
        return row.partition if await observer.store.owned([row.partition]) else 0


async def until_home(url: str, run: str, is_it: Callable[[int], bool]) -> None:
    """There is no event to wait for: another process does it."""
    async with asyncio.timeout(SIGNAL_PATIENCE):
        while not is_it(await home(url, run)):
            await asyncio.sleep(0.05)


async def test_what_cannot_be_done_here_stays_without_an_owner(url: str, replica: Callable[..., Replica]) -> None:
    """A replica with other code is no owner: whoever has the code is not locked out."""
    first = replica(url, "reserve=hang", "ship")
    order = first.ask("POST", "/orders/one")["id"]
    first.kill()
    other = replica(url, "ship")  # without `reserve`, which is open
    mark = other.ask("POST", "/orders/two")["id"]  # it lives, and has its own
    await until_home(url, order, lambda now: not now)
    async with Engine(url) as engine:
        await paid(url, order)
        provider("reserve")(lambda: "shelf 8")
        provider("ship")(lambda place: f"shipped from {place}")

        async with asyncio.timeout(SIGNAL_PATIENCE):
            assert await engine.handle(order).result() == "shipped from shelf 8"
    assert other.ask("GET", f"/orders/{mark}")["status"] in ("running", "waiting")


async def test_what_turns_out_not_to_be_possible_here_is_given_back(url: str, replica: Callable[..., Replica]) -> None:
    first = replica(url, "reserve", "ship")
    order = first.ask("POST", "/orders/one")["id"]
    before = await home(url, order)
    other = replica(url, "reserve")
    first.kill()
    await until_home(url, order, lambda now: now not in (0, before))  # it waits for a word: the other can do that
    await paid(url, order)
    await until_home(url, order, lambda now: not now)  # but not what comes then
    assert other.process.poll() is None
    replica(url, "reserve", "ship")

    assert await result(url, order) == "shipped from shelf 7"
    async with Observer(url) as observer:
        events = await observer.history(RunId(order), raw=True)
    assert "TaskRedelivered" not in {event["event"] for event in events}  # it was not begun: no delivery was lost


async def test_recovery_can_be_turned_off(url: str, replica: Callable[..., Replica]) -> None:
    provider("reserve")(lambda: "shelf 8")
    provider("ship")(lambda place: f"shipped from {place}")
    first = replica(url, "reserve=hang", "ship")
    order = first.ask("POST", "/orders/one")["id"]
    first.kill()
    await until_home(url, order, lambda now: not now)
    async with Engine(url, recover=False) as engine:
        done = await engine.start({"drill": 1, "name": "bystander", "steps": [{"sleep": "3s"}, {"return": 1}]})
        assert await done.result() == 1  # more than one look later

        assert not await home(url, order)
        assert await engine.handle(order).status() == "running"
