"""Scenario folders: `playbook.yaml`, perhaps `workload.json`, and `expectation.json` beside each other.

An expectation names what must be in the run's object: members that it leaves out may be anything, lists are whole.
`steer` lists what an operator says whenever nothing else moves; `rules` cites the language.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perdure.dialects.playbook import Playbook
from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from tests.dialects.differences import differences
from tests.dialects.playbook.world import Answer, Work, World, applied
from tests.dialects.played import Stage

__all__ = ["WAYS", "Case", "Player", "all_cases", "differences", "play", "tools"]

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    name: str
    document: str
    workload: Any
    expected: dict[str, Any]
    steer: list[dict[str, Any]]
    children: dict[str, str]
    tells_of_crashes: bool = False


@cache
def all_cases() -> tuple[Case, ...]:
    return tuple(_read(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir())


def _read(folder: Path) -> Case:
    expected = json.loads((folder / "expectation.json").read_text())
    workload = folder / "workload.json"
    return Case(
        folder.name,
        (folder / "playbook.yaml").read_text(),
        json.loads(workload.read_text()) if workload.exists() else None,
        {name: value for name, value in expected.items() if name not in ("steer", "rules")},
        expected.get("steer", []),
        {file.stem: file.read_text() for file in folder.glob("*.yaml") if file.stem != "playbook"},
    )


def tools() -> dict[str, Work]:
    """The kinds that the cases use. `flaky` fails the first times it is called for a key."""
    calls: dict[str, int] = {}

    def flaky(arguments: dict[str, Any]) -> Any:
        key = str(arguments.get("key", ""))
        calls[key] = calls.get(key, 0) + 1
        if calls[key] <= arguments.get("times", 1):
            return Failed("server_error", f"call {calls[key]}")
        return arguments.get("value")

    def slow(arguments: dict[str, Any]) -> Any:
        return Answer(arguments.get("value"), after=int(arguments["seconds"] * SECOND))

    def fail(arguments: dict[str, Any]) -> Any:
        return Failed(arguments.get("kind", "unknown"), arguments.get("message", "it failed"))

    def say(arguments: dict[str, Any]) -> Any:
        return arguments.get("value")

    def claim(arguments: dict[str, Any]) -> Any:
        """`claim SIZE of TOTAL for KEY`: the rows of a frame, by the number in its key."""
        _, size, _, total, _, key = arguments["command"].split()
        if not total.isdecimal():
            return Failed("Provider.Call.Postgres.BadStatement", f"{total!r} is not a number", retryable=False)
        first = (int(key.split("/")[-2]) - 1) * int(size)
        rows = [{"id": number} for number in range(first, min(first + int(size), int(total)))]
        return {"rows": rows, "row_count": len(rows), "columns": ["id"]}

    kinds = {"say": say, "flaky": flaky, "slow": slow, "fail": fail, "echo": say, "playbook.secrets": say}
    return {**kinds, "postgres": claim}


VARIABLES = {"SHOP_TOKEN": "open-sesame", "SHOP_PIN": "pin-4711", "PERDURE_KEYCHAIN_ENV": "SHOP_*,NOT_SET"}


def play(case: Case, *, slots: int = 1_000, seed: int | None = None, crash: bool = False, slice: int = 1_000) -> World:
    world = World(
        case.document,
        case.workload,
        work=tools(),
        children=case.children,
        crash=crash,
        seed=seed,
        slots=slots,
        limits=Limits(slice=slice),
        variables=VARIABLES,
    )
    steer(world, case)
    return world


def steer(world: World, case: Case) -> None:
    """Until the end; what an operator says comes when nothing else moves."""
    messages = iter(case.steer)
    world.settle()
    while not world.is_over and (message := next(messages, None)) is not None:
        world.tell(input_of(message))
        world.settle()


def input_of(message: dict[str, Any], key: str = "") -> i.Input:
    """What an operator says; `key` names it, so that it can be said twice and count once."""
    if "patch" in message:
        return i.Steer("patch", jsontext.encode({"ctx": message["patch"]}), key, by="operator")
    if "cancel" in message:
        return i.Cancel(message["cancel"])
    return i.Steer(message["verb"], b"{}", key)


async def stage_play(case: Case, folder: Path, **options: Any) -> Stage:
    """The same through the real engine, on the store under test; the stage is left open."""
    work = tools()
    playbook = Playbook(work.__contains__, lambda: tuple(work))
    stage = Stage(folder, {"playbook": playbook}, work, variables=VARIABLES, **options)
    await stage.world.boot()
    await stage.begin("playbook", case.document.encode(), case.workload, {"applied": applied(case.children)})
    await stage.settle()
    for number, output in enumerate(case.steer):
        if await stage.is_over():
            break
        await stage.tell(input_of(output, f"said-{number}"))
        await stage.settle()
    return stage


Player = Callable[[Case], World]

WAYS: dict[str, Player] = {
    "many slots": lambda case: play(case),
    "one slot": lambda case: play(case, slots=1),
    "results in another order": lambda case: play(case, seed=1),
    "results in a third order, two slots": lambda case: play(case, seed=2, slots=2),
    "a crash after every commit": lambda case: play(case, crash=True),
    "a crash after every move, results shuffled": lambda case: play(case, crash=True, slice=1, seed=3),
}
