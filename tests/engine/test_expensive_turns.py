"""Invariant 29: a turn that counts much work is dropped and decided in a thread; the event loop goes on."""

import asyncio
import gc
import json
import threading
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.flow import Flow
from perdure.engine import decision_threads, scheduler
from perdure.engine.handle import RunFailed
from perdure.engine.slot import Slot
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive, pay
from perdure.providers.registry import shared
from perdure.testing import World
from perdure.wiring import languages
from tests.dialects.flow.documents import flow, returns
from tests.dialects.playbook.world import playbook
from tests.dialects.story.world import story
from tests.engine.documents import drill
from tests.engine.meter import metered

EXPENSIVE = "{{ lists.range(200000).filter(i, i % 7 == 0).map(i, i * 2).size() }}"
ANSWER = len(range(0, 200_000, 7))


def in_deciding_threads() -> int:
    return sum(thread.name.startswith("perdure-deciding") for thread in threading.enumerate())


async def test_an_expensive_turn_is_decided_in_a_thread_with_the_same_outcome(tmp_path: Path) -> None:
    """Invariant 29; the run is new, so what is dropped is its beginning."""
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(flow({"r": returns(EXPENSIVE)}))
        await world.settle()

        assert await run.result() == ANSWER
        assert 1 <= in_deciding_threads() <= 2


async def test_a_cheap_turn_needs_no_thread(tmp_path: Path) -> None:
    before = in_deciding_threads()
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(flow({"r": returns("{{ step.input }}")}), 5)
        await world.settle()

        assert await run.result() == 5
        assert in_deciding_threads() == before


async def test_a_turn_that_becomes_expensive_later_is_folded_first(tmp_path: Path) -> None:
    """Invariant 29: the beginning is recorded, the expensive move follows after a wait."""
    document = flow(
        {"wait": {"action": "Sleep", "for": "PT5S", "next": "r"}, "r": returns(EXPENSIVE)},
    )
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(document)
        await world.advance(10)

        assert await run.result() == ANSWER


async def test_the_event_loop_goes_on_while_an_expensive_turn_is_decided(tmp_path: Path) -> None:
    """Invariant 29: ten cheap runs begin and end while one expensive turn is being decided."""
    ended: list[str] = []
    async with World(tmp_path, spoken=languages()) as world:
        assert world.engine is not None
        expensive = flow({"r": returns("{{ lists.range(1000).all(a, lists.range(900).all(b, a + b * 2 >= 0)) }}")})
        cheap = flow({"r": returns("{{ step.input }}")})

        async def follow(name: str, document: Any) -> None:
            handle = await world.engine.start(document, 1)  # type: ignore[union-attr]
            await handle.result()
            ended.append(name)

        await asyncio.gather(follow("expensive", expensive), *[follow("cheap", cheap) for _ in range(10)])

    assert ended == ["cheap"] * 10 + ["expensive"]


async def test_a_decision_that_lasts_too_long_leaves_the_run_stuck_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 29: the watchdog fails nothing."""
    document = flow({"wait": {"action": "Sleep", "for": "PT5S", "next": "r"}, "r": returns(EXPENSIVE)})
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(document)
        monkeypatch.setattr(decision_threads, "LONGEST", -1.0)
        await world.advance(10)
        assert await run.status() == "waiting", "it fails nothing"
        assert world.engine is not None
        assert "TakesTooLong" in ((await world.engine.find(run.id)).stuck or "")

        monkeypatch.undo()
        await world.crash()
        await world.boot()
        await world.settle()
        assert await run.result() == ANSWER


async def test_the_pump_gives_way_between_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 29: with no time at all to be had, one run is decided at a time, and all of them end."""
    monkeypatch.setattr(scheduler, "LONGEST_AT_ONCE", 0.0)
    async with World(tmp_path, spoken=languages()) as world:
        runs = [await world.start(flow({"r": returns("{{ step.input }}")}), at) for at in range(20)]
        await world.settle()

        assert [await run.result() for run in runs] == list(range(20))


def test_what_is_expensive_here_is_not_too_expensive_to_decide() -> None:
    """Invariant 29: where work goes on is one thing, whether it is too much another."""
    from perdure.expressions.cel import compile_program
    from perdure.expressions.gotemplate import compile_template
    from perdure.expressions.jinja import compile_text

    loop = compile_program("lists.range(20000).map(i, i + 1).size()")
    text = compile_text("{% for i in range(20000) %}{% set x = i + 1 %}{% endfor %}")
    story = compile_template("{{ range 20000 }}{{ end }}")
    for evaluate in (loop.evaluate, text.render, story.render):
        with TurnBudget(1_000), pytest.raises(TurnTooExpensive):
            evaluate({})
        with TurnBudget(10**9) as effort:
            evaluate({})
        assert effort.left < 10**9 - 20_000


