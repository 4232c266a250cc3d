"""What workers elsewhere send, and what they wait for, stops no server and holds nobody up (SRV-030 to SRV-034)."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.engine.tasks import leased_tasks
from perdure.engine.tasks.leased_tasks import LeasedTasks
from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.secrets.secret_masking import QUICK, Mask
from perdure.server.worker_protocol import secret_sending, worker_handlers
from perdure.server.worker_protocol.secret_sending import SecretSender
from perdure.server.worker_protocol.worker_types import LogBody, LogLineBody
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created
from tests.server.serving import Api, Server

TRAINS = {"drill": 1, "name": "trains", "steps": [{"call": "train", "pool": "gpu", "save": "x"}, {"return": "$x"}]}
TOO_MANY = 1 << 63  # what no column takes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server.start(tmp_path, "--route", "train=gpu")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def test_no_number_of_a_worker_stops_the_server(server: Server) -> None:
    """One line with such a number ended the whole process; so many slots ended the notes about all workers."""
    worker: Api = server.role("worker")
    run = server.admin.start(TRAINS)
    asked = {"worker": "w", "pools": ["gpu"], "providers": ["train"], "wait": 20}
    assert worker("POST", "/api/v1/worker/lease", {**asked, "slots": TOO_MANY}).problem == (400, "USAGE")
    (task,) = worker("POST", "/api/v1/worker/lease", {**asked, "max": TOO_MANY}).json["tasks"]
    path = f"/api/v1/worker/tasks/{task['lease']}"
    for number in (TOO_MANY, TOO_MANY - 1):
        lines = {"lines": [{"message": "hostile", "number": number}, {"message": "the next"}]}
        assert worker("POST", f"{path}/log", lines).problem == (400, "USAGE")
    assert worker("POST", f"{path}/log", {"lines": [{"message": "said", "number": 1 << 31}]}).status == 200
    assert worker("POST", f"{path}/complete", {"output": 1}).status == 200
    assert server.admin.result(run)["value"] == 1


def test_a_worker_puts_no_values_without_end_for_one_task(server: Server) -> None:
    """It filled the disk: each value has up to 64 MiB, and a task that is given back un-begun costs nothing."""
    worker: Api = server.role("worker")
    run = server.admin.start(TRAINS)
    asked = {"worker": "w", "pools": ["gpu"], "providers": ["train"], "wait": 20}
    statuses = []
    for letter in "abcde":
        (task,) = worker("POST", "/api/v1/worker/lease", asked).json["tasks"]
        path = f"/api/v1/worker/tasks/{task['lease']}"
        text = b'"' + letter.encode() * (60 << 20) + b'"'
        place = f"{path}/values/{digest(text).hex()}"
        statuses += [worker("PUT", place, raw=text).status]
        if letter == "a":
            assert worker("PUT", place, raw=text).status == 201, "it is the same value"
        if letter < "e":
            assert worker("POST", f"{path}/release", {}).status == 200
    assert statuses == [201, 201, 201, 201, 413]
    assert worker("POST", f"{path}/complete", {"output": 1}).status == 200
    assert server.admin.result(run)["value"] == 1


async def test_a_large_output_is_named_without_being_read() -> None:
    """A thousand answers that name a value of 60 MB stopped the event loop for minutes."""

    async def value_sizes(run: RunId, digests: list[bytes]) -> dict[bytes, int]:
        return dict.fromkeys(digests, 60_000_000)

    call: Any = SimpleNamespace(engine=SimpleNamespace(store=SimpleNamespace(value_sizes=value_sizes)))
    lease: Any = SimpleNamespace(run=RunId("r"))
    outcome: Any = await worker_handlers._output(call, lease, {"$large": "ab" * 32, "bytes": 1})
    assert outcome.value.size == 60_000_000


async def test_a_value_of_megabytes_is_not_read_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.stores.sqlite import reads

    threads: list[threading.Thread] = []
    read = reads._read_value

    def noted(id: int, connection: Any) -> bytes | None:
        threads.append(threading.current_thread())
        return read(id, connection)

    monkeypatch.setattr(reads, "_read_value", noted)
    store = SqliteStore(tmp_path / "runs.db")
    large, small = b"a" * (2 << 20), b"b" * 1_000
    values = [(digest(text), text) for text in (large, small)]
    await store.commit([created("a", await store.claim(), values=values)])
    assert await store.values(RunId("a"), [name for name, _ in values]) == dict(values)
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
    await store.close()


async def test_a_look_for_work_costs_the_same_however_much_a_worker_offers(tmp_path: Path) -> None:
    """It was a query for each of a thousand providers, ten times a second, for each who waits."""
    store = SqliteStore(tmp_path / "runs.db")
    counts = []
    for number in (1, 1_000):
        queries: list[str] = []

        def note(_: Any, query: str, __: Any, queries: list[str] = queries) -> bool:
            queries.append(query)
            return True

        store._reader.exec_trace = note
        asked = LeaseRequest(["gpu"], "w", 1, 0, [f"provider {each}" for each in range(number)])
        assert await store.lease(asked) == []
        counts.append(len(queries))
    store._reader.exec_trace = None
    assert counts[0] == counts[1] > 0
    await store.close()


async def test_of_many_who_wait_for_work_a_few_look_at_a_time() -> None:
    """Six hundred of them kept the event loop busy all the time."""
    looking = most = looks = 0

    class Store:
        async def lease(self, request: LeaseRequest) -> list[Any]:
            nonlocal looking, most, looks
            looking, looks = looking + 1, looks + 1
            most = max(most, looking)
            await asyncio.sleep(0)
            looking -= 1
            return []

    client: Any = SimpleNamespace(store=Store(), clock=SimpleNamespace(now=lambda: 0), runtime=None)
    tasks = LeasedTasks(client)
    waiting = [asyncio.ensure_future(tasks.lease(LeaseRequest(["gpu"], "w", 1, 0), 600)) for _ in range(300)]
    while len(tasks._waiting) < 300 or looking:
        await asyncio.sleep(0)
    most = looks = 0
    tasks._wake()
    while looks < 300:
        await asyncio.sleep(0)
    tasks.stop_waiting()
    await asyncio.gather(*waiting)
    assert 0 < most <= leased_tasks.LOOKS_AT_ONCE


async def test_what_workers_say_is_masked_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """SRV-073: a hundred lines stopped the event loop for 13 seconds, where the document names 3,000 secrets."""
    from perdure.kernel.secrets.secret_search import Search

    compared: dict[bool, int] = {True: 0, False: 0}  # on the event loop, and elsewhere
    pay = Search.pay

    def noted(search: Search, size: int) -> Any:
        compared[threading.current_thread() is threading.main_thread()] += search._sought.price(size)
        return pay(search, size)

    monkeypatch.setattr(Search, "pay", noted)
    mask = Mask()
    mask.add_all(f"secret-number-{number}-of-many" for number in range(300))

    async def mask_of(lease: Any) -> Mask:
        return mask

    async def leased(call: Any) -> Any:
        return SimpleNamespace(lease="l", run=RunId("r"))

    lines: list[Any] = []
    tasks = SimpleNamespace(log_of=lambda lease: lambda *line: lines.append(line))
    sender: Any = SecretSender(SimpleNamespace())  # type: ignore[arg-type]
    sender.mask_of = mask_of
    monkeypatch.setattr(worker_handlers, "_lease", leased)
    text = "x" * 1_000 + "secret-number-299-of-many"
    body = LogBody(lines=[LogLineBody(message=text, fields={"said": text}, number=number) for number in range(40)])
    call: Any = SimpleNamespace(body=body, server=SimpleNamespace(secrets=sender, tasks=tasks))
    await worker_handlers.log_from_task(call)
    assert len(lines) == 40 and all("[redacted]" in line[1] and "299" not in repr(line) for line in lines)
    assert compared[True] <= 2 * QUICK < compared[False]


async def test_what_a_task_asks_for_is_looked_for_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """SRV-073: arguments of megabytes were read on the event loop for each request."""
    threads: list[threading.Thread] = []
    names_in = secret_sending._names_in

    def noted(value: Any) -> Any:
        threads.append(threading.current_thread())
        return names_in(value)

    async def arguments(run: RunId, text: Any) -> bytes:
        return b'{"to": "mail:password", "data": "%b"}' % (b"x" * 100_000)

    assignment = SimpleNamespace(secrets=("mail/password", "other/password"), sealed=False)
    parcel = SimpleNamespace(assignment=assignment, arguments=b"")
    monkeypatch.setattr(secret_sending, "parcel_of", lambda lease: parcel)
    monkeypatch.setattr(secret_sending, "_names_in", noted)
    sender: Any = SecretSender(SimpleNamespace(text=arguments))  # type: ignore[arg-type]
    assert await sender._asked_by(SimpleNamespace(run=RunId("r"))) == {"mail/password"}
    assert threads and threading.main_thread() not in threads
