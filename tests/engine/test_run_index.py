"""CON-021: whoever looks at a long run reads its events once, whatever is asked about it, and then what is new."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.runs import run_index, run_views
from perdure.engine.runs.run_index import RunIndex, indexes_of
from perdure.kernel.errors import EventNotFound
from perdure.kernel.graphs.run_trace import trace_turns
from perdure.kernel.json_values import jsontext
from perdure.testing import World
from perdure.views.access import Scope
from perdure.views.runs.graph_folding import graph_of_run
from perdure.views.runs.run_causes import explain_run
from perdure.views.runs.run_details import run_facts_json, status_json
from perdure.views.runs.run_steps import describe_step, list_steps
from perdure.views.runs.timeline import TimelineJsonQuery, read_timeline_json

ITEMS = 400
PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "loop", "path": "loop"},
    "workload": {"rows": list(range(ITEMS))},
    "workflow": [
        {
            "step": "each",
            "loop": {"in": "{{ workload.rows }}", "iterator": "row"},
            "tool": {"kind": "noop", "result": {"n": "{{ iter.row }}"}},
        }
    ],
}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "each",
    "steps": {
        "each": {"action": "Gather", "over": "{{ step.input }}", "call": {"flow": "One"}, "next": "done"},
        "done": {"action": "Return", "value": "{{ size(step.input) }}"},
    },
    "flows": {
        "One": {
            "entrypoint": "a",
            "steps": {"a": {"action": "Pass", "output": "{{ step.input }}", "next": "b"}, "b": {"action": "Return"}},
        }
    },
}
STORY = {
    "apiVersion": "bubustack.io/v1alpha1",
    "kind": "Story",
    "metadata": {"name": "squares"},
    "spec": {
        "steps": [
            {
                "name": "each",
                "ref": "map-reduce-adapter",
                "with": {
                    "items": list(range(60)),
                    "map": {"story": {"steps": [{"name": "one", "type": "condition"}]}, "concurrency": 20},
                },
            }
        ]
    },
}
CASES = {"playbook": (PLAYBOOK, None), "flow": (FLOW, list(range(ITEMS))), "story": (STORY, None)}


async def look(engine: perdure.Engine, run: Any) -> list[Any]:
    """Everything that the page of a run asks for."""
    asked = [
        run_facts_json(engine, run),
        list_steps(engine, run),
        status_json(engine, run),
        explain_run(engine, run),
        graph_of_run(engine, run),
        read_timeline_json(engine, Scope(run), TimelineJsonQuery(alike=12)),
        describe_step(engine, run, "each", 100, None),
    ]
    return list(await asyncio.gather(*asked))


@pytest.mark.parametrize("language", CASES)
@pytest.mark.sampled(2)
async def test_a_page_with_all_views_of_a_run_reads_its_events_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.setattr(run_index, "WORTH_KEEPING", 1)
    document, input = CASES[language]
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        run = await engine.start(json.dumps(document).encode(), input)
        await run.result()
        execution = await engine.execution(run.id)
        indexes = indexes_of(engine.store)

        shown = await look(engine, run.id)

        assert indexes.events_read == execution.state.seq > 200
        assert len(jsontext.encode(shown)) < 70_000, "what the page is sent does not grow with the run"
        again = await look(engine, run.id)
        assert indexes.events_read == execution.state.seq, "nothing is read again"
        assert again == shown

        history = await engine.history(run.id)
        facts = dict(zip(("run", "steps", "status", "why", "graph", "timeline", "step"), shown, strict=True))
        assert facts["status"]["last_seq"] == len(history) == history[-1]["seq"]
        assert facts["why"]["chain"][-1]["seq"] == 1
        (each,) = [step for step in facts["steps"] if step["step"] == "each"]
        total = 60 if language == "story" else ITEMS
        assert each["items"] == {"total": total, "done": total, "failed": 0}
        whole = await read_timeline_json(engine, Scope(run.id), TimelineJsonQuery())
        assert len(whole["steps"]) == whole["visits"] == facts["timeline"]["visits"]
        assert sum(step.get("count", 1) for step in facts["timeline"]["steps"]) <= whole["visits"]


@pytest.mark.parametrize("language", CASES)
async def test_a_moment_is_read_up_to_it_and_the_next_one_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    """CON-003: playing a run forwards reads each event once."""
    monkeypatch.setattr(run_index, "WORTH_KEEPING", 1)
    document, input = CASES[language]
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        run = await engine.start(json.dumps(document).encode(), input)
        await run.result()
        row = await engine.find(run.id)
        dialect = engine.languages[row.language]
        turns = await run_views.turns(engine.store, dialect, run.id)
        numbers = list(range(1, sum(len(events) for _, events in turns) + 1))
        if dialect.has_own_history:
            numbers = [recorded for recorded, _ in run_views.tell(dialect, run.id, turns)]
        indexes = indexes_of(engine.store)

        for at in (3, 4, 40, len(numbers) - 1):
            before = indexes.events_read
            place = await run_index.read_index(
                engine.store, engine.languages, row, lambda index: (index.recorded, index.times[-1]), at
            )
            assert place[0] == numbers[at - 1], at
            assert indexes.events_read - before <= numbers[at - 1]
            program = await run_views.program_of(engine.store, dialect, row)
            trace = trace_turns(dialect.tracer(program), run_views.cut(turns, numbers[at - 1]))
            seen = await run_index.read_index(
                engine.store, engine.languages, row, lambda index: [repr(visit) for visit in index.trace.visits], at
            )
            assert seen == [repr(visit) for visit in trace.visits]
        assert indexes.events_read <= numbers[len(numbers) - 2], "each moment went on from the one before"
        with pytest.raises(EventNotFound):
            await list_steps(engine, run.id, len(numbers) + 1)


async def test_a_run_that_grows_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "WORTH_KEEPING", 1)
    flow = {
        "$schema": FLOW["$schema"],
        "entrypoint": "nap",
        "steps": {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": {"action": "Return"}},
    }
    async with World(tmp_path) as world:
        run = await world.start(flow)
        assert world.engine is not None
        engine = world.engine
        indexes = indexes_of(engine.store)
        assert [step["status"] for step in await list_steps(engine, run.id)] == ["waits"]
        read = indexes.events_read
        await world.advance(3_600)
        assert [step["status"] for step in await list_steps(engine, run.id)] == ["done", "done"]
        state = (await engine.execution(run.id)).state
        assert 0 < read < indexes.events_read == state.seq
        past = await list_steps(engine, run.id, read)
        assert [step["status"] for step in past] == ["waits"], "the present does not change what was"


async def test_few_indexes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "WORTH_KEEPING", 1)
    monkeypatch.setattr(run_index, "MOST_KEPT", 3)
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        runs = [await engine.start(json.dumps(FLOW).encode(), [1, 2]) for _ in range(5)]
        for run in runs:
            await run.result()
            await list_steps(engine, run.id)
        kept: list[RunIndex] = list(indexes_of(engine.store)._kept.values())
        assert [index.run[0] for index in kept] == [run.id for run in runs[-3:]]
        monkeypatch.setattr(run_index, "MOST_EVENTS", kept[-1].last + 1)
        await list_steps(engine, runs[0].id)
        assert [index.run[0] for index in indexes_of(engine.store)._kept.values()] == [runs[0].id]
