"""Work per step is bounded in every language, counted in syncs, commits, rows and bytes: invariant 25.

The documents are those of the benchmark. Counts do not move with the machine: a bound stands about a tenth above
what is written today, so that a change which writes more has to say so here.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bench.languages.language import Language
from bench.registry import LANGUAGES

import perdure
from bench import ours
from perdure.engine import scheduler
from perdure.engine.handle import RunFailed
from perdure.engine.settings import Settings
from perdure.engine.tasks import task_queues
from perdure.kernel.json_values import jsontext
from perdure.stores.sqlite import store
from tests.dialects.flow.documents import call, flow, middleware, mock, returns
from tests.engine.meter import metered


@dataclass(frozen=True)
class Bounds:
    """Bytes written to the log per step, snapshots included."""

    sequence: int
    fan: int
    rounds: int


BOUNDS = {
    "drill": Bounds(sequence=105, fan=225, rounds=87),
    "flow": Bounds(sequence=193, fan=295, rounds=227),
    "playbook": Bounds(sequence=380, fan=375, rounds=350),
    "story": Bounds(sequence=850, fan=2_120, rounds=0),
}


@pytest.fixture(params=LANGUAGES)
def spoken(request: pytest.FixtureRequest) -> tuple[Language, Bounds]:
    return import_module(f"bench.languages.{request.param}").LANGUAGE, BOUNDS[request.param]


def echo(arguments: Any, input: Any) -> Any:
    return arguments["value"] if isinstance(arguments, dict) and "value" in arguments else input


def story_echo(arguments: Any, input: Any) -> Any:
    return arguments["inputs"]


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {"echo": echo, "engram:echo@1.0.0": story_echo}


@pytest.mark.sampled(4)
async def test_200_runs_of_10_steps(
    tmp_path: Path, spoken: tuple[Language, Bounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1, Invariant 25: one log row per run and commit; runs share syncs; a step leaves its run's row alone."""
    monkeypatch.setattr(scheduler, "LONGEST_AT_ONCE", 60.0)  # on a slow machine a batch would be cut by time
    monkeypatch.setattr(task_queues, "SLICE", 60.0)
    language, bounds = spoken
    document, payload = language.sequence(10, "echo"), {"i": 1, "n": ""}
    async with metered(tmp_path, FUNCTIONS) as (engine, meter, vfs):
        handles = await asyncio.gather(*[engine.start(document, language.given(payload)) for _ in range(200)])
        results = await asyncio.gather(*[handle.result() for handle in handles])
        syncs = vfs.syncs

    assert [language.value_of(result) for result in results] == [payload] * 200
    assert meter.rows == 200 * 11, "one when it starts, one for each step"
    assert meter.commits <= 13
    assert syncs <= meter.commits + 4, "those of the write-ahead log's beginning and checkpoints beside them"
    assert meter.summaries == 200 * 2, "once when it is created, once when it ends"
    assert meter.snapshots == 0
    assert sum(meter.bytes) / 2000 < bounds.sequence


CALLS = {"drill": 103, "flow": 141, "playbook": 173, "story": 171}
"""Python calls per step of W1, starts and ends among them: a thirtieth above what they are while nothing else works.

On a busy machine fewer runs share a commit.
"""


