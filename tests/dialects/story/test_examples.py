"""Every example runs and gives what it promises."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.handle import RunFailed

EXAMPLES = Path(__file__).parents[3] / "examples" / "stories"

EXPECTED: dict[str, tuple[Any, Any]] = {
    "release": ({"env": "prod"}, {"tag": "prod-1", "approved": "Approved"}),
    "per_item": ({"items": [3, 4, 5]}, {"squares": [{"n": "9"}, {"n": "16"}, {"n": "25"}], "sum": "50"}),
}


def test_all_examples_are_listed() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == {
        *EXPECTED,
        "undo",
        "hello",
        "retry",
        "map",
    }  # the last three: tests/cli


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_gives_what_it_promises(name: str, tmp_path: Path) -> None:
    inputs, expected = EXPECTED[name]

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(EXAMPLES / f"{name}.yaml", inputs)
        if name == "release":
            await engine.steer(handle.id, "gate", {"step": "approve", "state": "Approved"}, by="Ada")
        assert await handle.result() == expected


async def test_what_is_undone_is_told(tmp_path: Path) -> None:
    """STY-086 STY-137."""
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(EXAMPLES / "undo.yaml")
        with pytest.raises(RunFailed, match="the card was refused"):
            await handle.result()
        shown = await handle.show()

    assert shown["status"]["phase"] == "Compensated"
    assert shown["stepRuns"]["tell"]["status"]["output"] == {"released": "12A"}
