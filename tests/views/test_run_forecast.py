"""What runs of each language are foretold from their history (ANA-040), as `perdure forecast` and the API ask."""

import asyncio
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

import perdure
from perdure.kernel.errors import RunNotFound
from perdure.kernel.json_values.values import RunId
from perdure.views.access import NO_RUN, NoParameters, Scope
from perdure.views.runs.run_forecast import ForecastQuery, read_forecast, read_run_forecast

FLOW = """
{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "begin", "steps": {
  "begin": {"action": "Pass", "next": "done"}, "done": {"action": "Return", "value": 1}}}
"""
STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: shop}
spec: {steps: [{name: begin, type: condition}, {name: done, type: condition, needs: [begin]}]}
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: shop, path: shop}
workflow:
  - {step: begin, tool: {kind: noop}, next: {arcs: [{step: done}]}}
  - {step: done, tool: {kind: noop}}
"""
DOCUMENTS = {"flow": FLOW, "story": STORY, "playbook": PLAYBOOK}


@pytest.mark.parametrize("language", DOCUMENTS)
def test_runs_of_a_document_are_foretold(language: str, tmp_path: Path) -> None:
    document = tmp_path / "shop.doc"
    document.write_text(DOCUMENTS[language])
    url = f"sqlite:///{tmp_path}/runs.db"
    run = asyncio.run(_foretell(document, url))
    for about in ("shop", run):
        shown = CommandLine(tmp_path).here("forecast", about, "--db", url).out
        assert "from 2" in shown and "begin" in shown


async def _foretell(document: Path, url: str) -> RunId:
    everywhere = Scope(NO_RUN, None)
    async with perdure.Engine(url) as engine:
        for _ in range(3):
            await (await engine.start(document)).result()
        few = await read_forecast(engine, everywhere, ForecastQuery(name="shop"))
        assert (few["runs"], few["is_enough"], few["seconds"], few["steps"]) == (3, False, None, [])
        handles = [await engine.start(document) for _ in range(18)]
        for handle in handles:
            await handle.result()
        facts = await read_forecast(engine, everywhere, ForecastQuery(name="shop"))
        assert (facts["runs"], facts["is_enough"], facts["failed"], facts["same_version"]) == (21, True, 0.0, True)
        assert [(step["step"], step["runs"]) for step in facts["steps"]] == [("begin", 21), ("done", 21)]
        own = await read_run_forecast(engine, Scope(handles[0].id, None), NoParameters())
        assert (own["runs"], own["is_over"], own["expected"]["ends_at"]) == (20, True, None)
        with pytest.raises(RunNotFound, match="no run has the name 'shop'"):
            await read_forecast(engine, Scope(NO_RUN, ["elsewhere"]), ForecastQuery(name="shop"))
        return handles[0].id
