"""`perdure.Engine(processes=N)`: programs whose engine has several processes, on one store.

Each test runs a program, because code that other processes import has to be in a module.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.errors import EngineProcessesRefused
from perdure.providers.registry import Provider, shared
from tests.postgres import as_url
from tests.server.test_no_engine import until
from tests.server.test_processes import is_alive

CODE = """
import os, time
import perdure

@perdure.provider("where")
def where() -> int:
    return os.getpid()

@perdure.provider("slow_once")
def slow_once(mark: str) -> int:
    if not os.path.exists(mark):
        with open(mark, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    return os.getpid()
"""

PROGRAM = """
import asyncio, collections, json, os, pathlib, signal, sys
import perdure
from perdure.testing.drill import Drill
from perdure.wiring import add_language
import code_of_tests

add_language(Drill)
WHERE = {"drill": 1, "steps": [{"call": "where", "save": "pid"}, {"return": "$pid"}]}
WAITS = {
    "drill": 1,
    "steps": [{"signal": "go", "save": "x"}, {"call": "where", "save": "pid"}, {"return": ["$x", "$pid"]}],
}
SLOW = {"drill": 1, "steps": [{"call": "slow_once", "with": {"mark": "mark"}, "save": "pid"}, {"return": "$pid"}]}

def children():
    threads = pathlib.Path("/proc/self/task").glob("*/children")
    return sorted(int(text) for thread in threads for text in thread.read_text().split())

async def until(is_so):
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)

async def scene(say):
"""


def program(folder: Path, scene: str, store: str = "sqlite:///runs.db") -> "subprocess.Popen[str]":
    """Start a program; `scene` is the body of a coroutine that prints with `say`, and has the `store`."""
    (folder / "code_of_tests.py").write_text(CODE)
    body = "".join(f"    {line}\n" for line in ["store = sys.argv[1]", *scene.strip().splitlines()])
    end = "\nasyncio.run(scene(lambda value: print(json.dumps(value), flush=True)))\n"
    (folder / "program.py").write_text(PROGRAM + body + end)
    return subprocess.Popen(
        [sys.executable, "program.py", store],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(folder: Path, scene: str, store: str = "sqlite:///runs.db") -> tuple[list[Any], str]:
    """What a program has said, and what it wrote to its standard error."""
    running = program(folder, scene, store)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()], err


SHARED = """
async with perdure.Engine(store, processes=3) as engine:
    pids = [os.getpid(), *children()]
    runs = [await engine.start(WHERE) for _ in range(12)]
    counts = collections.Counter([await run.result(60) for run in runs])
    say([len(pids), sorted(counts) == sorted(pids), sorted(counts.values())])

    waiting = [await engine.start(WAITS, token=f"order {number}") for number in range(6)]
    again = [await engine.start(WAITS, token=f"order {number}") for number in range(6)]
    say([run.id for run in waiting] == [run.id for run in again])
    sent = [await run.signal("go", number) for number, run in enumerate(waiting)]
    say(all(answer.is_decided for answer in sent))
    ends = [await run.result(60) for run in waiting]
    say([[x for x, _ in ends], len({pid for _, pid in ends})])
    say(sum([len(await run.history()) > 2 and (await run.show())["status"] == "succeeded" for run in waiting]))

    for number in range(3):
        for what in ({"drill": 1, "steps": [{"what": 1}]}, "missing.json", object()):
            try:
                await engine.start(what)
            except Exception as error:
                say(type(error).__name__)
    stopped = [await engine.start(WAITS) for _ in range(3)]
    for run in stopped:
        await run.cancel("enough")
        try:
            await run.result(60)
        except perdure.RunFailed as failure:
            say(str(failure).partition(" ")[2].partition(" ")[2])
    processes = children()
say([os.path.exists(f"/proc/{pid}") for pid in processes])
say(sorted(path.name for path in pathlib.Path(".").glob("runs.db-owner*")))
"""


def test_processes_share_starts_and_the_program_has_all_runs(tmp_path: Path) -> None:
    (pids, *rest), err = said(tmp_path, SHARED)
    assert pids == [3, True, [4, 4, 4]], "starts are dealt out"
    same, decided, ends, shown, *rest = rest
    assert same and decided and ends == [list(range(6)), 3] and shown == 6
    errors, rest = rest[:9], rest[9:]
    assert errors == ["InvalidDocument", "InvalidDocument", "TypeError"] * 3, "as with one process"
    assert rest == ["cancelled: enough"] * 3 + [[False, False], []], "nothing is left of the other processes"
    assert err == ""


KILLED = """
async with perdure.Engine(store, processes=2) as engine:
    [child] = children()
    slow = await engine.start(SLOW)
    await until(lambda: pathlib.Path("mark").exists() and pathlib.Path("mark").read_text() == str(child))
    runs = [await engine.start(WAITS) for _ in range(4)]
    os.kill(child, signal.SIGKILL)
    more = [await engine.start(WAITS) for _ in range(4)]
    for number, run in enumerate(runs + more):
        await run.signal("go", number)
    ends = [await run.result(60) for run in runs + more]
    say([[x for x, _ in ends], child in {pid for _, pid in ends}])
    say(await slow.result(60) != child)
    await until(lambda: children() and children() != [child])
    new = set()
    while new != {os.getpid(), *children()}:
        new = set([await (await engine.start(WHERE)).result(60) for _ in range(2)])
    say("replaced")