def test_check_tries_constant_expressions_with_a_tiny_budget() -> None:
    """Invariant 29: a hostile document costs its check next to nothing."""
    expensive = "{{ lists.range(1000000).map(i, {'a': i}).size() }}"
    steps: dict[str, Any] = {f"s{at}": {"action": "Pass", "next": f"s{at + 1}"} for at in range(50)}
    for at in range(50):
        steps[f"s{at}"]["assign"] = {"v": expensive}
    steps["s50"] = returns("{{ 1 / 0 }}")
    tracemalloc.start(1)
    judged = languages()["flow"].parse(json.dumps(flow(steps)).encode())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 20_000_000
    assert ["always fails" in problem.message for problem in judged.problems] == [True], "what is cheap to know is told"


class Observed(Flow):
    """A language that notes in which thread it was asked for something."""

    def __init__(self) -> None:
        super().__init__(shared.find_open, shared.open_names)
        self.seen: dict[str, list[bool]] = {"parse": [], "declares": [], "load": [], "evolve": []}

    def _note(self, what: str) -> None:
        self.seen[what].append(threading.current_thread().name.startswith(("perdure-deciding", "perdure-reading")))

    def parse(self, text: bytes, around: Any = None) -> Any:
        self._note("parse")
        return super().parse(text, around)

    def declares(self, text: bytes, file: str = "") -> Any:
        self._note("declares")
        return super().declares(text, file)

    def load(self, text: bytes) -> Any:
        self._note("load")
        return super().load(text)

    @property
    def evolve(self) -> Callable[[Any, Any], None]:
        behind = super().evolve

        def evolve(body: Any, event: Any) -> None:
            self._note("evolve")
            behind(body, event)

        return evolve


def chain(steps: int) -> dict[str, Any]:
    passes = {f"s{at}": {"action": "Pass", "output": {"at": at}, "next": f"s{at + 1}"} for at in range(steps)}
    return flow({**passes, f"s{steps}": {"action": "Sleep", "for": "PT5S", "next": "r"}, "r": returns(1)})


async def test_a_long_document_is_checked_compiled_and_folded_in_a_thread(tmp_path: Path) -> None:
    """Invariant 29: whatever takes long by its size is done aside, before it is begun."""
    language = Observed()
    async with World(tmp_path, spoken={"flow": language}) as world:
        run = await world.start(chain(900))
        assert language.seen["parse"] == [True]
        await world.crash()
        language.seen["evolve"].clear()
        await world.boot()
        await world.advance(10)

        assert await run.result() == 1
        assert language.seen["load"] and all(language.seen["load"])
        assert language.seen["evolve"][0], "what was recorded is folded in a thread"
        assert False in language.seen["evolve"], "a short turn is decided on the event loop"


async def test_a_short_document_is_checked_compiled_and_folded_at_once(tmp_path: Path) -> None:
    language = Observed()
    async with World(tmp_path, spoken={"flow": language}) as world:
        run = await world.start(chain(3))
        await world.crash()
        await world.boot()
        await world.advance(10)

        assert await run.result() == 1
        assert not any(turn for seen in language.seen.values() for turn in seen)


async def test_nobody_waits_behind_a_decision_to_have_a_document_checked(
    tmp_path: Path,
) -> None:
    """Invariant 29: with both deciding threads taken, a long document is checked, and its cheap run ends."""
    free = threading.Event()
    slots = [Slot(RunId(name), 0) for name in ("one", "two")]
    taken = [asyncio.ensure_future(decision_threads.threads.decide(slot, lambda slot: free.wait(30))) for slot in slots]
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(chain(300))
        await world.advance(10)
        assert await run.result() == 1
    assert not any(future.done() for future in taken)
    free.set()
    await asyncio.gather(*taken)


async def test_a_long_document_is_applied_in_a_thread(tmp_path: Path) -> None:
    """Invariant 29: to read what a text declares takes as long as to check it."""
    language = Observed()
    async with World(tmp_path, spoken={"flow": language}) as world:
        assert world.engine is not None
        for length in (300, 3):
            language.seen["declares"].clear()
            await world.engine.apply([AppliedDocument(f"flow{length}.json", json.dumps(chain(length)))])
            assert set(language.seen["declares"]) == {length == 300}


async def test_other_runs_are_taken_in_while_a_long_one_is_folded(tmp_path: Path) -> None:
    """Invariant 29: who has little to fold does not wait behind who has much."""
    async with World(tmp_path, spoken=languages()) as world:
        runs = [await world.start(chain(length)) for length in (900, 2, 900, 2)]
        await world.crash()
        await world.boot()
        await world.advance(10)

        assert [await run.result() for run in runs] == [1, 1, 1, 1]


async def test_a_fork_that_proves_expensive_is_decided_in_a_thread(tmp_path: Path) -> None:
    """Invariant 29: what it has lived is folded again, although no store has it yet."""
    language = Observed()
    loops = flow({"wait": {"action": "Sleep", "for": "PT1S", "next": "r"}, "r": returns(EXPENSIVE)})
    async with World(tmp_path, spoken={"flow": language}) as world:
        assert world.engine is not None
        run = await world.start(loops)
        await world.advance(2)
        assert await run.result() == ANSWER
        history = await run.handle.history(raw=True)
        slept = next(event["seq"] for event in history if event["event"] == "TimerSet")
        language.seen["evolve"].clear()
        fork = await world.engine.fork(run.id, slept)
        await world.advance(2)

        assert await fork.result() == ANSWER
        assert any(language.seen["evolve"])


