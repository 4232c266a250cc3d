"""Invariant 29: a turn that counts much work is dropped and decided in a thread; the event loop goes on."""

import asyncio
import json
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from perdure.engine import dearness, deciding
from perdure.kernel.effort import Effort, TooDear
from perdure.testing import World
from perdure.wiring import languages
from tests.dialects.flow.documents import flow, returns

DEAR = "{{ lists.range(200000).filter(i, i % 7 == 0).map(i, i * 2).size() }}"
ANSWER = len(range(0, 200_000, 7))


def in_deciding_threads() -> int:
    return sum(thread.name.startswith("perdure-deciding") for thread in threading.enumerate())


async def test_a_dear_turn_is_decided_in_a_thread_with_the_same_outcome(tmp_path: Path) -> None:
    """Invariant 29; the run is new, so what is dropped is its beginning."""
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(flow({"r": returns(DEAR)}))
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


async def test_a_turn_that_becomes_dear_later_is_folded_first(tmp_path: Path) -> None:
    """Invariant 29: the beginning is recorded, the dear move follows after a wait."""
    document = flow(
        {"wait": {"action": "Sleep", "for": "PT5S", "next": "r"}, "r": returns(DEAR)},
    )
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(document)
        await world.advance(10)

        assert await run.result() == ANSWER


async def test_the_event_loop_goes_on_while_a_dear_turn_is_decided(tmp_path: Path) -> None:
    """Invariant 29: ten cheap runs begin and end while one dear turn is being decided."""
    ended: list[str] = []
    async with World(tmp_path, spoken=languages()) as world:
        assert world.engine is not None
        dear = flow({"r": returns("{{ lists.range(1000).all(a, lists.range(900).all(b, a + b * 2 >= 0)) }}")})
        cheap = flow({"r": returns("{{ step.input }}")})

        async def follow(name: str, document: Any) -> None:
            handle = await world.engine.start(document, 1)  # type: ignore[union-attr]
            await handle.result()
            ended.append(name)

        await asyncio.gather(follow("dear", dear), *[follow("cheap", cheap) for _ in range(10)])

    assert ended == ["cheap"] * 10 + ["dear"]


async def test_a_decision_that_lasts_too_long_leaves_the_run_stuck_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 29: the watchdog fails nothing."""
    document = flow({"wait": {"action": "Sleep", "for": "PT5S", "next": "r"}, "r": returns(DEAR)})
    async with World(tmp_path, spoken=languages()) as world:
        run = await world.start(document)
        monkeypatch.setattr(dearness, "LONGEST", -1.0)
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
    monkeypatch.setattr(deciding, "LONGEST_AT_ONCE", 0.0)
    async with World(tmp_path, spoken=languages()) as world:
        runs = [await world.start(flow({"r": returns("{{ step.input }}")}), at) for at in range(20)]
        await world.settle()

        assert [await run.result() for run in runs] == list(range(20))


def test_what_is_dear_here_is_not_too_dear_altogether() -> None:
    """Invariant 29: where work goes on is one thing, whether it is too much another."""
    from perdure.expressions.cel import compile_program
    from perdure.expressions.gotemplate import compile_template
    from perdure.expressions.jinja import compile_text

    loop = compile_program("lists.range(20000).map(i, i + 1).size()")
    text = compile_text("{% for i in range(20000) %}{% set x = i + 1 %}{% endfor %}")
    story = compile_template("{{ range 20000 }}{{ end }}")
    for evaluate in (loop.evaluate, text.render, story.render):
        with Effort(1_000), pytest.raises(TooDear):
            evaluate({})
        with Effort(10**9) as effort:
            evaluate({})
        assert effort.left < 10**9 - 20_000


def test_check_tries_constant_expressions_with_a_tiny_budget() -> None:
    """Invariant 29: a hostile document costs its check next to nothing."""
    dear = "{{ lists.range(1000000).map(i, {'a': i}).size() }}"
    steps: dict[str, Any] = {f"s{at}": {"action": "Pass", "next": f"s{at + 1}"} for at in range(50)}
    for at in range(50):
        steps[f"s{at}"]["assign"] = {"v": dear}
    steps["s50"] = returns("{{ 1 / 0 }}")
    tracemalloc.start(1)
    judged = languages()["flow"].parse(json.dumps(flow(steps)).encode())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 20_000_000
    assert ["always fails" in problem.message for problem in judged.problems] == [True], "what is cheap to know is told"