async def test_a_step_takes_one_round_of_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W4: what follows from a result is decided, committed and handed out in the round that brings the result."""
    language: Language = import_module("bench.languages.flow").LANGUAGE
    document, payload = language.sequence(100, ours.PROVIDERS["thread"]), language.given({"i": 1, "n": ""})
    monkeypatch.setattr(store, "QUICK_SYNC", 60.0)  # on any disk commits are made at once
    rounds = 0
    async with perdure.Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        await (await engine.start(document, payload)).result()
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        select = selector.select

        def count(timeout: float | None = None) -> Any:
            nonlocal rounds
            rounds += 1
            return select(timeout)

        monkeypatch.setattr(selector, "select", count)
        await (await engine.start(document, payload)).result()
    assert rounds < 150


@pytest.mark.parametrize("name", CALLS)
async def test_a_step_makes_only_so_many_calls(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """W1, Invariant 25: what is looked at for every step is paid by every step of every run."""
    monkeypatch.setattr(scheduler, "LONGEST_AT_ONCE", 60.0)  # a profile is slow: the pump would give way at every turn
    monkeypatch.setattr(task_queues, "SLICE", 60.0)
    language: Language = import_module(f"bench.languages.{name}").LANGUAGE
    document, payload = language.sequence(10, "echo"), language.given({"i": 1, "n": ""})
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async with metered(tmp_path, FUNCTIONS, Settings(poll=60.0)) as (engine, _, _):  # no looks, which time would add
        await (await engine.start(document, payload)).result()  # what is made once is made
        sys.setprofile(count)
        try:
            handles = await asyncio.gather(*[engine.start(document, payload) for _ in range(50)])
            await asyncio.gather(*[handle.result() for handle in handles])
        finally:
            sys.setprofile(None)

    assert calls / 500 < CALLS[name]


@pytest.mark.sampled(4)
async def test_1000_wide(tmp_path: Path, spoken: tuple[Language, Bounds]) -> None:
    """W2, Invariant 25: a result costs the same at any width."""
    language, bounds = spoken
    written: dict[int, float] = {}
    narrow, wide = (1_000, 4_000) if language.widest >= 4_000 else (250, 1_000)
    for width in (narrow, wide):
        folder = tmp_path / str(width)
        folder.mkdir()
        async with metered(folder, FUNCTIONS) as (engine, meter, vfs):
            await (await engine.start(language.fan(width, "echo"))).result()
            syncs = vfs.syncs
        written[width] = sum(meter.bytes) / width

        assert meter.rows == meter.commits <= 3 + width / 200, "results that waited together share a commit"
        assert syncs <= meter.commits + 4
        assert meter.summaries == 2
        assert meter.snapshots <= 4, "geometric: each at least doubles what it replaces"
    assert written[narrow] < bounds.fan
    assert written[wide] <= written[narrow] * 1.5, "how many snapshots it has depends on how its commits fall"


@pytest.mark.sampled(4)
async def test_2000_serial_the_last_step_costs_what_the_first_did(
    tmp_path: Path, spoken: tuple[Language, Bounds]
) -> None:
    """W4, Invariant 25: flat cost; one commit and at most 1.01 syncs a step."""
    language, bounds = spoken
    if not language.loops:
        pytest.skip("a language without loops has no long run; its steps are those of W1")
    async with metered(tmp_path, FUNCTIONS) as (engine, meter, vfs):
        await (await engine.start(language.rounds(2_000, "echo"))).result()
        syncs = vfs.syncs

    assert meter.rows == meter.commits == 2_001
    assert syncs <= 2_000 * 1.01
    assert meter.summaries == 2
    assert meter.snapshots <= 14
    first, last = sum(meter.row_bytes[1:201]), sum(meter.row_bytes[-201:-1])
    assert last <= first * 1.1, "numbers grow by a digit, nothing else; the last row holds the run's result"
    assert sum(meter.bytes) / 2_000 < bounds.rounds


def appending_in_arms(count: int) -> Any:
    """A Gather whose arms append to a variable."""
    append = {"ids": "{{ vars.ids + [call.result.value] }}"}
    each = {**mock(value="{{ call.input }}"), "onSuccess": {"assign": append}}
    gather = {"action": "Gather", "over": "{{ step.input }}", "call": each, "next": "r"}
    return flow({"g": gather, "r": returns("{{ size(vars.ids) }}")}, parameters=EMPTY)


def appending_in_a_loop(count: int) -> Any:
    """A Loop that collects ten items in each round."""
    append = {"ids": "{{ vars.ids + middleware.result.value }}"}
    again = middleware("loop", onSuccess={"when": f"{{{{ size(vars.ids) < {10 * count}.0 }}}}", "assign": append})
    steps = {"c": call(mock(value=list(range(10))), "r", middleware=[again]), "r": returns("{{ size(vars.ids) }}")}
    return flow(steps, parameters=EMPTY)


EMPTY = {"type": "object", "properties": {"ids": {"default": []}}}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("document", "bound"), [(appending_in_arms, 240), (appending_in_a_loop, 285)])
async def test_a_step_that_appends_writes_the_same_at_any_length(
    tmp_path: Path, document: Callable[[int], Any], bound: int
) -> None:
    """Invariant 25, growth: log, snapshots and what lies beside it, at 1,000 and at 10,000."""
    for count in (1_000, 10_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        async with metered(folder) as (engine, meter, _):
            numbers = list(range(count)) if document is appending_in_arms else None
            result = await (await engine.start(jsontext.encode(document(count)), numbers)).result()

        assert result >= count
        assert (sum(meter.bytes) + meter.value_bytes) / count < bound


async def test_a_history_of_failures_is_not_written_again(tmp_path: Path) -> None:
    """Invariants 5 and 25: a graph that fails into itself, until that ends it."""
    again = [{"match": {"codes": ["*"]}, "next": "a"}]
    document = flow({"a": call(mock(failure={"code": "F"}), "a", catch=again)})
    async with metered(tmp_path) as (engine, meter, _):
        with pytest.raises(RunFailed, match="10000 failures"):
            await (await engine.start(jsontext.encode(document))).result()

    assert (sum(meter.bytes) + meter.value_bytes) / 10_000 < 300
