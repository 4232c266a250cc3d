"""Every example runs and gives what it promises."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.dialects.playbook import Playbook
from perdure.kernel.problems import Severity

EXAMPLES = Path(__file__).parents[3] / "examples" / "playbooks"

EXPECTED: dict[str, Any] = {
    "hello": "Hello, world!",
    "approval": {"paid": 250, "approved_by": "Ada"},
    "join": {"status": "success", "runs": 4, "worth": 28.5},
    "large": {"bytes": 498_917, "rows": 20_000},
    "pages": ["a", "b", "c"],
    "parallel": "1 of 3 orders are broken; 15 in total",
}


def test_all_examples_are_listed() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_gives_what_it_promises(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.yaml").read_bytes()
    problems = Playbook().parse(text).problems
    assert [problem for problem in problems if problem.severity is Severity.ERROR] == []

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(text)
        if name == "approval":
            await engine.steer(handle.id, "patch", {"ctx": {"approved": True, "by": "Ada"}})
        answer = await handle.result()

    assert answer["result"] == EXPECTED[name]
