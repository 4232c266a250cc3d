"""Writers of the same catalog entries retry, each over what the others have written, and give up in the end."""

import asyncio
import re
from pathlib import Path

import pytest

import perdure
from perdure.engine.resources import catalog_changes
from perdure.engine.resources.catalog_changes import TRIES, retry_on_conflict
from perdure.kernel.errors import Conflict
from perdure.stores.protocol import CatalogConflict

FAILURE = Conflict("others keep changing it")


async def test_all_of_many_writers_succeed() -> None:
    version = 0

    async def write() -> int | CatalogConflict:
        nonlocal version
        seen = version
        await asyncio.sleep(0)
        if version != seen:
            return CatalogConflict([])
        version += 1
        return seen

    seen = await asyncio.gather(*[retry_on_conflict(write, FAILURE) for _ in range(20)])

    assert sorted(seen) == list(range(20))


async def test_an_endless_conflict_is_the_failure_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_changes, "LONGEST_PAUSE", 0.0)
    calls = 0

    async def write() -> CatalogConflict:
        nonlocal calls
        calls += 1
        return CatalogConflict([])

    with pytest.raises(Conflict, match="keep changing"):
        await retry_on_conflict(write, FAILURE)

    assert calls == TRIES


def test_nobody_retries_by_hand() -> None:
    """A loop around a write to the catalog belongs into `retry_on_conflict`."""
    loop = re.compile(r"\n( +)(?:for|while) [^\n]*:\n(?:\1 [^\n]*\n|\n)*?\1 [^\n]*write_catalog\(")
    files = [path for path in Path(perdure.__file__).parent.rglob("*.py") if "write_catalog(" in path.read_text()]

    assert len(files) > 5
    assert [path.name for path in files if loop.search(path.read_text())] == []
