"""Nothing acknowledged is lost: power cuts, a real kill -9, and the faults of a real disk. Invariant 23."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.kernel.json_values.values import RunId
from perdure.stores.errors import StoreCorrupt, StoreFull, StoreNewer
from perdure.stores.protocol import RunFilter
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import World
from perdure.wiring import Engine
from tests.engine.documents import drill
from tests.engine.forgetful_vfs import ForgetfulVFS

CHAIN = drill(
    {"signal": "a"}, {"call": "echo", "input": 1}, {"signal": "b"}, {"call": "echo", "input": 2}, {"return": "end"}
)


@pytest.mark.parametrize("attempt", range(4))
async def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, attempt: int) -> None:
    """Invariant 23: the file system forgets every write that was not synced."""
    vfs = ForgetfulVFS(f"forgetful-{attempt}")
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    world = World(before, vfs=f"forgetful-{attempt}")
    await world.boot()
    runs = [await world.start(CHAIN, token=str(number)) for number in range(3)]
    acknowledged: list[tuple[str, str]] = []
    for name in "ab"[: attempt % 3]:
        for run in runs[: attempt + 1]:
            await run.signal(name, key=f"{run.id}{name}")
            acknowledged.append((run.id, name))
    vfs.power_cut(world.path, after)
    await world.crash()

    survivor = World(after)
    await survivor.boot()
    assert survivor.engine is not None
    assert {run.id for run in runs} == {row.id for row in await survivor.engine.search(RunFilter())}
    for id, name in acknowledged:
        history = await survivor.engine.history(next(run.id for run in runs if run.id == id))
        assert name in [event["name"] for event in history if event["event"] == "SignalReceived"]
    for run in runs:
        for name in "ab":
            await survivor.run(run.id).handle.signal(name, key=f"{run.id}{name}")
        await survivor.settle()
        assert await survivor.run(run.id).result() == "end"
    await survivor.close()


async def test_the_test_file_system_really_forgets(tmp_path: Path) -> None:
    """Without syncs the same test would fail: the tool is sharp."""
    vfs = ForgetfulVFS("forgetful-check")
    path = tmp_path / "x.db"
    connection = apsw.Connection(str(path), vfs="forgetful-check")
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "off")
    connection.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    after = tmp_path / "after"
    after.mkdir()
    vfs.power_cut(path, after)
    connection.close()

    survivor = apsw.Connection(str(after / "x.db"))
    assert survivor.execute("SELECT name FROM sqlite_schema").fetchall() == []
    survivor.close()


RUNNER = """
import asyncio, sys, perdure
from perdure.testing.drill import Drill
from perdure.wiring import Engine, add_language

add_language(Drill)

@perdure.provider("stamp")
def stamp(input, context):
    with open(sys.argv[2], "a") as log:
        log.write(f"{context.idempotency_key}\\n")
    return input

STEP = {"call": "stamp", "input": {"i": 1}}
DOCUMENT = {"drill": 1, "name": "w", "steps": [{"repeat": 10, "do": [STEP]}, {"return": "ok"}]}

async def main():
    async with Engine(f"sqlite:///{sys.argv[1]}") as engine:
        await engine.resume()
        handles = await asyncio.gather(*[engine.start(DOCUMENT, token=str(n)) for n in range(200)])
        print("started", flush=True)
        results = await asyncio.gather(*[handle.result() for handle in handles])
        print("done", len(results), flush=True)

