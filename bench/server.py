"""A server over HTTP: starts, tasks of workers elsewhere, idle followers: `python -m bench.server [--quick]`.

One `perdure serve` on a SQLite file has one core, this process (the callers) the other one. Requests are written ahead
and sent over keep-alive connections, without an HTTP library. Every start that was answered is synced, and so is its
audit record. A rate is given by the clock and by the processor time of the server: on a busy machine only the second
is comparable.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.harness import ROOT
from bench.languages.flow import LANGUAGE
from bench.processes import resident_mb
from bench.start_rates import PEERS, Connection, connect, describe_peers, peer_starts

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- server: begin -->", "<!-- server: end -->"
CONNECTIONS = 64
STEADY = 500  # starts a second, for the delays
FOLLOWERS = 1_000
POOL, PROVIDER = "bench", "bench"
API = "/api/v1"

SHORT = json.dumps(
    {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "begin",
        "steps": {
            "begin": {"action": "Pass", "output": {"hello": "world"}, "next": "done"},
            "done": {"action": "Return", "value": "{{ step.input }}"},
        },
    }
)


class Follower(asyncio.Protocol):
    """Somebody who follows a run and hears nothing."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.began = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if b"event:" in data:
            self.began.set()


class Server(NamedTuple):
    pid: int
    host: str
    port: int
    token: str

    def request(self, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> bytes:
        text = b"" if body is None else json.dumps(body).encode()
        fields = {
            "Host": f"{self.host}:{self.port}",
            "Authorization": f"Bearer {token or self.token}",
            "Content-Length": str(len(text)),
            "Content-Type": "application/json",
        } | headers
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + text

    async def connect(self) -> Connection:
        return await connect(self.host, self.port)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        connection = await self.connect()
        status, answer = await connection.send(self.request(method, path, body))
        connection.transport.close()
        assert status < 300, (status, answer)
        return json.loads(answer)

    def processor(self) -> float:
        """Seconds of the processor that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    """A server on the first core; whoever calls has the last one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    (folder / "settings.toml").write_text("[limits]\nrate = 1000000\nburst = 1000000\nstreams = 2000\n")
    command = [sys.executable, "-m", "perdure", "serve", "--json", "--listen", "127.0.0.1:0", "--data", str(folder)]
    command += ["--db", f"sqlite:///{folder}/runs.db", "--route", f"{PROVIDER}={POOL}"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--config",
        str(folder / "settings.toml"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    os.sched_setaffinity(0, {cores[-1]})
    try:
        assert process.stdout is not None
        announcement = json.loads(await process.stdout.readline())
        address = urlsplit(announcement["url"])
        assert address.hostname is not None and address.port is not None
        token = (folder / "admin-token").read_text().strip()
        yield Server(process.pid, address.hostname, address.port, token)
    finally:
        process.terminate()
        await process.wait()


async def _rate(
    server: Server, seconds: float, work: Callable[[Connection], Awaitable[int]], connections: int
) -> dict[str, float]:
    """How much is done in so many seconds by callers that wait for each answer."""
    callers = [await server.connect() for _ in range(connections)]
    count = 0
    end = time.perf_counter() + seconds

    async def call(connection: Connection) -> None:
        nonlocal count
        while time.perf_counter() < end:
            done = await work(connection)  # others count meanwhile
            count += done
        connection.transport.close()

    began, processor = time.perf_counter(), server.processor()
    await asyncio.gather(*map(call, callers))
    took, used = time.perf_counter() - began, server.processor() - processor
    return {"per_s": count / took, "per_processor_s": count / used, "busy": used / took}


async def _starts(server: Server, body: Any, seconds: float) -> dict[str, float]:
    request = server.request("POST", f"{API}/runs", body)

    async def start(connection: Connection) -> int:
        status, answer = await connection.send(request)
        assert status == 202, (status, answer)
        return 1

    await _rate(server, seconds / 4, start, CONNECTIONS)
    return await _rate(server, seconds, start, CONNECTIONS)


async def named_starts(server: Server, seconds: float) -> dict[str, float]:
    return await _starts(server, {"name": "short"}, seconds)


async def document_starts(server: Server, seconds: float) -> dict[str, float]:
    return await _starts(server, {"document": SHORT}, seconds)


async def steady_starts(server: Server, seconds: float) -> dict[str, float]:
    """How long a start takes while so many come each second, counted from when it was due to be sent."""
    request = server.request("POST", f"{API}/runs", {"name": "short"})
    free = deque([await server.connect() for _ in range(CONNECTIONS)])
    delays: list[float] = []
    under_way: set[asyncio.Task[None]] = set()

    async def start(due: float) -> None:
        connection = free.popleft() if free else await server.connect()
        status, _ = await connection.send(request)
        assert status == 202
        delays.append(time.perf_counter() - due)
        free.append(connection)

    began = time.perf_counter()
    for at in range(int(seconds * STEADY)):
        due = began + at / STEADY
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        under_way.add(task := asyncio.ensure_future(start(due)))
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    return _percentiles(delays)


def _percentiles(delays: list[float]) -> dict[str, float]:
    delays.sort()
    return {"p50_ms": delays[len(delays) // 2] * 1e3, "p99_ms": delays[len(delays) * 99 // 100] * 1e3}


async def task_round_trip(server: Server, seconds: float) -> dict[str, float]:
    """One worker, one run: from sending a result until the run's next task is here."""
    count = int(seconds * 100)
    await server.call("POST", f"{API}/runs", {"document": LANGUAGE.rounds(count, PROVIDER).decode()})
    connection = await server.connect()
    lease = server.request("POST", f"{API}/worker/lease", {"worker": "one", "pools": [POOL], "wait": 20})
    delays: list[float] = []
    began = None
    for _ in range(count):
        status, answer = await connection.send(lease)
        assert status == 200, answer
        if began is not None:
            delays.append(time.perf_counter() - began)
        (task,) = json.loads(answer)["tasks"]
        began = time.perf_counter()
        done = server.request("POST", f"{API}/worker/tasks/{task['lease']}/complete", {"output": {"i": 1}})
        status, answer = await connection.send(done)
        assert status == 200, answer
    connection.transport.close()
    return _percentiles(delays)


async def task_batches(server: Server, seconds: float) -> dict[str, float]:
    """Workers that take and answer a hundred tasks at a time."""
    width = 2_000
    runs = max(2, int(seconds * 4))
    document = LANGUAGE.fan(width, PROVIDER).decode()
    for _ in range(runs):
        await server.call("POST", f"{API}/runs", {"document": document})
    lease = server.request("POST", f"{API}/worker/lease", {"worker": "many", "pools": [POOL], "max": 100})

    async def work(connection: Connection) -> int:
        status, answer = await connection.send(lease)
        assert status == 200, answer
        tasks = json.loads(answer)["tasks"]
        answers = [{"lease": task["lease"], "output": {"i": 1}} for task in tasks]
        if not answers:
            await asyncio.sleep(0.01)
            return 0
        status, answer = await connection.send(server.request("POST", f"{API}/worker/answers", {"answers": answers}))
        assert status == 200, answer
        return len(answers)

    return await _rate(server, seconds, work, 4)


async def idle_followers(server: Server, seconds: float) -> dict[str, float]:
    """Followers of as many runs in which nothing happens: what they cost in memory, and of a core."""
    document = LANGUAGE.wait(86_400).decode()
    connection = await server.connect()
    start = server.request("POST", f"{API}/runs", {"document": document})
    runs = []
    for _ in range(FOLLOWERS):
        status, answer = await connection.send(start)
        assert status == 202, answer
        runs.append(json.loads(answer)["id"])
    await asyncio.sleep(2)
    memory, quiet = resident_mb(server.pid), await _busy(server, seconds)
    loop = asyncio.get_running_loop()
    followers = []
    for run in runs:
        request = server.request("GET", f"{API}/runs/{run}/events", Accept="text/event-stream")
        _, follower = await loop.create_connection(partial(Follower, request), server.host, server.port)
        followers.append(follower)
        if len(followers) % 50 == 0:
            await asyncio.gather(*(follower.began.wait() for follower in followers))
    await asyncio.gather(*(follower.began.wait() for follower in followers))
    await asyncio.sleep(2)
    busy = await _busy(server, seconds)
    grown = resident_mb(server.pid) - memory
    for follower in followers:
        follower.transport.close()
    return {"mb": grown, "core": busy, "core_without": quiet}


async def _busy(server: Server, seconds: float) -> float:
    began, processor = time.perf_counter(), server.processor()
    await asyncio.sleep(seconds)
    return (server.processor() - processor) / (time.perf_counter() - began)


FIGURES: dict[str, Callable[[Server, float], Awaitable[dict[str, float]]]] = {
    "named": named_starts,
    "documents": document_starts,
    "steady": steady_starts,
    "round-trip": task_round_trip,
    "batches": task_batches,
    "followers": idle_followers,
}


async def _measure(name: str, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as folder:
        async with serving(Path(folder)) as server:
            await server.call("PUT", f"{API}/resources/flow/default/short", json.loads(SHORT))
            return await FIGURES[name](server, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the time, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(FIGURES), help="some of them, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="beside whose starts; `none` for ours alone")
    parser.add_argument("--environments", type=Path, help="keep what peers are installed in for the next time")
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    arguments = parser.parse_args()
    cores = os.sched_getaffinity(0)
    names = arguments.only.split(",")
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    peers: dict[str, list[float | str]] = {
        name: [] for name in arguments.peers.split(",") if name in PEERS and "named" in names
    }
    installed = tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True)
    under = arguments.environments or Path(installed.name)
    seconds = 2.0 if arguments.quick else 10.0
    loads = [os.getloadavg()[0]]
    for _ in range(1 if arguments.quick else arguments.rounds):
        for name in names:
            os.sched_setaffinity(0, cores)
            samples[name].append(asyncio.run(_measure(name, seconds)))
            loads.append(os.getloadavg()[0])
            print(name, samples[name][-1], f"load {loads[-1]:.1f}", file=sys.stderr)
        for name, rates in peers.items():
            os.sched_setaffinity(0, cores)
            rates.append(asyncio.run(peer_starts(name, under, seconds)))
            print(name, rates[-1], f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    installed.cleanup()
    if samples.keys() != FIGURES.keys():
        return
    text = page(samples, peers, loads)
    print(text)
    if not arguments.no_write and not arguments.quick:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")


def page(samples: dict[str, list[dict[str, float]]], peers: dict[str, list[float | str]], loads: list[float]) -> str:
    def median(name: str, figure: str) -> float:
        return statistics.median(sample[figure] for sample in samples[name])

    def rates(name: str) -> str:
        return f"{median(name, 'per_s'):,.0f} | {median(name, 'per_processor_s'):,.0f}"

    def delays(name: str) -> str:
        return f"{median(name, 'p50_ms'):.1f} ms | {median(name, 'p99_ms'):.1f} ms"

    return "\n".join(
        [
            f"Measured on {time.strftime('%Y-%m-%d')}, medians of {len(samples['named'])}; load average "
            f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores.",
            "",
            "| what | each second | per processor second of the server |",
            "| --- | ---: | ---: |",
            f"| starts of a Flow by its name, {CONNECTIONS} callers | {rates('named')} |",
            f"| starts of the same Flow with its document | {rates('documents')} |",
            f"| tasks of workers elsewhere, 100 at a time | {rates('batches')} |",
            "",
            *(describe_peers(median("named", "per_s"), peers) if peers else ()),
            "| what | half of them within | 99 of 100 within |",
            "| --- | ---: | ---: |",
            f"| a start, while {STEADY} come each second | {delays('steady')} |",
            f"| a task of a worker elsewhere: result sent until the next task is there | {delays('round-trip')} |",
            "",
            f"{FOLLOWERS:,} followers of runs in which nothing happens take {median('followers', 'mb'):.0f} MB and "
            f"{100 * (median('followers', 'core') - median('followers', 'core_without')):.1f} % of a core.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
