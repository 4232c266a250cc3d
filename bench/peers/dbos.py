"""DBOS Transact on SQLite, in WAL mode: faster than the rollback journal, which is its default."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import postgres
from bench.marks import Marks
from bench.peers.peer import Peer
from bench.processes import resident_mb, size_of
from bench.scene import Scene, evenness, latencies, per_second, reached

PEER = Peer(
    title="DBOS (SQLite)",
    packages=("dbos", "pysqlite3-binary"),  # its schema needs SQLite 3.42, which Python may not have
    settings="SQLite in WAL mode, synchronous FULL (set by us on the file; its own default is the rollback journal)",
    variants={"w1": ("1 thread", "8 threads", "async"), "w2": ("steps", "children"), "w3": ("direct", "started")},
)


def database(scene: Scene) -> tuple[str, Callable[[], int]]:
    """Where it is, and how large it is."""
    if scene.subject == "dbos_postgres":
        address = postgres.start(scene)
        return address.replace("postgresql://", "postgresql+psycopg://"), lambda: postgres.size(address)
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3  # SQLAlchemy must find the newer SQLite
    path = scene.folder / "dbos.db"
    if not path.exists():
        connection = pysqlite3.connect(path)
        connection.execute("pragma journal_mode=wal")  # a property of the file
        connection.execute("create table made_by_the_bench (unused integer)")
        connection.close()

    def size() -> int:
        folding = pysqlite3.connect(path)
        folding.execute("pragma wal_checkpoint(truncate)")
        folding.close()
        return size_of(scene.folder)

    return f"sqlite:///{path}", size


def launch(scene: Scene, **options: Any) -> Any:
    """DBOS with all our workflows registered."""
    address, size = database(scene)
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": address,
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": "local",
            **options,
        }
    )
    marks = Marks(scene.marks, scene.life)

    @DBOS.step()
    def step(at: int) -> dict[str, Any]:
        return {"i": at, "n": ""}

    @DBOS.step()
    async def step_async(at: int) -> dict[str, Any]:
        return {"i": at, "n": ""}

    @DBOS.step()
    def mark(workflow: str, at: int) -> str:
        return marks.leave(workflow, at)

    class Work:
        @DBOS.workflow()
        @staticmethod
        def sequence(steps: int) -> list[Any]:
            return [step(at) for at in range(steps)]

        @DBOS.workflow()
        @staticmethod
        async def sequence_async(steps: int) -> list[Any]:
            return [await step_async(at) for at in range(steps)]

        @DBOS.workflow()
        @staticmethod
        async def fan(width: int) -> int:
            return len(await asyncio.gather(*[step_async(at) for at in range(width)]))

        @DBOS.workflow()
        @staticmethod
        def one(at: int) -> Any:
            return step(at)

        @DBOS.workflow()
        @staticmethod
        def family(width: int) -> int:
            handles = [DBOS.start_workflow(Work.one, at) for at in range(width)]
            return len([handle.get_result() for handle in handles])

        @DBOS.workflow()
        @staticmethod
        def long(steps: int) -> list[float]:
            stamps = []
            for at in range(steps):
                step(at)
                stamps.append(time.perf_counter())
            return stamps

        @DBOS.workflow()
        @staticmethod
        def marked(name: str, steps: int) -> list[str]:
            return [mark(name, at) for at in range(steps)]

        @DBOS.workflow()
        @staticmethod
        async def parked() -> str:
            await DBOS.sleep_async(3600)
            return "awake"

    DBOS.launch()
    return DBOS, Work, size


def w1(scene: Scene) -> dict[str, float]:
    sizes = scene.sizes
    if scene.variant == "async":
        dbos, work, _ = launch(scene)
        return asyncio.run(_w1_async(dbos, work, scene))
    dbos, work, _ = launch(scene, max_executor_threads=int(scene.variant.split()[0]))
    work.one(0)
    began = time.perf_counter()
    handles = [dbos.start_workflow(work.sequence, sizes.steps) for _ in range(sizes.workflows)]
    results = [handle.get_result() for handle in handles]
    assert all(len(result) == sizes.steps for result in results)
    return per_second(sizes.workflows * sizes.steps, began)


async def _w1_async(dbos: Any, work: Any, scene: Scene) -> dict[str, float]:
    sizes = scene.sizes
    await (await dbos.start_workflow_async(work.sequence_async, 1)).get_result()
    began = time.perf_counter()
    starting = [dbos.start_workflow_async(work.sequence_async, sizes.steps) for _ in range(sizes.workflows)]
    results = await asyncio.gather(*[handle.get_result() for handle in await asyncio.gather(*starting)])
    assert all(len(result) == sizes.steps for result in results)
    return per_second(sizes.workflows * sizes.steps, began)


def w2(scene: Scene) -> dict[str, float]:
    dbos, work, _ = launch(scene)
    width = scene.sizes.width
    work.one(0)
    began = time.perf_counter()
    if scene.variant == "children":
        assert dbos.start_workflow(work.family, width).get_result() == width
    else:
        assert asyncio.run(_fan(dbos, work, width)) == width
    return per_second(width, began)


async def _fan(dbos: Any, work: Any, width: int) -> Any:
    return await (await dbos.start_workflow_async(work.fan, width)).get_result()


def w3(scene: Scene) -> dict[str, float]:
    dbos, work, _ = launch(scene)
    times = []
    for at in range(scene.sizes.starts * 11 // 10):
        began = time.perf_counter()
        if scene.variant == "direct":
            work.one(at)
        else:
            dbos.start_workflow(work.one, at).get_result()
        times.append(time.perf_counter() - began)
    return latencies(times)


def w4(scene: Scene) -> dict[str, float]:
    dbos, work, _ = launch(scene)
    work.one(0)
    return evenness(dbos.start_workflow(work.long, scene.sizes.rounds).get_result())


def w5_begin(scene: Scene) -> None:
    dbos, work, _ = launch(scene)
    from dbos import SetWorkflowID

    handles = []
    for number in range(scene.sizes.workflows):
        with SetWorkflowID(f"w{number}"):
            handles.append(dbos.start_workflow(work.marked, f"w{number}", scene.sizes.steps))
    scene.all_submitted()
    for handle in handles:
        handle.get_result()


def w5_recover(scene: Scene) -> dict[str, Any]:
    dbos, _, _ = launch(scene)
    names = [f"w{number}" for number in range(scene.sizes.workflows)]
    ended = {name: dbos.retrieve_workflow(name).get_result() for name in names}
    reached("recovered")
    return {"ended": ended}


def w6(scene: Scene) -> dict[str, float]:
    _, work, _ = launch(scene)
    work.one(0)
    reached("first result")
    time.sleep(1)
    return {"rss_mb": resident_mb()}


def w7(scene: Scene) -> dict[str, float]:
    return asyncio.run(_w7(scene, *launch(scene)))


async def _w7(scene: Scene, dbos: Any, work: Any, size: Callable[[], int]) -> dict[str, float]:
    ram, disk, parked, batch = resident_mb(), size(), 0, 100
    began = time.perf_counter()
    while parked < scene.sizes.parked and time.perf_counter() - began < scene.sizes.parking_seconds:
        await asyncio.gather(*[dbos.start_workflow_async(work.parked) for _ in range(batch)])
        parked += batch
    taken = time.perf_counter() - began
    await asyncio.sleep(1)
    return {
        "starts_per_s": parked / taken,
        "ram_kb": (resident_mb() - ram) * 1024 / parked,
        "disk_kb": (size() - disk) / 1024 / parked,
        "parked": parked,
    }
