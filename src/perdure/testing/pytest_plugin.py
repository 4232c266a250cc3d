"""Fixtures for pytest, found through the entry point `perdure`. Every pytest run imports this module: nothing else of
Perdure is imported until a test asks for a fixture.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testing.world import World


@pytest.fixture
def perdure_world(tmp_path: Path) -> "Callable[..., World]":
    """Makes a world with a store of its own: `async with perdure_world(mocks={…}) as world`."""
    from perdure.testing.world import World

    count = 0

    def make(**options: Any) -> "World":
        nonlocal count
        count += 1
        folder = tmp_path / f"world-{count}"
        folder.mkdir()
        return World(folder, **options)

    return make


@pytest.fixture
def perdure_run(perdure_world: "Callable[..., World]") -> Callable[..., Any]:
    """Runs a document to its end and returns its result: `perdure_run(document, input, mocks={…})`.

    Time passes as the run needs it: sleeps, retries and timeouts do not take any. Raises `perdure.RunFailed` if the run
    fails, and `TimeoutError` with what it waits for if it needs somebody.
    """
    import asyncio

    def run(document: Any, input: Any = None, *, timeout: float = 10.0, **options: Any) -> Any:
        async def to_the_end() -> Any:
            async with perdure_world(**options) as world:
                started = await world.start(document, input)
                await world.advance_to_end(started)
                return await started.result(timeout)

        return asyncio.run(to_the_end())

    return run