asyncio.run(main())
"""


def test_kill_9_in_the_middle_of_200_runs_loses_nothing_and_repeats_no_finished_task(tmp_path: Path) -> None:
    """Promise 2 and 4: a real process, a real SIGKILL, a real restart."""
    script, database, stamps = tmp_path / "runner.py", tmp_path / "runs.db", tmp_path / "stamps"
    script.write_text(RUNNER)
    command = [sys.executable, str(script), str(database), str(stamps)]
    victim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    while not stamps.exists() or stamps.stat().st_size < 20_000:
        assert victim.poll() is None, "it ended before it could be killed"
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    finished = _finished_tasks(database)
    stamped_before = stamps.read_text().splitlines()
    assert 0 < len(finished) < 2000

    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)

    assert "done 200" in again.stdout
    stamped_after = stamps.read_text().splitlines()[len(stamped_before) :]
    assert not finished & set(stamped_after), "a finished task ran again"
    assert len(set(stamped_before) | set(stamped_after)) == 2000, "every step of every run was performed"
    statuses = asyncio.run(_statuses(database))
    assert statuses == ["succeeded"] * 200


def _finished_tasks(database: Path) -> set[str]:
    async def read() -> set[str]:
        finished = set()
        engine = Engine(SqliteStore(database, SystemClock().now))
        for row in await engine.search(RunFilter()):
            paths = {}
            for event in await engine.history(row.id):
                if event["event"] == "TaskScheduled":
                    paths[event["task"]] = event["path"]
                elif event["event"] == "TaskEnded":
                    finished.add(f"{row.id}/{paths[event['task']]}")
        await engine.store.close()
        return finished

    return asyncio.run(read())


async def _statuses(database: Path) -> list[str]:
    store = SqliteStore(database, SystemClock().now)
    rows = await store.search(RunFilter())
    await store.close()
    return [row.status.value for row in rows]


async def test_two_engines_work_side_by_side_on_one_file(tmp_path: Path) -> None:
    """Invariant 23: each owns its partition; neither takes the other's runs."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Engine(url) as first_engine, Engine(url) as second_engine:
        first = await first_engine.start(drill({"sleep": "50ms"}, {"return": 1}))
        second = await second_engine.start(drill({"sleep": "50ms"}, {"return": 2}))
        assert first_engine.runtime.home != second_engine.runtime.home
        await second_engine.resume()

        assert await first.result() == 1
        assert await second.result() == 2
        assert await second_engine.handle(first.id).result() == 1, "any process can read any run"


async def test_a_message_from_another_process_reaches_the_owner_quickly(tmp_path: Path) -> None:
    """Invariants 7 and 23: within about 100 ms, through the inbox."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Engine(url) as owner, Engine(url) as other:
        run = await owner.start(drill({"signal": "go", "save": "x"}, {"return": "$x"}))
        await other.signal(run.id, "go", 42)

        assert await asyncio.wait_for(run.result(), 60) == 42


async def test_what_has_no_owner_is_adopted_and_nothing_else(tmp_path: Path) -> None:
    """Invariant 23: the lock is free at the instant of death."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    dead = Engine(url)
    await dead.runtime.open()
    orphan = await dead.start(drill({"signal": "go"}, {"return": "found"}))
    other_orphan = await dead.start(drill({"signal": "go"}, {"return": "left"}))
    await dead.runtime.die()
    async with Engine(url, recover=False) as living, Engine(url, recover=False) as rescuer:
        owned = await living.start(drill({"signal": "go"}))
        await rescuer.resume([orphan.id])
        rows = {row.id: row.partition for row in await rescuer.search(RunFilter())}
        assert rows[orphan.id] == rescuer.runtime.home
        assert rows[owned.id] == living.runtime.home
        assert rows[other_orphan.id] not in (rescuer.runtime.home, living.runtime.home)
        await rescuer.signal(orphan.id, "go")

        assert await rescuer.handle(orphan.id).result() == "found"


class LookedAtSlowly:
    """A store that does not tell of families before it is allowed to."""

    def __init__(self, inner: SqliteStore) -> None:
        self._inner = inner
        self.asked, self.allowed = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def families(self, partitions: Sequence[int]) -> list[RunId]:
        self.asked.set()
        await self.allowed.wait()
        return await self._inner.families(partitions)


async def test_an_engine_that_leaves_takes_up_nothing_more(tmp_path: Path) -> None:
    """Invariant 32: it owns nothing to take it into, and waits for nothing."""
    path = tmp_path / "runs.db"
    dead = Engine(f"sqlite:///{path}")
    await dead.runtime.open()
    orphan = await dead.start(drill({"signal": "go"}))
    await dead.runtime.die()
    store = LookedAtSlowly(SqliteStore(path))
    async with asyncio.timeout(60):
        async with Engine(store) as leaving:
            await leaving.start(drill({"call": "nobody has it"}))
            await store.asked.wait()
            allowing = asyncio.create_task(_allowed_when_it_owns_nothing(leaving, store))
        await allowing

    async with Engine(f"sqlite:///{path}", recover=False) as looking:
        row = await looking.find(orphan.id)
        assert await looking.store.owned([row.partition]) == frozenset()


