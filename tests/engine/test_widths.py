"""Work per branch does not grow with the width of a fan-out: counted, at two widths (invariant 25)."""

import asyncio
import cProfile
import pstats
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from bench.languages.language import Language
from bench.registry import LANGUAGES

from perdure.engine import scheduler
from perdure.engine.handle import RunFailed
from perdure.engine.tasks.executor import NullExecutor
from perdure.kernel.json_values import jsontext
from perdure.testing.drill import Drill, folding
from perdure.testing.drill import body as b
from perdure.testing.drill.program import load
from perdure.wiring import Engine
from tests.engine.documents import drill
from tests.engine.meter import metered
from tests.engine.test_work_bounds import FUNCTIONS


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spoken", LANGUAGES)
async def test_a_branch_takes_as_many_calls_in_a_wide_fan_out_as_in_a_narrow_one(tmp_path: Path, spoken: str) -> None:
    language: Language = import_module(f"bench.languages.{spoken}").LANGUAGE
    narrow, wide = (500, 5_000) if language.widest >= 5_000 else (100, 1_000)
    calls: dict[int, float] = {}
    for width in (narrow, wide):
        folder = tmp_path / str(width)
        folder.mkdir()
        async with metered(folder, FUNCTIONS) as (engine, _, _):
            await (await engine.start(language.fan(1, "echo"))).result()
            calls[width] = await _calls(engine, language.fan(width, "echo")) / width

    assert calls[wide] <= calls[narrow] * 1.1


async def _calls(engine: Any, document: Any) -> int:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        await (await engine.start(document)).result()
    finally:
        profiler.disable()
    counted: int = pstats.Stats(profiler).total_calls  # type: ignore[attr-defined]
    return counted


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pump gives way by the clock, and what that costs is not what is counted."""
    monkeypatch.setattr(scheduler, "LONGEST_AT_ONCE", 3_600.0)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("unhurried")
async def test_cancelling_a_wide_run_costs_a_branch_what_it_costs_in_a_narrow_one(tmp_path: Path) -> None:
    """Counted in instructions of Python: a search through all that is open makes no calls."""
    work: dict[int, float] = {}
    for width in (100, 1_000):
        folder = tmp_path / str(width)
        folder.mkdir()
        async with metered(folder) as (engine, _, _):
            run = await engine.start(drill({"each": width, "do": [{"call": "for ever"}]}))
            while not engine.runtime.is_quiet:
                await asyncio.sleep(0)
            with _instructions() as counted:
                await run.cancel("enough")
                with pytest.raises(RunFailed):
                    await run.result()
        work[width] = counted["perdure"] / width

    assert work[1_000] <= work[100] * 1.1


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("unhurried")
async def test_recording_many_starts_and_leaving_costs_each_what_it_costs_of_few(tmp_path: Path) -> None:
    """Their tasks wait for somebody who can do them; leaving lays down each of them without looking at the others."""
    work: dict[int, float] = {}
    for many in (50, 500):
        folder = tmp_path / str(many)
        folder.mkdir()
        engine = Engine(f"sqlite:///{folder}/runs.db", hands=NullExecutor())
        await engine.runtime.open()
        with _instructions() as counted:
            await asyncio.gather(*[engine.start(drill({"call": "echo"})) for _ in range(many)])
            await engine.runtime.close()
        work[many] = counted["perdure"] / many

    assert work[500] <= work[50] * 1.1


@contextmanager
def _instructions() -> Iterator[Counter[str]]:
    """Instructions of Python that are executed meanwhile in Perdure's own code."""
    counted: Counter[str] = Counter()

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if "/perdure/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    def count(frame: FrameType, event: str, argument: object) -> Any:
        counted["perdure"] += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield counted
    finally:
        sys.settrace(before)


def test_what_a_drill_takes_from_the_front_is_linked_not_hashed() -> None:
    """The first key of a plain dict is found by crossing all that went before it, where no count of calls sees it."""
    program = load(jsontext.encode(drill({"signal": "go"})))
    live = Drill().begin(program)
    for change in (b.Spawned(b.MAIN, None, ""), b.Listened(b.MAIN, "go")):
        folding.evolve(live, change)

    for body in (live, b.thaw(program, b.freeze(live))):
        assert isinstance(body.agenda, OrderedDict)
        assert [isinstance(queue, OrderedDict) for queue in body.listeners.values()] == [True]
