"""Documents that are tried out: in virtual time, with mocks, cut when they take too long (SRV-083)."""

from pathlib import Path

import pytest

from perdure.kernel.errors import InvalidDocument, UnfitInput
from perdure.services.sandbox import MEMORY, sandbox

SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
POLLS = {
    "$schema": SCHEMA,
    "entrypoint": "rest",
    "steps": {"rest": {"action": "Sleep", "for": "PT1S", "next": "again"}, "again": {"action": "Pass", "next": "rest"}},
}


async def test_a_document_that_never_ends_is_cut_by_real_and_by_virtual_time() -> None:
    async with sandbox(POLLS, mocks={}, longest=0.3) as trial:
        assert trial.is_cut and not (await trial.engine.find(trial.run)).status.is_final
    async with sandbox(POLLS, mocks={}, most=5, longest=60) as trial:
        assert not trial.is_cut and 4 <= trial.seconds <= 5


async def test_nothing_is_left_behind() -> None:
    before = set(MEMORY.glob("perdure-sandbox-*")) if MEMORY.is_dir() else set[Path]()
    async with sandbox(POLLS, mocks={}, most=5) as trial:
        assert await trial.engine.history(trial.run)
    with pytest.raises(InvalidDocument):
        async with sandbox({"$schema": SCHEMA, "entrypoint": "x", "steps": {}}, mocks={}):
            pass
    assert not MEMORY.is_dir() or set(MEMORY.glob("perdure-sandbox-*")) <= before


@pytest.mark.parametrize("mock", [1, [], {"answers": 1}, {"failure": {}}, {"failure": {"code": "X", "why": 1}}, [{}]])
async def test_a_mock_is_an_answer_or_a_failure(mock: object) -> None:
    with pytest.raises(UnfitInput):
        async with sandbox(POLLS, mocks={"http": mock}):
            pass
