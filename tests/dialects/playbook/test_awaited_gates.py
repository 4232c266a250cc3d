"""What a Playbook waits for from people."""

from pathlib import Path

from perdure.engine.runs import run_views
from perdure.testing import World

GATE = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: gate, path: tests/gate}
workflow:
  - step: ask
    spec: {policy: {admit: {rules: [{when: "{{ ctx.approved is defined }}", then: {allow: true}}]}}}
    tool: {kind: noop}
"""


async def test_a_gate_names_what_it_reads_and_the_command_that_releases_it(tmp_path: Path) -> None:
    """PBK-230."""
    async with World(tmp_path) as world:
        assert world.engine is not None
        handle = await world.engine.start(GATE.encode())
        await world.settle()
        row = await world.engine.find(handle.id)
        execution = await run_views.load(world.engine.store, world.engine.languages, row)

        (gate,) = execution.dialect.awaits(execution)

        assert "the gate of step 'ask' (ctx.approved)" in gate
        assert f"perdure patch {handle.id} --ctx" in gate
