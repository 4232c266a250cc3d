"""Restate: its server, one node, and a service of the Python SDK under hypercorn, all on loopback."""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.peers.peer import Peer
from bench.processes import family_mb, size_of
from bench.scene import Scene, evenness, latencies, per_second, reached, told
from bench.sizes import QUICK

PEER = Peer(
    title="Restate",
    packages=("restate_sdk[serde]", "hypercorn", "httpx"),
    npm=("@restatedev/restate-server",),
    settings="one node, server defaults (its log is synced), telemetry off; W7: inactivity timeout 1 s",
    variants={"w1": ("1 process", "2 processes"), "w2": ("steps", "calls")},
)


class Deployment:
    """The server and the service; the harness ends them with the process group."""

    def __init__(self, scene: Scene, processes: int = 1, **settings: str) -> None:
        self.scene = scene
        self.ingress, self.admin, self.node, service = ports(scene.folder)
        self.data = scene.folder / "restate"
        log = (scene.folder / "restate.log").open("ab")
        environment = {
            **os.environ,
            "DO_NOT_TRACK": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "error",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_PORT": str(self.node),
            "RESTATE_INGRESS__BIND_PORT": str(self.ingress),
            "RESTATE_ADMIN__BIND_PORT": str(self.admin),
            "RESTATE_BASE_DIR": str(self.data),
            "RESTATE_NODE_NAME": "bench",
            **settings,
        }
        self.server = subprocess.Popen([binary(scene.home), "--no-logo"], env=environment, stdout=log, stderr=log)
        self.service = subprocess.Popen(
            [
                *(sys.executable, "-m", "hypercorn", "--log-level", "ERROR"),
                *("-b", f"127.0.0.1:{service}", "-w", str(processes), "bench.peers.restate_service:app"),
            ],
            env={**os.environ, "BENCH_MARKS": str(scene.marks), "BENCH_LIFE": str(scene.life)},
            stdout=log,
            stderr=log,
        )
        self._until(lambda: self.ask("/deployments", {"uri": f"http://127.0.0.1:{service}", "force": True}, self.admin))
        self._until(lambda: self.call("one"))

    def _until(self, attempt: Any) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                attempt()
                return
            except (OSError, RuntimeError, http.client.HTTPException):
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def ask(self, path: str, body: Any, port: int, connection: Any = None) -> Any:
        open = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=240)
        headers = {"content-type": "application/json", "accept": "application/json"}
        open.request("POST", path, json.dumps(body), headers)
        answer = open.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {text[:200]!r}")
        return json.loads(text)

    def call(self, handler: str, connection: Any = None, **body: Any) -> Any:
        return self.ask(f"/Bench/{handler}", body, self.ingress, connection)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.ingress, timeout=240)

    async def many(
        self, method: str, paths: list[str], bodies: list[Any] | None = None, at_once: int = 200
    ) -> list[Any]:
        import httpx

        limits = httpx.Limits(max_connections=at_once)
        room = asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.ingress}", timeout=240, limits=limits) as client:

            async def one(at: int) -> Any:
                async with room:
                    sent = {"json": bodies[at]} if bodies is not None else {}
                    while (answer := await client.request(method, paths[at], **sent)).status_code >= 500:
                        await asyncio.sleep(0.05)
                    answer.raise_for_status()
                    return answer.json()

            return await asyncio.gather(*[one(at) for at in range(len(paths))])

    def memory_mb(self) -> float:
        return family_mb(self.server.pid) + family_mb(self.service.pid)


def binary(home: Path) -> Path:
    return next(home.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))


def ports(folder: Path) -> list[int]:
    """Free ones; the second life must be found where the first was."""
    chosen = folder / "ports"
    if not chosen.exists():
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        chosen.write_text(json.dumps([listener.getsockname()[1] for listener in sockets]))
        for listener in sockets:
            listener.close()
    numbers: list[int] = json.loads(chosen.read_text())
    return numbers


