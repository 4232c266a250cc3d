"""Every example runs with the promised result."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import perdure
from perdure.dialects.playbook import Playbook
from perdure.kernel.documents.problems import Severity

EXAMPLES = Path(__file__).parents[3] / "examples" / "playbooks"

EXPECTED: dict[str, Any] = {
    "hello": "Hello, world!",
    "approval": {"paid": 250, "approved_by": "Ada"},
    "join": {"status": "success", "runs": 4, "worth": 28.5},
    "large": {"bytes": 498_917, "rows": 20_000},
    "pages": ["a", "b", "c"],
    "pull": {"items": 7, "worth": 14},
    "parallel": "1 of 3 orders are broken; 15 in total",
    "secrets": {
        "text": "two apples",
        "key": "[redacted]",
        "signature": "1ec219dff9cc1b17f7bd3baedf5311124a80facbb729e432d10b09bf2add950d",
    },
}


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    server = runpy.run_path(str(EXAMPLES / "items_server.py"))["serve"](0)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/items"
    server.shutdown()
    server.server_close()


def given(name: str, folder: Path, shop: str) -> Any:
    """What an example needs from outside."""
    return {"url": shop, "database": f"{folder}/items.db", "delay": 0.01} if name == "pull" else None


def test_all_examples_are_listed() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_gives_what_it_promises(
    name: str, tmp_path: Path, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_SECRET_SHOP_TOKEN", "open-sesame")
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / f"{name}.yaml").read_bytes()
    problems = Playbook().parse(text).problems
    assert [problem for problem in problems if problem.severity is Severity.ERROR] == []

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(text, given(name, tmp_path, shop))
        if name == "approval":
            await engine.steer(handle.id, "patch", {"ctx": {"approved": True, "by": "Ada"}})
        answer = await handle.result()

    assert answer["result"] == EXPECTED[name]


async def test_pulling_twice_stores_every_item_once(tmp_path: Path, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is refused once and then comes; no row is there twice."""
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "pull.yaml").read_bytes()

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        for _ in range(2):
            handle = await engine.start(text, given("pull", tmp_path, shop))
            await engine.wait(handle.id)
        answer = await handle.show()

    assert answer["result"] == EXPECTED["pull"] and answer["ctx"]["page"] == 3
    assert answer["steps"]["pull"]["task_runs"] == {"fetch": 3, "store": 3}
    assert answer["steps"]["pull"]["task_attempts"] == {"fetch": 6, "store": 3}
