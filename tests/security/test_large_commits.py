"""Large values are written where they hold up nobody, and none is larger than a store takes."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.kernel.errors import PerdureError
from perdure.kernel.execution import Execution
from perdure.kernel.inputs import Proceed
from perdure.kernel.json_values import large_values
from perdure.kernel.json_values.values import Ref, RunId, digest
from perdure.kernel.turn import MissingValues, Turn
from perdure.stores.sqlite.batch_writer import BatchWriter
from perdure.testing.drill import Drill
from tests.server.serving import RETURNS


@pytest.mark.parametrize(("size", "is_on_loop"), [(10, True), (2_000_000, False)])
def test_a_large_value_is_not_written_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_on_loop: bool
) -> None:
    """SQLite copies a value several times: 60 MB took 200 ms, in which no other run was decided."""
    places: list[bool] = []
    write = BatchWriter.write

    def watched(self: BatchWriter, batch: Any, *rest: Any) -> Any:
        if any(len(change.row or b"") + sum(len(text) for _, text in change.values) > size for change in batch):
            places.append(threading.current_thread() is threading.main_thread())
        return write(self, batch, *rest)

    def hashed(payload: bytes) -> bytes:
        places.append(threading.current_thread() is threading.main_thread())
        return digest(payload)

    monkeypatch.setattr(BatchWriter, "write", watched)
    monkeypatch.setattr(large_values, "digest", hashed)

    async def play() -> None:
        async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
            await (await engine.start(document(), "x" * size)).result()

    asyncio.run(play())
    assert places and all(place is is_on_loop for place in places)


def document() -> dict[str, Any]:
    from perdure.dialects.flow.document.flows import FLOW_SCHEMA

    step = {"action": "Return", "value": "{{ step.input.size() }}"}
    return {"$schema": FLOW_SCHEMA, "entrypoint": "r", "steps": {"r": step}}


async def ended(tmp_path: Path, document: Any, input: Any) -> str:
    """How the run ends, which must not get stuck; another one goes on beside it."""
    async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
        run = await engine.start(document, input)
        with pytest.raises(PerdureError) as failure:
            async with asyncio.timeout(60):
                await run.result()
        return str(failure.value)


@pytest.mark.sampled(2)
async def test_results_of_a_gather_that_are_too_large_together_end_the_run(tmp_path: Path) -> None:
    """A thousand results of 1 MB took 5 GB, and no store takes what they are together: it was tried for ever."""
    inside = {"entrypoint": "r", "steps": {"r": {"action": "Return", "value": "{{ vars.text }}"}}}
    parameters = {"type": "object", "properties": {"text": {}}}
    call = {"flow": {**inside, "parameters": parameters}, "with": {"text": "{{ frame.input }}"}}
    steps = {
        "g": {"action": "Gather", "over": list(range(150)), "call": call, "next": "r"},
        "r": {"action": "Return", "value": "{{ step.input.size() }}"},
    }
    flow = {"$schema": document()["$schema"], "entrypoint": "g", "steps": steps}
    assert "bytes at once" in await ended(tmp_path, flow, "x" * 1_000_000)


async def test_failures_of_a_gather_that_are_too_large_together_end_the_run(tmp_path: Path) -> None:
    """Each of them quotes the argument that was refused."""
    call = {"provider": "mwl:provider.call/perdure/echo/v1", "with": {"unknown": "{{ frame.input }}"}}
    steps = {
        "g": {"action": "Gather", "over": list(range(150)), "call": call, "next": "r"},
        "r": {"action": "Return", "value": 1},
    }
    flow = {"$schema": document()["$schema"], "entrypoint": "g", "steps": steps}
    assert "bytes at once" in await ended(tmp_path, flow, "x" * 1_000_000)


FLOW = {**document(), "steps": {"r": {"action": "Return", "value": "{{ step.input.text + step.input.text }}"}}}
PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "p", "path": "p"},
    "keychain": [],
    "workload": {"more": 1},
    "workflow": [{"step": "start", "tool": {"kind": "noop"}}],
}


@pytest.mark.parametrize("language", [FLOW, PLAYBOOK], ids=["flow", "playbook"])
async def test_a_value_that_is_too_large_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: Any
) -> None:
    monkeypatch.setattr(large_values, "LARGEST_VALUE", 200_000)
    assert "bytes" in await ended(tmp_path, language, {"text": "x" * 200_000})


@pytest.mark.parametrize(("bound", "read"), [("LARGEST_VALUE", "all_texts"), ("MOST_READ", "text")])
def test_what_one_decision_reads_is_bounded(monkeypatch: pytest.MonkeyPatch, bound: str, read: str) -> None:
    drill = Drill()
    deciding = Turn(Execution(RunId("r"), drill, drill.load(msgspec.json.encode(RETURNS))), Proceed(), 0, 0)
    large = [Ref(bytes([number]), 60) for number in range(2)]
    with pytest.raises(MissingValues):
        deciding.all_texts(large)
    monkeypatch.setattr(large_values, bound, 100)
    deciding.texts[large[0].digest] = b"x" * 60
    with pytest.raises(large_values.ValuesTooLarge):
        deciding.all_texts(large) if read == "all_texts" else deciding.text(large[1])
