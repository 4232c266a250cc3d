"""LangGraph with SqliteSaver: every superstep is on disk before the next begins (`durability="sync"`)."""

import operator
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

from bench.marks import Marks
from bench.peers.peer import Peer
from bench.processes import resident_mb, size_of
from bench.scene import Scene, evenness, latencies, per_second, reached

PEER = Peer(
    title="LangGraph (SQLite)",
    packages=("langgraph", "langgraph-checkpoint-sqlite"),
    settings='SqliteSaver (WAL, synchronous FULL), durability="sync"; in W5 the caller resumes each thread itself',
    variants={"w1": ("1 thread", "8 threads")},
)


class Chained(TypedDict):
    name: str
    out: Annotated[list[Any], operator.add]


class Looped(TypedDict):
    at: int


class Fanned(TypedDict):
    out: Annotated[list[Any], operator.add]


def saver(scene: Scene) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    checkpointer = SqliteSaver(sqlite3.connect(scene.folder / "graph.db", check_same_thread=False))
    checkpointer.setup()
    full = checkpointer.conn.execute("pragma synchronous").fetchone()[0]
    assert full == 2, "not synced: the figures would not be comparable"
    return checkpointer


def sequence(scene: Scene, steps: int, node: Any) -> Any:
    """A graph of so many nodes in a row; `node(name, at)` does the work."""
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(Chained)
    for at in range(steps):
        graph.add_node(f"s{at}", lambda state, at=at: {"out": [node(state["name"], at)]})
        graph.add_edge(f"s{at - 1}" if at else START, f"s{at}")
    graph.add_edge(f"s{steps - 1}", END)
    return graph.compile(checkpointer=saver(scene))


def small(name: str, at: int) -> dict[str, Any]:
    return {"i": at, "n": ""}


def run(graph: Any, name: str, state: Any, **options: Any) -> Any:
    return graph.invoke(state, {"configurable": {"thread_id": name}, **options}, durability="sync")


def w1(scene: Scene) -> dict[str, float]:
    sizes = scene.sizes
    graph = sequence(scene, sizes.steps, small)
    run(graph, "warm", {"name": "warm", "out": []})
    began = time.perf_counter()
    with ThreadPoolExecutor(int(scene.variant.split()[0])) as threads:
        names = [f"w{number}" for number in range(sizes.workflows)]
        results = list(threads.map(lambda name: run(graph, name, {"name": name, "out": []}), names))
    assert all(len(result["out"]) == sizes.steps for result in results)
    return per_second(sizes.workflows * sizes.steps, began)


def w2(scene: Scene) -> dict[str, float]:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    width = scene.sizes.width
    run(sequence(scene, 1, small), "warm", {"name": "warm", "out": []})
    graph = StateGraph(Fanned)
    graph.add_node("one", lambda state: {"out": [{"i": state["i"]}]})
    graph.add_conditional_edges(START, lambda state: [Send("one", {"i": at}) for at in range(width)], ["one"])
    graph.add_edge("one", END)
    compiled = graph.compile(checkpointer=saver(scene))
    began = time.perf_counter()
    result = run(compiled, "fan", {"out": []}, max_concurrency=32)
    assert len(result["out"]) == width
    return per_second(width, began)


def w3(scene: Scene) -> dict[str, float]:
    graph = sequence(scene, 1, small)
    times = []
    for at in range(scene.sizes.starts * 11 // 10):
        began = time.perf_counter()
        run(graph, f"w{at}", {"name": "w", "out": []})
        times.append(time.perf_counter() - began)
    return latencies(times)


def w4(scene: Scene) -> dict[str, float]:
    from langgraph.graph import END, START, StateGraph

    rounds, stamps = scene.sizes.rounds, []

    def step(state: Any) -> Any:
        stamps.append(time.perf_counter())
        return {"at": state["at"] + 1}

    graph = StateGraph(Looped)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if state["at"] >= rounds else "step", ["step", END])
    compiled = graph.compile(checkpointer=saver(scene))
    run(compiled, "long", {"at": 0}, recursion_limit=rounds + 10)
    return evenness(stamps)


def w5_begin(scene: Scene) -> None:
    scene.all_submitted()  # nothing is submitted here: the caller drives every thread, before the kill and after it
    _marked(scene)


def w5_recover(scene: Scene) -> dict[str, Any]:
    ended = _marked(scene)
    reached("recovered")
    return {"ended": ended}


def _marked(scene: Scene) -> dict[str, list[str]]:
    marks = Marks(scene.marks, scene.life)
    graph = sequence(scene, scene.sizes.steps, marks.leave)

    def go_on(name: str) -> list[str]:
        begun = graph.get_state({"configurable": {"thread_id": name}}).created_at is not None
        marks: list[str] = run(graph, name, None if begun else {"name": name, "out": []})["out"]
        return marks

    names = [f"w{number}" for number in range(scene.sizes.workflows)]
    with ThreadPoolExecutor(8) as threads:
        return dict(zip(names, threads.map(go_on, names), strict=True))


def w6(scene: Scene) -> dict[str, float]:
    run(sequence(scene, 1, small), "w", {"name": "w", "out": []})
    reached("first result")
    time.sleep(1)
    return {"rss_mb": resident_mb()}


def w7(scene: Scene) -> dict[str, float]:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    graph = StateGraph(Chained)
    graph.add_node("wait", lambda state: {"out": [interrupt("wait")]})
    graph.add_edge(START, "wait")
    graph.add_edge("wait", END)
    compiled = graph.compile(checkpointer=saver(scene))
    run(compiled, "warm", {"name": "warm", "out": []})

    def size() -> int:
        compiled.checkpointer.conn.execute("pragma wal_checkpoint(truncate)")
        return size_of(scene.folder)

    ram, disk, parked = resident_mb(), size(), 0
    began = time.perf_counter()
    while parked < scene.sizes.parked and time.perf_counter() - began < scene.sizes.parking_seconds:
        run(compiled, f"w{parked}", {"name": "w", "out": []})
        parked += 1
    taken = time.perf_counter() - began
    return {
        "starts_per_s": parked / taken,
        "ram_kb": (resident_mb() - ram) * 1024 / parked,
        "disk_kb": (size() - disk) / 1024 / parked,
        "parked": parked,
    }