def w1(scene: Scene) -> dict[str, float]:
    sizes = scene.sizes
    deployment = Deployment(scene, int(scene.variant.split()[0]))
    began = time.perf_counter()
    paths, bodies = ["/Bench/sequence"] * sizes.workflows, [{"steps": sizes.steps}] * sizes.workflows
    results = asyncio.run(deployment.many("POST", paths, bodies))
    figures = per_second(sizes.workflows * sizes.steps, began)
    assert all(len(result) == sizes.steps for result in results)
    return figures


def w2(scene: Scene) -> dict[str, float]:
    deployment = Deployment(scene)
    began = time.perf_counter()
    handler = "family" if scene.variant == "calls" else "fan"
    assert deployment.call(handler, width=scene.sizes.width) == scene.sizes.width
    return per_second(scene.sizes.width, began)


def w3(scene: Scene) -> dict[str, float]:
    deployment = Deployment(scene)
    connection, times = deployment.connection(), []
    for _ in range(scene.sizes.starts * 11 // 10):
        began = time.perf_counter()
        deployment.call("one", connection)
        times.append(time.perf_counter() - began)
    return latencies(times)


def w4(scene: Scene) -> dict[str, float]:
    return evenness(Deployment(scene).call("long", steps=scene.sizes.rounds))


def w5_begin(scene: Scene) -> None:
    deployment = Deployment(scene)
    names = [f"w{number}" for number in range(scene.sizes.workflows)]
    bodies = [{"name": name, "steps": scene.sizes.steps} for name in names]
    answers = asyncio.run(deployment.many("POST", ["/Bench/marked/send"] * len(names), bodies, 50))
    scene.all_submitted({name: answer["invocationId"] for name, answer in zip(names, answers, strict=True)})
    time.sleep(600)


def w5_recover(scene: Scene) -> dict[str, Any]:
    deployment = Deployment(scene)
    invocations = scene.submitted()
    paths = [f"/restate/invocation/{invocation}/attach" for invocation in invocations.values()]
    results = asyncio.run(deployment.many("GET", paths))
    reached("recovered")
    return {"ended": dict(zip(invocations, results, strict=True))}


def w6(scene: Scene) -> dict[str, float]:
    began = time.perf_counter()
    deployment = Deployment(scene)
    cold_s = time.perf_counter() - began
    time.sleep(2)
    return {"cold_s": cold_s, "rss_mb": deployment.memory_mb()}


def w7(scene: Scene) -> dict[str, float]:
    """From the first call until all are suspended."""
    deployment = Deployment(scene, RESTATE_WORKER__INVOKER__INACTIVITY_TIMEOUT="1s")
    time.sleep(1)
    ram, disk, parked, batch = deployment.memory_mb(), size_of(deployment.data), 0, 200
    began = time.perf_counter()
    while parked < scene.sizes.parked and time.perf_counter() - began < scene.sizes.parking_seconds:
        asyncio.run(deployment.many("POST", ["/Bench/parked/send"] * batch, [{}] * batch, 50))
        parked += batch
    while suspended(deployment) < parked:
        time.sleep(0.2)
    taken = time.perf_counter() - began
    return {
        "starts_per_s": parked / taken,
        "ram_kb": (deployment.memory_mb() - ram) * 1024 / parked,
        "disk_kb": (size_of(deployment.data) - disk) / 1024 / parked,
        "parked": parked,
    }


def suspended(deployment: Deployment) -> int:
    query = {"query": "select count(*) as n from sys_invocation where status = 'suspended'"}
    return int(deployment.ask("/query", query, deployment.admin)["rows"][0]["n"])


def main() -> None:
    """For `bench.start_rates`: a deployment in this folder, until nobody listens any more."""
    folder, home = map(Path, sys.argv[1:])
    deployment = Deployment(Scene("restate", folder, QUICK, home=home))
    told({"port": deployment.ingress})
    sys.stdin.read()
    for process in (deployment.service, deployment.server):
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