async def test_a_large_value_goes_through_a_run_in_threads(tmp_path: Path) -> None:
    """Invariant 29: 100,000 objects given, read, written, and given back."""
    objects = [{"id": at, "name": f"name {at}"} for at in range(100_000)]
    language = Observed()
    async with World(tmp_path, spoken={"flow": language}) as world:
        run = await world.start(flow({"r": returns("{{ step.input.filter(one, one.id >= 0.0) }}")}), objects)
        await world.settle()

        assert await run.result() == objects
        assert any(language.seen["evolve"])


async def test_work_in_a_thread_is_not_interrupted_by_a_collection_of_garbage() -> None:
    """Invariant 29: one look at a million values is one call into C."""
    assert gc.isenabled()
    assert await decision_threads.threads.do(gc.isenabled) is False
    assert gc.isenabled()
    gc.disable()
    try:
        assert await decision_threads.threads.do(gc.isenabled) is False
        assert not gc.isenabled(), "whoever has turned it off keeps it so"
    finally:
        gc.enable()


def test_long_work_rests_in_between() -> None:
    """Invariant 29: a thread gives way by itself, in loops of every language and between pieces of JSON."""
    from perdure.expressions.cel import compile_program
    from perdure.expressions.gotemplate import compile_template
    from perdure.expressions.jinja import compile_text

    whole: dict[str, Callable[[], Any]] = {
        "nested": lambda: compile_program("lists.range(99).all(a, lists.range(900).all(b, a + b >= 0))").evaluate({}),
        "small": lambda: compile_program(
            "lists.range(9).all(a, lists.range(9).all(b, lists.range(9).all(c, lists.range(99).all(d, d >= 0))))"
        ).evaluate({}),
        "long": lambda: compile_program("lists.range(100000).map(i, i + 1).size()").evaluate({}),
        "pairs": lambda: compile_program("lists.range(50000).transformList(i, v, i + v).size()").evaluate({}),
        "jinja": lambda: compile_text("{% for i in range(90000) %}{% set x = i + 1 %}{% endfor %}").render({}),
        "go": lambda: compile_template("{{ range 90000 }}{{ end }}").render({}),
        "writing": lambda: jsontext.encode([[at] for at in range(100_000)]),
        "reading": lambda: jsontext.decode(b"[%b]" % b",".join([b"[1,2,3]"] * 400_000)),
    }
    for name, work in whole.items():
        rests = 0

        def rest() -> None:
            nonlocal rests
            rests += 1

        with TurnBudget(10**9, rest):
            work()
        assert rests >= 15, name


MOST_DELAY = 0.05  # seconds
DEAR_DOCUMENTS: dict[str, Any] = {
    "flow": flow({"r": returns("{{ lists.range(1000).all(a, lists.range(900).all(b, a + b * 2 >= 0)) }}")}),
    "playbook": playbook("""
workflow:
  - step: s
    tool: {kind: noop, result: "{% for i in range(90000) %}{% set x = i + 1 %}{% endfor %}"}
""").encode(),
    "story": story(
        "steps: [{name: s, type: sleep, with: {duration: 1ms}}]\noutput: {n: '{{ range 200000 }}{{ end }}'}"
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("language", DEAR_DOCUMENTS)
async def test_a_second_run_is_held_up_for_less_than_50_ms_by_an_expensive_one(tmp_path: Path, language: str) -> None:
    """Invariant 29, by the clock, and so on a quiet machine. What is ours comes back each time, its noise does not."""
    begun: list[float] = []

    def note(arguments: Any, input: Any) -> None:
        begun.append(time.perf_counter())

    longest: list[float] = []
    async with metered(tmp_path, {"note": note}) as (engine, _, _):
        await (await engine.start(DEAR_DOCUMENTS[language])).result()  # what is imported late is there
        second = await engine.start(drill({"repeat": 1_000_000, "do": [{"call": "note"}]}))
        while not begun:
            await asyncio.sleep(0)
        for _ in range(5):
            before = len(begun)
            await (await engine.start(DEAR_DOCUMENTS[language])).result()
            delays = [later - earlier for earlier, later in pairwise(begun[before - 1 :])]
            assert len(delays) > 10, "the second run went on beside the expensive one"
            longest.append(max(delays))
        await second.cancel("seen enough")
        with pytest.raises(RunFailed):
            await second.result()

    assert min(longest) < MOST_DELAY, longest


async def test_work_for_which_nobody_waits_is_given_up() -> None:
    """A request that was cancelled, or a text that has changed, does not keep a thread busy to the end."""
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        try:
            while True:
                pay(1)
        finally:
            ended.set()

    task = asyncio.create_task(decision_threads.threads.analyse(work))
    assert await asyncio.to_thread(began.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 20)
