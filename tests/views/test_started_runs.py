"""What a start answers without reading the run back is what a look at the run answers."""

import json
from pathlib import Path
from typing import Any

import perdure
from perdure.kernel.json_values.values import RunId
from perdure.views.runs.run_details import NewRunFacts, run_facts_json

SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
ECHO = "mwl:provider.call/perdure/echo/v1"
STORY = b"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: waits-for-code}
spec:
  steps:
  - {name: first, ref: started-missing}
"""


def _flow(**first: Any) -> bytes:
    steps = {"begin": first, "done": {"action": "Return", "value": 1}}
    return json.dumps({"$schema": SCHEMA, "entrypoint": "begin", "steps": steps}).encode()


def _call(provider: str) -> bytes:
    return _flow(action="Call", call={"provider": provider, "with": {}}, next="done")


async def _both(engine: perdure.Engine, document: bytes) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What the start told, what a look at the run tells, and how often the store was read for the first."""
    started, reads = NewRunFacts(engine), 0
    read = engine.store.find

    async def counted(run: RunId) -> Any:
        nonlocal reads
        reads += 1
        return await read(run)

    handle = await engine.start(document, name="started", labels={"team": "a"}, seen=started.seen)
    engine.store.find = counted  # type: ignore[method-assign]
    facts = await started.json(handle.id)
    engine.store.find = read  # type: ignore[method-assign]
    return facts, await run_facts_json(engine, handle.id), reads


async def test_a_start_is_answered_without_a_look_at_the_store(tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        ended, looked, reads = await _both(engine, _flow(action="Pass", next="done"))
        assert (ended, reads) == (looked, 0)
        assert (ended["status"], ended["owner"], ended["labels"]) == ("succeeded", None, {"team": "a"})

        failed, looked, reads = await _both(
            engine, _flow(action="Raise", result={"code": "Sold.Out", "message": "none left"})
        )
        assert (failed, reads) == (looked, 0)
        assert failed["error"]["code"] == "Sold.Out"

        slept, looked, reads = await _both(engine, _flow(action="Sleep", next="done", **{"for": "PT1H"}))
        assert reads == 0
        assert slept.keys() == looked.keys() and slept["owner"] == looked["owner"] == "live"
        assert len(slept["waits_for"]) == len(looked["waits_for"]) == 1

        asked, looked, reads = await _both(engine, _call(ECHO))
        assert (asked["tasks"], reads) == ({"done": 0, "open": 1}, 0)


async def test_a_start_tells_that_code_is_missing(tmp_path: Path) -> None:
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        facts, looked, _ = await _both(engine, STORY)
        assert facts == looked
        assert any("not loaded" in wait for wait in facts["waits_for"])
