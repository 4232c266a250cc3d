"""Programs with an engine inside: what one of them leaves behind, another takes up by itself, if it can do it."""

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, Observer, provider
from perdure.kernel.json_values.values import RunId
from perdure.providers.registry import shared
from tests.postgres import as_url

PROGRAM = Path(__file__).with_name("replica.py")
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "embedding.md"
SIGNAL_PATIENCE = 40.0  # seconds; only a bound: the lease of a killed replica is 2 s here
LISTENS = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


class Replica:
    """A process with a web server and an engine inside."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PERDURE_DB_LEASE": "2", **environment},
        )
        assert self.process.stderr is not None
        output = ""
        for line in self.process.stderr:
            output += line
            if (match := LISTENS.search(line)) is not None:
                self.port = int(match[1])
                break
        else:
            raise AssertionError(output)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SIGNAL_PATIENCE)
        try:
            connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, text
        return json.loads(text)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def started() -> Iterator[list[Replica]]:
    replicas: list[Replica] = []
    yield replicas
    for replica in replicas:
        replica.kill()
        assert replica.process.stderr is not None
        replica.process.stderr.close()


@pytest.fixture
def replica(started: list[Replica]) -> Callable[..., Replica]:
    def start(store: str, *providers: str) -> Replica:
        started.append(Replica([str(PROGRAM), store, *providers], {}))
        return started[-1]

    return start


@pytest.fixture
def orders(started: list[Replica], tmp_path: Path) -> Callable[[str], Replica]:
    """The program of the guide, line by line."""
    program = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)[0]
    (tmp_path / "orders.py").write_text(program)

    def start(store: str) -> Replica:
        command = ["-m", "uvicorn", "orders:app", "--port", "0", "--app-dir", str(tmp_path)]
        started.append(Replica(command, {"ORDERS_DB": store}))
        return started[-1]

    return start


@pytest.fixture(params=[pytest.param(store, marks=pytest.mark.sampled(2)) for store in ("sqlite", "postgres")])
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


async def test_the_runs_of_a_killed_replica_go_on_in_another(url: str, orders: Callable[[str], Replica]) -> None:
    """Invariant 32: by itself; nobody resumes anything. Clients of the killed one ask the other, and get results."""
    first, second = orders(url), orders(url)
    runs = {item: first.ask("POST", f"/orders/{item}", {"item": item})["run"] for item in ("tea", "rice", "salt")}
    assert second.ask("POST", "/orders/tea", {"item": "tea"}) == {"run": runs["tea"]}

    def buy(replica: Replica, item: str) -> Any:
        try:
            return replica.ask("GET", f"/runs/{runs[item]}")
        except (OSError, http.client.HTTPException):  # its replica was killed
            second.ask("POST", f"/runs/{runs[item]}/paid")
            return second.ask("GET", f"/runs/{runs[item]}")

    with ThreadPoolExecutor() as clients:
        results = [clients.submit(buy, replica, item) for replica, item in ((first, "tea"), (second, "rice"))]
        for run in runs.values():
            await until_home(url, run, bool)
            assert first.process.poll() is None
        first.kill()
        for item in ("rice", "salt"):
            second.ask("POST", f"/runs/{runs[item]}/paid")

        assert [result.result() for result in results] == [
            {"box": f"packed from shelf of {item}"} for item in ("tea", "rice")
        ]
    assert second.ask("GET", f"/runs/{runs['salt']}") == {"box": "packed from shelf of salt"}


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