async def _allowed_when_it_owns_nothing(leaving: Engine, store: LookedAtSlowly) -> None:
    while leaving.runtime.partitions:
        await asyncio.sleep(0.001)
    store.allowed.set()


# Faults of the store.


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """Invariant 24: the file is not touched."""
    path = tmp_path / "runs.db"
    await SqliteStore(path, SystemClock().now).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreNewer, match="schema 99"):
        SqliteStore(path, SystemClock().now)
    assert before == path.read_bytes()


def test_a_file_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    text, foreign = tmp_path / "notes.txt", tmp_path / "foreign.db"
    text.write_text("not a database, just some notes " * 100)
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    for path in (text, foreign):
        with pytest.raises(StoreCorrupt):
            SqliteStore(path, SystemClock().now)
    assert text.read_text().startswith("not a database")


async def test_a_full_disk_stops_the_engine_and_loses_nothing(tmp_path: Path) -> None:
    """A clear error, no hang; when there is room again, everything goes on."""
    path = tmp_path / "runs.db"
    engine = Engine(SqliteStore(path, SystemClock().now), settings=Settings(commit_tries=2))
    await engine.runtime.open()
    run = await engine.start(drill({"signal": "go", "save": "x"}, {"return": "$x"}))
    store: Any = engine.store
    full = store._connection.pragma("page_count")

    def keep_full() -> None:
        store._connection.pragma("max_page_count", full)

    keep_full()
    opened = store._open

    def open_full(must_exist: bool) -> None:
        opened(must_exist)
        keep_full()

    store._open = open_full
    with pytest.raises(StoreFull) as caught:
        for number in range(1000):
            await engine.start(drill({"signal": "go"}, {"return": "x" * 20_000}), token=str(number))
    assert "full" in str(caught.value)
    assert isinstance(engine.runtime.stopped, StoreFull)
    started = [row.id for row in await engine.search(RunFilter())]
    await engine.runtime.die()

    async with Engine(f"sqlite:///{path}") as again:
        await again.resume()
        await again.signal(run.id, "go", "room again")

        assert await again.handle(run.id).result() == "room again"
        assert set(started) == {row.id for row in await again.search(RunFilter())}


async def test_a_live_file_can_be_backed_up(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(drill({"signal": "go", "save": "x"}, {"return": "$x"}))
        await engine.store.backup(str(tmp_path / "copy.db"))
        await run.signal("go", 1)
        await run.result()
    async with Engine(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        await copy.resume()
        await copy.signal(run.id, "go", 2)

        assert await copy.handle(run.id).result() == 2


async def test_an_unknown_snapshot_version_is_passed_over(tmp_path: Path) -> None:
    """Invariant 24: a snapshot is a cache; the log is folded from its first event."""
    async with World(tmp_path, settings=Settings(snapshot_bytes=100)) as world:
        run = await world.start(
            drill({"repeat": 50, "do": [{"call": "echo", "input": 1}]}, {"signal": "go"}, {"return": "ok"})
        )
        assert world.engine is not None
        store: Any = world.engine.store
        assert store._read("SELECT count(*) FROM snapshots") == [(1,)]
        store._connection.execute("UPDATE snapshots SET body = ?", (bytes.fromhex("94cd03e701c0c0"),))
        await world.crash()
        await world.boot()
        await run.signal("go")

        assert await run.result() == "ok"


async def test_a_pinned_document_is_parsed_again_never_judged_again(tmp_path: Path, monkeypatch: Any) -> None:
    """Invariant 24."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}, {"return": "ok"}))
        await world.crash()
        monkeypatch.setattr(world.drill, "parse", lambda text: (None, ["now forbidden"]))
        await world.boot()
        await run.signal("go")

        assert await run.result() == "ok"


def test_history_is_strict_json(tmp_path: Path) -> None:
    async def main() -> None:
        async with World(tmp_path) as world:
            run = await world.start(drill({"call": "echo", "input": {"a": [1, None]}}, {"fail": "X"}))
            history = await run.handle.history()

            assert json.loads(json.dumps(history, allow_nan=False)) == history and len(history) > 3

    asyncio.run(main())
