"""Any event of a history can be forked from, or the nearest that can is named. Invariant 20."""

import asyncio
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from bench.languages.language import Language
from bench.registry import LANGUAGES

from perdure.engine.handle import Handle
from perdure.engine.runs import run_views
from perdure.kernel.errors import Conflict, EventNotFound
from perdure.kernel.json_values.values import RunId
from perdure.wiring import Engine
from tests.engine.documents import drill
from tests.engine.meter import metered
from tests.engine.test_work_bounds import FUNCTIONS

PATIENCE = 60.0


@pytest.mark.parametrize("spoken", LANGUAGES)
async def test_a_fork_from_any_event_ends_as_the_run_did_or_the_nearest_is_named(tmp_path: Path, spoken: str) -> None:
    language: Language = import_module(f"bench.languages.{spoken}").LANGUAGE
    payload = language.given({"i": 1, "n": ""})
    documents = [language.sequence(3, "echo"), language.fan(3, "echo"), language.wait(1)]
    async with metered(tmp_path, FUNCTIONS) as (engine, _, _):
        for document in documents:
            run = await engine.start(document, payload)
            expected = await _ends_with(run)
            history = await run.history()
            taken = [await _forked(engine, run.id, event["seq"], expected) for event in history]

            assert [event["seq"] for event in history] == list(range(1, len(history) + 1))
            assert any(taken), "at least the end of its first turn"
            assert taken[-1] is False, "it had ended"
            with pytest.raises(EventNotFound, match=f"there is no event {len(history) + 1}"):
                await engine.fork(run.id, len(history) + 1)
            with pytest.raises(EventNotFound, match="there is no event 0"):
                await engine.fork(run.id, 0)


async def _forked(engine: Engine, run: RunId, at: int, expected: Any) -> bool:
    """Whether the event can be forked from; if not, the one that is named can."""
    try:
        fork = await engine.fork(run, at)
    except Conflict as refused:
        nearest: Any = refused.facts["nearest"]
        assert f"is {nearest}" in str(refused) and nearest != at
        fork = await engine.fork(run, nearest)
        assert await _ends_with(fork) == expected
        return False
    assert await _ends_with(fork) == expected
    return True


async def _ends_with(run: Handle) -> Any:
    result = await asyncio.wait_for(run.result(), PATIENCE)
    if isinstance(result, dict):
        result.pop("execution_id", None)  # a Playbook tells its own
    return result


async def test_a_fork_has_the_whole_turn_of_its_event_and_nothing_behind_it(tmp_path: Path) -> None:
    async with metered(tmp_path, FUNCTIONS) as (engine, _, _):
        run = await engine.start(drill({"call": "echo"}, {"call": "echo"}, {"return": "end"}))
        await run.result()
        turns = await run_views.turns(engine.store, engine.languages["drill"], run.id)
        ends = list(accumulate(len(events) for _, events in turns))
        for at in range(1, ends[-2] + 1):
            fork = await engine.fork(run.id, at)
            assert await fork.result() == "end"
            (mark,) = [event for event in await fork.history() if event["event"] == "RunForked"]
            assert mark["own_seq"] == next(end for end in ends if end >= at)
        for at in range(ends[-2] + 1, ends[-1] + 1):
            with pytest.raises(Conflict, match=f"the nearest event that can be forked from is {ends[-2]}"):
                await engine.fork(run.id, at)


async def test_a_fork_while_something_was_being_stopped_ends_too(tmp_path: Path) -> None:
    """Nobody has the task any more who could agree to be cancelled, and the child is another one."""
    child = drill({"signal": "never"}, name="child")
    async with metered(tmp_path, FUNCTIONS) as (engine, _, _):
        for step in ({"call": "for ever"}, {"child": child}):
            run = await engine.start(drill(step, {"return": "end"}))
            while not engine.runtime.is_quiet:
                await asyncio.sleep(0)
            await run.cancel("enough")
            names = [event["event"] for event in await run.history()]
            for at in (number for number, name in enumerate(names, start=1) if name.endswith("CancelRequested")):
                try:
                    fork = await engine.fork(run.id, at)
                except Conflict:
                    continue
                assert (await asyncio.wait_for(engine.wait(fork.id), PATIENCE))[0].is_final


async def test_raw_events_have_their_own_numbers_and_are_followed_once(tmp_path: Path) -> None:
    """An event's own field called `seq` or `at` hides neither its number nor its time."""
    for spoken in LANGUAGES:
        language: Language = import_module(f"bench.languages.{spoken}").LANGUAGE
        (tmp_path / spoken).mkdir()
        async with metered(tmp_path / spoken, FUNCTIONS) as (engine, _, _):
            run = await engine.start(language.sequence(3, "echo"), language.given({"i": 1, "n": ""}))
            await run.result()
            raw = await run.history(raw=True)
            followed = [event async for event in run.events(raw=True)]
            fork = await engine.fork(run.id, 3) if spoken == "drill" else None
            forked = [] if fork is None else await fork.history(raw=True)

        assert [event["seq"] for event in raw] == list(range(1, len(raw) + 1))
        assert all(isinstance(event["at"], int) and event["at"] >= raw[0]["at"] for event in raw)
        assert followed == raw
        if fork is not None:
            (mark,) = [event for event in forked if event["event"] == "RunForked"]
            assert mark["own_seq"] == mark["seq"] - 1
