"""A foreground process stays until everything below its run has ended."""

import json

from tests.cli.commandline import CommandLine

SLOW = """
import asyncio
import os
import perdure

@perdure.provider("slow")
async def slow(value=None):
    os.write(1, b"begun\\n")  # what is printed goes to the logs of the run
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(1)
"""

KID = {"drill": 1, "name": "kid", "steps": [{"call": "slow"}]}
PLAYBOOK = {
    "apiVersion": "noetl.io/v10",
    "kind": "Playbook",
    "metadata": {"name": "above", "path": "above"},
    "workflow": [{"step": "a", "tool": {"kind": "playbook", "path": "kid"}}],
}


def test_run_stays_until_the_children_of_a_cancelled_playbook_have_stopped(perdure: CommandLine) -> None:
    """PBK-191: the execution is cancelled at once, its cascade goes on; nothing is left without an owner."""
    (perdure.folder / "slow.py").write_text(SLOW)
    (perdure.folder / "kid.json").write_text(json.dumps(KID))
    (perdure.folder / "above.yaml").write_text(json.dumps(PLAYBOOK))
    running = perdure.start("run", "above.yaml", "--apply", "kid.json", "--load", "slow.py")
    run = running.run
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == "begun\n"
    perdure.here("cancel", run)
    running.end()

    rows = perdure.here("ps", "--all", "--json").json
    assert {row["status"] for row in rows} == {"cancelled"} and len(rows) == 2
