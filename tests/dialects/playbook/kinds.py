"""One task of a kind on the real engine, and what its outcome was."""

import json
from pathlib import Path
from typing import Any

import perdure
from tests.dialects.playbook.world import playbook


def task(kind: str, **fields: Any) -> str:
    """A playbook whose only task leaves its outcome in `ctx.seen`."""
    rules = [{"else": {"then": {"do": "continue", "set_ctx": {"seen": "{{ outcome }}"}}}}]
    spec = {**fields.pop("spec", {}), "policy": {"rules": rules}}
    return playbook("workflow: " + json.dumps([{"step": "a", "tool": {"kind": kind, "spec": spec, **fields}}]))


async def run(beside: Path, text: str, workload: Any = None) -> Any:
    """To its end, as if the document lay in the folder `beside`; answers with what `show` says."""
    async with perdure.Engine(f"sqlite:///{beside}/runs.db") as engine:
        handle = await engine.start(text.encode(), workload, options={"folder": str(beside)})
        await engine.wait(handle.id)
        return await handle.show()


async def outcome(beside: Path, kind: str, workload: Any = None, **fields: Any) -> Any:
    return (await run(beside, task(kind, **fields), workload))["ctx"]["seen"]
