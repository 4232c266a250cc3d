"""What more runs, wider fan-outs and larger stores cost: `python -m bench.growth [--quick] [--only PART,…]`.

Each figure comes from a process of its own, in a fresh folder. Compared are processor time and memory of that process
and bytes on disk, which other work on the machine changes little; of commands also the shortest of several times by the
clock, since a database server does a part of their work.

    parked      N runs that wait, on disk and not in memory; a thousand are started at a time
    starts      the same, with N starts at once: their callers wait together
    resident    N runs whose task has begun or waits for its turn, in memory
    fan-out     one run with N parallel steps
    commands    `perdure ps` and `perdure show` on a store with N runs, of which ten are open
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import perdure
from bench import ours, postgres
from bench.harness import ROOT
from bench.processes import resident_mb
from bench.scene import Scene
from bench.sizes import FULL

LANGUAGES = ("flow", "playbook", "story")
SIZES = (1_000, 10_000, 100_000)
PARTS = ("parked", "starts", "resident", "fan-out", "commands")
CHUNK = 1_000  # starts at a time
OPEN = 10  # of them are open
BASE = 1_000  # runs that are really run; a store of a million has a thousand copies of their rows

_held: asyncio.Event | None = None


@perdure.provider("hold")
async def hold(input: Any = None, value: Any = None) -> Any:
    assert _held is not None
    await _held.wait()
    return value if input is None else input


@perdure.engram("hold")
async def hold_of_a_story(inputs: dict[str, Any]) -> dict[str, Any]:
    await hold()
    return {"value": inputs["value"]}


class Meter:
    """What was added to this process since it began."""

    def __init__(self) -> None:
        self._seconds, self._mb = time.process_time(), resident_mb()

    def per(self, count: int) -> dict[str, float]:
        return {
            "us": (time.process_time() - self._seconds) / count * 1e6,
            "kb": (resident_mb() - self._mb) * 1024 / count,
        }


async def parked(scene: Scene, count: int) -> dict[str, float]:
    language = ours.language_of(scene)
    waiting = language.wait(ours.WAIT * 1000)
    async with ours.engine_for(scene) as engine:
        await ours.warm(engine, language, "step")
        await engine.start(waiting)
        meter = Meter()
        for _ in range(0, count, CHUNK):
            await asyncio.gather(*[engine.start(waiting) for _ in range(CHUNK)])
        while engine.runtime.scheduler.slots:
            await asyncio.sleep(0.05)
        return meter.per(count)


async def starts(scene: Scene, count: int) -> dict[str, float]:
    language = ours.language_of(scene)
    waiting = language.wait(ours.WAIT * 1000)
    async with ours.engine_for(scene) as engine:
        await ours.warm(engine, language, "step")
        await engine.start(waiting)
        meter = Meter()
        await asyncio.gather(*[engine.start(waiting) for _ in range(count)])
        return meter.per(count)


async def resident(scene: Scene, count: int) -> dict[str, float]:
    """From their start to their end, with all of them open at once."""
    global _held
    _held = asyncio.Event()
    language = ours.language_of(scene)
    document, payload = language.sequence(1, "hold"), language.given({"i": 1})
    async with ours.engine_for(scene) as engine:
        await ours.warm(engine, language, "step")
        meter = Meter()
        handles = await asyncio.gather(*[engine.start(document, payload) for _ in range(count)])
        figures = meter.per(count)
        _held.set()
        for handle in handles:
            await handle.result()
        return {"us": meter.per(count)["us"], "kb": figures["kb"]}


async def fan_out(scene: Scene, count: int) -> dict[str, float]:
    language = ours.language_of(scene)
    document = language.fan(count, "step")
    async with ours.engine_for(scene) as engine:
        await ours.warm(engine, language, "step")
        meter = Meter()
        await (await engine.start(document)).result()
        return meter.per(count)


# A large store.


async def fill(address: str) -> str:
    """The name of one of its runs."""
    language = ours.language_of(Scene("flow", Path(), FULL))
    document, payload = language.sequence(3, "step"), language.given({"i": 1, "text": "x" * 100})
    async with perdure.Engine(address) as engine:
        handles = await asyncio.gather(*[engine.start(document, payload) for _ in range(BASE - OPEN)])
        for handle in handles:
            await handle.result()
        for _ in range(OPEN):
            await engine.start(language.wait(ours.WAIT * 1000))
        return str(handles[BASE // 2].id)


_COPY_RUNS = """INSERT INTO {runs} ({columns}, id, number, created_at)
    SELECT {columns}, substr(id, 1, 22) || {name}, number + copy * 1000000, created_at - copy * 1000000
    FROM {runs}, {copies} WHERE ended_at IS NOT NULL"""
_COPY_LOG = "INSERT INTO {log} (run, seq, body) SELECT run + copy * 1000000, seq, body FROM {log}, {copies}"


def copy_rows_sqlite(path: Path, copies: int) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA synchronous = off")
        numbers = f"SELECT 1 UNION ALL SELECT copy + 1 FROM c WHERE copy < {copies}"
        made = f"(WITH RECURSIVE c (copy) AS ({numbers}) SELECT * FROM c)"
        columns = [row[1] for row in file.execute("PRAGMA table_info (runs)")]
        _copy(file.execute, columns, made, "printf('%04x', copy)", "")
        file.commit()


def copy_rows_postgres(address: str, copies: int) -> None:
    import psycopg

    with psycopg.connect(address) as connection:
        made = f"generate_series(1, {copies}) AS copy"
        query = (
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'runs' AND table_schema = 'perdure'"
        )
        columns = [row[0] for row in connection.execute(query)]
        _copy(connection.execute, columns, made, "lpad(to_hex(copy), 4, '0')", "perdure.")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _copy(execute: Any, columns: list[str], copies: str, name: str, schema: str) -> None:
    log, runs = f"{schema}log", f"{schema}runs"
    execute(_COPY_LOG.format(log=log, copies=copies))
    others = ", ".join(column for column in columns if column not in ("id", "number", "created_at"))
    execute(_COPY_RUNS.format(runs=runs, columns=others, name=name, copies=copies))


def commands(address: str, run: str) -> dict[str, float]:
    """By command: milliseconds of the shortest of seven calls, in a process that has imported everything."""
    from perdure.cli.main import main

    figures = {}
    for title, words in {
        "ps": ["ps"],
        "ps --limit 50 --json": ["ps", "--limit", "50", "--json"],
        "ps --status failed": ["ps", "--status", "failed"],
        "show": ["show", run],
        "show --json": ["show", run, "--json"],
        "history": ["history", run],
    }.items():
        times = []
        for _ in range(7):
            began = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                code = main([*words, "--db", address])
            times.append((time.perf_counter() - began) * 1e3)
            assert code == 0, (words, code)
        figures[title] = min(times)
    return figures


# The measured process, and who starts it.


def point(part: str, subject: str, count: int, folder: Path) -> dict[str, Any]:
    scene = Scene(subject, folder, FULL, home=folder.parent)
    if part != "commands":
        work = {"parked": parked, "starts": starts, "resident": resident, "fan-out": fan_out}[part]
        figures: dict[str, Any] = asyncio.run(work(scene, count))
        path = folder / "runs.db"
        return figures | {"disk_kb": path.stat().st_size / 1024 / count}
    address = ours.address_of(scene)
    run = asyncio.run(fill(address))
    if count > BASE:
        if subject.endswith("@postgres"):
            copy_rows_postgres(address, count // BASE - 1)
        else:
            copy_rows_sqlite(folder / "runs.db", count // BASE - 1)
    size = postgres.size(address) if subject.endswith("@postgres") else (folder / "runs.db").stat().st_size
    return {"times": commands(address, run), "gb": size / 1e9}


def measured(part: str, subject: str, count: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="growth-"))
    home.chmod(0o755)  # a database server has a user of its own
    folder = home / "scene"
    folder.mkdir()
    try:
        command = [sys.executable, "-m", "bench.growth", "--point", part, subject, str(count), str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures
    finally:
        servers = folder / "servers"
        for line in servers.read_text().split() if servers.exists() else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), 2)  # SIGINT: PostgreSQL's fast shutdown
        shutil.rmtree(home, ignore_errors=True)


def page(figures_by_case: dict[tuple[str, str, int], dict[str, Any]], loads: list[float]) -> str:
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}; load average {min(loads):.1f} to {max(loads):.1f} "
        f"on {os.cpu_count()} cores. Processor time and memory are those of the process, for each run or step.",
        "",
    ]
    rows = [key for key in figures_by_case if key[0] != "commands"]
    if rows:
        lines += ["| what | processor time, µs | memory, KB | disk, KB |", "| --- | ---: | ---: | ---: |"]
    for part, subject, count in rows:
        figures, title = figures_by_case[part, subject, count], f"{count:,} {_titles[part]}, {subject.capitalize()}"
        if "failed" in figures:
            lines.append(f"| {title} | {figures['failed']} | | |")
        else:
            lines.append(f"| {title} | {figures['us']:,.0f} | {figures['kb']:.2f} | {figures['disk_kb']:.2f} |")
    sides = [key for key in figures_by_case if key[0] == "commands"]
    if sides:
        names = list(figures_by_case[sides[0]].get("times", ()))
        lines += ["", "| store | " + " | ".join(f"`{name}`, ms" for name in names) + " |"]
        lines.append("| --- |" + " ---: |" * len(names))
    for key in sides:
        figures = figures_by_case[key]
        where = "PostgreSQL" if key[1].endswith("@postgres") else "SQLite"
        title = f"{where}, {key[2]:,} runs" + (f", {figures['gb']:.2f} GB" if "gb" in figures else "")
        times = figures.get("times") or {"": figures["failed"]}
        shown = [f"{value:,.0f}" if not isinstance(value, str) else value for value in times.values()]
        lines.append(f"| {title} | {' | '.join(shown)} |")
    return "\n".join([*lines, ""])


_titles = {
    "parked": "parked runs",
    "starts": "starts at once",
    "resident": "runs in memory",
    "fan-out": "parallel steps",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="sizes up to 1,000, and 10,000 runs in the store")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of runs and fan-outs")
    parser.add_argument("--point", nargs=4, metavar=("PART", "SUBJECT", "COUNT", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        part, subject, count, folder = arguments.point
        print(json.dumps(point(part, subject, int(count), Path(folder))))
        return
    sizes = SIZES[:1] if arguments.quick else tuple(map(int, arguments.sizes.split(",")))
    cases = [
        (part, language, count)
        for part in arguments.only.split(",")
        if part != "commands"
        for language in arguments.languages.split(",")
        for count in sizes
        if not (part == "fan-out" and language == "story" and count > 10_000)  # its contract: 64 KiB in a `with`
    ]
    if "commands" in arguments.only.split(","):
        largest = 10_000 if arguments.quick else 1_000_000
        cases += [("commands", subject, count) for subject in ("flow", "flow@postgres") for count in (BASE, largest)]
    figures_by_case, loads = {}, [os.getloadavg()[0]]
    for case in cases:
        figures_by_case[case] = measured(*case)
        loads.append(os.getloadavg()[0])
        print(case, figures_by_case[case], file=sys.stderr, flush=True)
    text = page(figures_by_case, loads)
    print(text)


if __name__ == "__main__":
    main()
