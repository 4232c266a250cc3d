"""The way of a task's result through the engine is the one that ARCHITECTURE.md shows, in at most four files."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import perdure
from perdure.engine.tasks import dispatch

REPOSITORY = Path(__file__).parents[2]


def shown_path() -> list[tuple[str, str]]:
    """File and function, in order."""
    text = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(engine/[\w/]+\.py)` \| (.*?) \|", text, re.MULTILINE)
    return [(file, name.rpartition(".")[2]) for file, names in rows for name in re.findall(r"`([\w.]+)`", names)]


async def test_a_result_goes_the_way_that_is_shown(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []
    root = Path(dispatch.__file__).parents[2]

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(root)):
            calls.append((str(Path(frame.f_code.co_filename).relative_to(root)), frame.f_code.co_name))

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        sys.setprofile(watch)
        try:
            await (await engine.start(REPOSITORY / "examples/flows/first-call.json", "Ada")).result()
        finally:
            sys.setprofile(None)

    path = shown_path()
    position = 0
    for step in path:
        assert step in calls[position:], f"{step[0]} {step[1]} is not called after the step before it"
        position = calls.index(step, position)
    assert len({file for file, _ in path}) <= 4
    assert len(path) >= 8