"""


def test_a_process_that_was_killed_is_replaced_and_its_runs_go_on(tmp_path: Path) -> None:
    """Invariant 32: by those that are left; a start on its way to it is not lost."""
    lines, err = said(tmp_path, KILLED)
    assert lines == [[list(range(8)), False], True, "replaced"]
    assert "process 2 of 2 was killed by signal 9; it is started again" in err


LEAVES = """
async with perdure.Engine(store, processes=2) as engine:
    runs = [await engine.start(WAITS) for _ in range(40)]
    say([[run.id for run in runs], children()])
    await asyncio.sleep(600)
"""

CONTINUES = """
async with perdure.Engine(store, processes=2) as engine:
    def homes():
        import sqlite3
        with sqlite3.connect("runs.db") as file:
            return [count for _, count in file.execute("SELECT partition, count(*) FROM runs GROUP BY partition")]
    await until(lambda: len(homes()) == 2 and min(homes()) >= 8)
    runs = [engine.handle(run) for run in json.loads(pathlib.Path("ids").read_text())]
    for run in runs:
        await run.signal("go", 1)
    say(sum([(await run.result(60))[0] for run in runs]))
"""


def test_processes_end_with_a_program_that_was_killed_and_the_next_one_shares_its_runs(tmp_path: Path) -> None:
    first = program(tmp_path, LEAVES)
    assert first.stdout is not None
    runs, pids = json.loads(first.stdout.readline())
    assert len(pids) == 1 and is_alive(*pids)
    first.kill()
    first.communicate()
    until(lambda: not any(map(is_alive, pids)))
    (tmp_path / "ids").write_text(json.dumps(runs))
    assert said(tmp_path, CONTINUES)[0] == [40]


LATER = """
async with perdure.Engine(store, processes=2) as engine:
    pathlib.Path("more_code.py").write_text(
        "import os, perdure\\n@perdure.provider('later')\\ndef later() -> int:\\n    return os.getpid()\\n"
    )
    import more_code
    LATER = {"drill": 1, "steps": [{"call": "later", "save": "pid"}, {"return": "$pid"}]}
    say(len({await (await engine.start(LATER)).result(60) for _ in range(4)}))

    @perdure.provider("nested")
    def nested() -> int:
        return os.getpid()
    NESTED = {"drill": 1, "steps": [{"call": "nested", "save": "pid"}, {"return": "$pid"}]}
    say({await (await engine.start(NESTED)).result(60) for _ in range(4)} == {os.getpid()})
"""


def test_code_that_is_loaded_later_reaches_all_processes(tmp_path: Path) -> None:
    lines, err = said(tmp_path, LATER)
    assert lines == [2, True]
    assert "'nested'" in err and "from now on, runs begin in this process only" in err


UNLIKE = """
for folder in ("here", "there"):
    pathlib.Path(folder).mkdir()
pathlib.Path("here/unlike.py").write_text("import perdure\\n@perdure.provider('unlike')\\ndef unlike(): ...\\n")
pathlib.Path("there/unlike.py").write_text("")
sys.path.insert(0, "here")
import unlike
sys.path[0] = "there"
try:
    async with perdure.Engine(store, processes=2):
        pass
except perdure.PerdureError as error:
    say([error.code, str(error), children()])
"""


def test_a_process_that_cannot_begin_keeps_the_engine_from_opening(tmp_path: Path) -> None:
    [[code, message, left]], _ = said(tmp_path, UNLIKE)
    assert code == "ENGINE-PROCESSES" and left == []
    assert "process 2 of 2 cannot begin" in message and "does not register 'unlike'" in message


async def test_what_other_processes_could_not_have_is_refused(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"

    def nested() -> None: ...

    give_back = shared.lend(Provider.of("nested", nested))
    try:
        with pytest.raises(EngineProcessesRefused, match=r"cannot import the functions of .*'nested' \(defined at"):
            async with perdure.Engine(store, processes=2):
                raise AssertionError
    finally:
        give_back()
    for bad in ("sqlite:///:memory:", object()):
        with pytest.raises(EngineProcessesRefused, match="need the address of a store that they can share"):
            perdure.Engine(bad, processes=2)  # type: ignore[arg-type]
    for count in (0, -1, 65):
        with pytest.raises(EngineProcessesRefused, match=f"{count} is not a number of processes"):
            perdure.Engine(store, processes=count)
    with pytest.raises(EngineProcessesRefused, match="cannot be combined"):
        perdure.Engine(store, processes=2, recover=False)


ON_POSTGRES = """
async with perdure.Engine(store, processes=2) as engine:
    waiting = [await engine.start(WAITS) for _ in range(4)]
    for run in waiting:
        await run.signal("go", 1)
    ends = [await run.result(60) for run in waiting]
    say([len(ends), len({pid for _, pid in ends})])
"""


def test_processes_share_a_postgresql_database(tmp_path: Path, postgres_url: Any) -> None:
    assert said(tmp_path, ON_POSTGRES, as_url(postgres_url))[0] == [[4, 2]]
