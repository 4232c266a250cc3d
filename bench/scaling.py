"""A server with one process and with several, and a program: `python -m bench.scaling [--quick]`.

Runs are started over HTTP, and each has a hundred steps: what is measured is the engine, not the starts. With P
processes a server has at most P cores, and whoever calls it takes little of one. A rate by the clock needs as many
quiet cores as there are processes; the processor time of a step says on any machine what the processes cost each other:
twice the cores at 1.1 times the processor time are at most 1.8 times the speed. The program has an engine of its own,
`perdure.Engine(processes=P)`, and starts the same runs itself.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

from bench import postgres
from bench.harness import ROOT
from bench.languages.language import Language
from bench.processes import descendants
from bench.scene import Scene
from bench.server import API, PAGE, Server
from bench.sizes import QUICK
from bench.start_rates import Connection

STEPS = 100
CONNECTIONS = 16
LANGUAGES = ("flow", "playbook", "story")
STORES = ("sqlite", "postgres")
BEGIN, END = "<!-- processes: begin -->", "<!-- processes: end -->"


def processor(pid: int) -> float:
    """Seconds of the processor that a server and its processes have taken."""
    total = 0
    for member in (pid, *descendants(pid)):
        fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def serving(folder: Path, store: str, processes: int) -> AsyncIterator[Server]:
    (folder / "settings.toml").write_text("[limits]\nrate = 1000000\nburst = 1000000\n")
    address = f"sqlite:///{folder}/runs.db"
    if store == "postgres":
        address = postgres.start(Scene("scaling@postgres", folder / "database", QUICK, "", home=folder))
    command = [sys.executable, "-m", "perdure", "serve", "--json", "--listen", "127.0.0.1:0", "--load", "bench.ours"]
    command += ["--data", str(folder / "server"), "--db", address, "--processes", str(processes)]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--config",
        str(folder / "settings.toml"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        place = urlsplit(json.loads(await process.stdout.readline())["url"])
        assert place.hostname is not None and place.port is not None
        token = (folder / "server" / "admin-token").read_text().strip()
        yield Server(process.pid, place.hostname, place.port, token)
    finally:
        process.terminate()
        await process.wait()


async def measure(store: str, name: str, processes: int, runs: int) -> dict[str, float]:
    language: Language = import_module(f"bench.languages.{name}").LANGUAGE
    document, payload = language.sequence(STEPS, "step").decode(), language.given({"i": 1, "n": ""})
    folder = Path(tempfile.mkdtemp(prefix="scaling-"))
    try:
        folder.chmod(0o755)  # a database server has a user of its own
        (folder / "database").mkdir()
        async with serving(folder, store, processes) as server:
            start = server.request("POST", f"{API}/runs", {"document": document, "input": payload})
            callers = [await server.connect() for _ in range(CONNECTIONS)]
            await asyncio.gather(*[_finish(server, caller, start, 1) for caller in callers])
            began, used = time.perf_counter(), processor(server.pid)
            share = -(-runs // CONNECTIONS)
            await asyncio.gather(*[_finish(server, caller, start, share) for caller in callers])
            took, used = time.perf_counter() - began, processor(server.pid) - used
            for caller in callers:
                caller.transport.close()
        return _figures(share * CONNECTIONS * STEPS, took, used)
    finally:
        await _remove(folder, store)


async def _remove(folder: Path, store: str) -> None:
    for line in (folder / "database" / "servers").read_text().split() if store == "postgres" else ():
        os.kill(int(line), 2)  # SIGINT: PostgreSQL's fast shutdown
        while Path(f"/proc/{line}/stat").exists() and _is_running(int(line)):
            await asyncio.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


async def measure_embedded(store: str, name: str, processes: int, runs: int) -> dict[str, float]:
    """The same runs in a program with `perdure.Engine(processes=N)`, which starts them itself."""
    folder = Path(tempfile.mkdtemp(prefix="scaling-"))
    try:
        folder.chmod(0o755)
        (folder / "database").mkdir()
        scene = Scene(f"{name}@{store}", folder / "database", QUICK, "", home=folder)
        address = postgres.start(scene) if store == "postgres" else f"sqlite:///{folder}/runs.db"
        command = [sys.executable, "-m", "bench.scaling", "--program", address, name, str(processes), str(runs)]
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
        answer, _ = await program.communicate()
        figures: dict[str, float] = json.loads(answer.splitlines()[-1])
        return figures
    finally:
        await _remove(folder, store)


async def run_program(address: str, name: str, processes: int, runs: int) -> dict[str, float]:
    import perdure
    from bench import ours  # which registers the functions that the other processes import too

    language: Language = import_module(f"bench.languages.{name}").LANGUAGE
    document, payload = language.sequence(STEPS, ours.PROVIDERS["thread"]), language.given({"i": 1, "n": ""})

    async def finish(count: int) -> None:
        handles = await asyncio.gather(*[engine.start(document, payload) for _ in range(count)])
        await asyncio.gather(*[handle.result() for handle in handles])

    async with perdure.Engine(address, processes=processes) as engine:
        await finish(CONNECTIONS)
        began, used = time.perf_counter(), processor(os.getpid())
        await finish(runs)
        return _figures(runs * STEPS, time.perf_counter() - began, processor(os.getpid()) - used)


def _figures(steps: int, took: float, used: float) -> dict[str, float]:
    return {"steps_per_s": steps / took, "us_per_step": used / steps * 1e6, "cores": used / took}


def _is_running(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


async def _finish(server: Server, connection: Connection, start: bytes, count: int) -> None:
    runs = []
    for _ in range(count):
        status, answer = await connection.send(start)
        assert status == 202, (status, answer)
        runs.append(json.loads(answer)["id"])
    for run in runs:
        status, answer = await connection.send(server.request("GET", f"{API}/runs/{run}/result?wait=60"))
        assert status == 200, (status, answer)
        assert json.loads(answer)["status"] == "succeeded", answer


KINDS = {"perdure serve": measure, "perdure.Engine": measure_embedded}
Samples = dict[tuple[str, str, str, int], list[dict[str, float]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs, one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    parser.add_argument("--program", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        address, name, processes, runs = arguments.program
        print(json.dumps(asyncio.run(run_program(address, name, int(processes), int(runs)))))
        return
    cases = [(store, name) for store in arguments.stores.split(",") for name in arguments.languages.split(",")]
    samples: Samples = {}
    loads = [os.getloadavg()[0]]
    for _ in range(1 if arguments.quick else arguments.rounds):
        for store, name in cases:
            for kind, processes in product(KINDS, (1, arguments.processes)):  # what disturbs one disturbs the other
                figures = asyncio.run(KINDS[kind](store, name, processes, 64 if arguments.quick else 640))
                samples.setdefault((kind, store, name, processes), []).append(figures)
                loads.append(os.getloadavg()[0])
                shown = {key: round(value, 2) for key, value in figures.items()}
                print(kind, store, name, processes, shown, file=sys.stderr, flush=True)
    text = page(samples, cases, arguments.processes, loads)
    print(text)
    if not arguments.no_write and not arguments.quick:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")


def page(
    samples: Samples,
    cases: list[tuple[str, str]],
    processes: int,
    loads: list[float],
) -> str:
    rows = []
    for kind, (store, name) in product(KINDS, cases):
        single, several = samples[kind, store, name, 1], samples[kind, store, name, processes]
        ratios = sorted(b["steps_per_s"] / a["steps_per_s"] for a, b in zip(single, several, strict=True))
        costs = [b["us_per_step"] / a["us_per_step"] for a, b in zip(single, several, strict=True)]
        speed = [statistics.median(sample["steps_per_s"] for sample in side) for side in (single, several)]
        title = import_module(f"bench.languages.{name}").LANGUAGE.title
        where = "PostgreSQL" if store == "postgres" else "SQLite"
        rows.append(
            f"| `{kind}`, {title} on {where} | {speed[0]:,.0f} | {speed[1]:,.0f} | {statistics.median(ratios):.2f}"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {statistics.median(costs):.2f} |"
        )
    count = len(next(iter(samples.values())))
    return "\n".join(
        [
            f"Measured on {time.strftime('%Y-%m-%d')}, medians of {count}; load average "
            f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores.",
            "",
            f"| what | steps/s, one process | {processes} processes | ratio (range) | processor time of a step |",
            "| --- | ---: | ---: | ---: | ---: |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
