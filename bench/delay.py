"""How long a second run is held up beside a hostile one: python -m bench.delay [CASE …]

A small run is started, done and followed to its end again and again, while a hostile one begins, is decided and ends.
Told are the longest and the median time of a small run, beside that of an idle engine, and how long the event loop was
away at most. The least of a few rounds counts: the machine may be busy.
"""

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import perdure
from perdure.dialects.flow.document.flows import FLOW_SCHEMA

Work = Callable[[], Awaitable[Any]]
Case = Callable[[perdure.Engine], Awaitable[Work]]


def flow(steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"$schema": FLOW_SCHEMA, "entrypoint": next(iter(steps)), "steps": steps, **more}


def returns(value: Any = "{{ step.input }}") -> dict[str, Any]:
    return {"action": "Return", "value": value}


def call(provider: str, next: str = "r", **arguments: Any) -> dict[str, Any]:
    target = {"provider": f"mwl:provider.call/perdure/{provider}/v1", "with": arguments}
    return {"action": "Call", "call": target, "next": next}


def playbook(*steps: dict[str, Any]) -> bytes:
    metadata = {"name": "hostile", "path": "hostile"}
    return json.dumps(
        {"apiVersion": "noetl.io/v10", "kind": "Playbook", "metadata": metadata, "workflow": list(steps)}
    ).encode()


SMALL = flow({"c": call("delay_echo", value="{{ step.input }}"), "r": returns()})
OBJECTS = 100_000
MOCK = "mwl:provider.call/mwl/mock/v1"


def register() -> None:
    @perdure.provider("delay_echo")
    async def echo(value: Any) -> Any:
        return value

    objects = [{"id": at, "name": f"name {at}", "tags": ["a", "b"]} for at in range(OBJECTS)]
    gc.collect()
    gc.freeze()  # a caller's or a task's own data are no business of the engine

    @perdure.provider("delay_objects")
    def give() -> Any:
        return objects

    async def given_much(engine: perdure.Engine) -> Work:
        return await running(flow({"r": returns("{{ step.input.size() }}")}), objects)(engine)

    CASES["100,000 objects as input"] = given_much


def evaluating(value: Any, input: Any = None) -> Case:
    """A run that evaluates this and ends with a small result, or fails because it is too much."""
    return running(flow({"r": returns(value)}), input)


def running(document: Any, input: Any = None) -> Case:
    async def prepare(engine: perdure.Engine) -> Work:
        async def work() -> None:
            try:
                await (await engine.start(document, input)).result()
            except perdure.RunFailed as error:
                print(str(error)[:150].replace("\n", " "))

        return work

    return prepare


async def folding(engine: perdure.Engine) -> Work:
    """A run with a long log is shown, and taken up again by a word."""
    steps = {
        "g": {
            "action": "Gather",
            "over": "{{ lists.range(5000) }}",
            "call": {"provider": MOCK, "with": {}},
            "next": "r",
        },
        "r": returns("{{ 1 }}"),
    }
    handle = await engine.start(flow(steps))
    await handle.result()
    return lambda: handle.show()


async def forking(engine: perdure.Engine) -> Work:
    """A fork that has not been stored yet, with a dear turn before it."""
    steps = {"s": {"action": "Sleep", "for": "PT0.2S", "next": "r"}, "r": returns(NESTED)}
    handle = await engine.start(flow(steps))
    slept = next(event["seq"] for event in await handle.history(raw=True) if event["event"] == "TimerSet")
    await handle.result()

    async def work() -> None:
        await (await engine.fork(handle.id, slept)).result()

    return work


NESTED = "{{ lists.range(1000).all(a, lists.range(900).all(b, a + b * 2 >= 0)) }}"
MANY = {f"k{at}": "{{ lists.range(300).map(i, i).size() }}" for at in range(3000)}
LARGE_DOCUMENT = flow(
    {
        **{
            f"s{at}": {"action": "Pass", "assign": {"v": "{{ step.input }}"}, "next": f"s{at + 1}"}
            for at in range(3000)
        },
        "s3000": returns(1),
    }
)
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"pattern": "^(a|b|n)+.*[0-9]+$"}, "tags": {"uniqueItems": True}},
    },
}
REGEX = "(?i)" + "".join(f"[{chr(at)}-{chr(at + 500)}]" for at in range(0x100, 0x100 + 1500))

CASES: dict[str, Case] = {
    "nothing": running(SMALL, 1),
    "nested loops": evaluating(NESTED),
    "100,000 objects made": evaluating("{{ lists.range(100000).map(i, {'id': i, 'name': 'name'}) }}"),
    "100,000 objects of a task": running(flow({"c": call("delay_objects"), "r": returns("{{ step.input.size() }}")})),
    "distinct over nested lists": evaluating("{{ lists.range(3000).map(i, [[i % 7], [i]]).distinct().size() }}"),
    "thousands of expressions": evaluating(MANY),
    "(?i) regex": evaluating("{{ 'abc'.matches('" + REGEX + "') }}"),
    "large document": running(LARGE_DOCUMENT, {"a": 1}),
    "folding": folding,
    "fork": forking,
}


async def beat(gaps: list[float], stop: asyncio.Event) -> None:
    """How long the event loop was away, each time."""
    while not stop.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - before - 0.001)


async def small_runs(engine: perdure.Engine, took: list[float], stop: asyncio.Event) -> None:
    while not stop.is_set():
        before = time.perf_counter()
        await (await engine.start(SMALL, 1)).result()
        took.append(time.perf_counter() - before)
        await asyncio.sleep(0.002)


async def beside(engine: perdure.Engine, work: Work) -> tuple[list[float], list[float], float]:
    """What small runs took meanwhile, how long the loop was away, and how long the work took."""
    gaps: list[float] = []
    took: list[float] = []
    stop = asyncio.Event()
    followers = [asyncio.create_task(coroutine) for coroutine in (beat(gaps, stop), small_runs(engine, took, stop))]
    await asyncio.sleep(0.05)
    before = time.perf_counter()
    await work()
    lasted = time.perf_counter() - before
    await asyncio.sleep(0.02)
    stop.set()
    await asyncio.gather(*followers)
    return took, gaps, lasted


async def measure(name: str) -> tuple[float, float, float, float]:
    """In milliseconds: the longest and the median small run, the longest absence of the loop, what the case took."""
    with tempfile.TemporaryDirectory(prefix="perdure-delay-") as folder:
        async with perdure.Engine(f"sqlite:///{folder}/store.db") as engine:
            work = await CASES[name](engine)
            for _ in range(20):
                await (await engine.start(SMALL, 1)).result()
            took, gaps, lasted = await beside(engine, work)
    return max(took) * 1e3, statistics.median(took) * 1e3, max(gaps) * 1e3, lasted * 1e3


def main() -> None:
    register()
    parser = argparse.ArgumentParser(prog="python -m bench.delay", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'case':28} {'longest':>9} {'median':>8} {'loop away':>10} {'case took':>10}  (ms)")
    for name in arguments.cases:
        rounds = [asyncio.run(measure(name)) for _ in range(arguments.rounds)]
        figures = [min(sample[at] for sample in rounds) for at in range(4)]
        print(f"{name:28} {figures[0]:9.1f} {figures[1]:8.1f} {figures[2]:10.1f} {figures[3]:10.0f}", flush=True)


if __name__ == "__main__":
    main()
