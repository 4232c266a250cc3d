"""Stories to start in tests, and an engine for them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from perdure.stores.commit_types import Transition
from perdure.stores.protocol import ResourceRemoval, ResourceWrite, Store
from perdure.testing.world import World
from perdure.wiring import Engine
from tests.dialects.story.world import CORE, engram, story, template

RUNS = "runs.bubustack.io/v1alpha1"
CATALOG = "catalog.bubustack.io/v1alpha1"
ECHO = "engram:echo@1.0.0"
SAY = "steps: [{name: say, ref: {name: echo}, with: {n: '{{ inputs.n }}'}}]\noutput: {n: '{{ steps.say.output.n }}'}"
ORDERS = story(f"inputsSchema: {{type: object, properties: {{n: {{type: integer}}}}}}\n{SAY}", "orders")
NEEDED = [ORDERS, engram("echo"), template("echo")]
WORK: dict[str, Any] = {ECHO: lambda arguments, input: arguments["inputs"]}


def texts(*resources: Any) -> list[AppliedDocument]:
    return [AppliedDocument(f"{n}.json", jsontext.encode(resource).decode()) for n, resource in enumerate(resources)]


def story_run(name: str = "", *, inputs: Any = None, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    members = {} if inputs is None else {"inputs": inputs}
    named = {"name": name} if name else {}
    return {
        "apiVersion": RUNS,
        "kind": "StoryRun",
        "metadata": {**named, **(metadata or {})},
        "spec": {"storyRef": {"name": "orders"}, **members, **spec},
    }


def impulse(name: str = "hook", template: str = "webhook", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": CORE,
        "kind": "Impulse",
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, "storyRef": {"name": "orders"}, **spec},
    }


def impulse_template(name: str = "webhook", **spec: Any) -> dict[str, Any]:
    fixed = {"version": "1.0.0", "supportedModes": ["deployment"]}
    return {"apiVersion": CATALOG, "kind": "ImpulseTemplate", "metadata": {"name": name}, "spec": fixed | spec}


def engine_of(world: World) -> Engine:
    assert world.engine is not None
    return world.engine


async def runs(engine: Engine) -> list[dict[str, Any]]:
    """The StoryRuns there are, the latest first."""
    from perdure.stores.protocol import RunFilter

    return [await engine.show(row.id) for row in await engine.search(RunFilter())]


class DyingStore:
    """A store that dies at a chosen write of whatever sort, just before it is on disk or just after."""

    def __init__(self, inner: Store, write: int, *, after: bool) -> None:
        self._inner = inner
        self._write = write
        self._after = after
        self.writes = 0
        self.crashed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_at_once(self, batch: Sequence[Transition]) -> None:
        return None

    async def commit(self, batch: Sequence[Transition]) -> Any:
        return await self._reach(lambda: self._inner.commit(batch))

    async def write_catalog(self, changes: Sequence[ResourceWrite | ResourceRemoval]) -> Any:
        return await self._reach(lambda: self._inner.write_catalog(changes))

    async def remove(self, *arguments: Any) -> Any:
        return await self._reach(lambda: self._inner.remove(*arguments))

    def die_at(self, write: int) -> None:
        self._write = write

    async def _reach(self, write: Any) -> Any:
        self.writes += 1
        if self.writes == self._write:
            if self._after:
                await write()
            self.crashed.set()
        if self.crashed.is_set():
            await asyncio.Future()
        return await write()
