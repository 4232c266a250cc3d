"""Scenario folders: `story.yaml` (a Story and what it refers to) and `expectation.yaml` beside each other.

An expectation names what must be in the run's resource: members that it leaves out may be anything, lists are whole.
Besides it may hold `rules` (which it cites), `inputs`, `settings`, `options`, and `steer`: what happens from outside,
in order, each `at` so many seconds or else when nothing moves by itself any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.documents import read_document
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.execution import Limits
from perdure.kernel.values import SECOND
from tests.dialects.story.world import Resource, World, read
from tests.dialects.universe import ENOUGH, START

FOLDER = Path(__file__).parent / "cases"
_TOLD = ("rules", "inputs", "settings", "options", "steer", "missing", "children", "orders")


@dataclass(frozen=True)
class Case:
    name: str
    story: Resource
    others: list[Resource]
    told: dict[str, Any]

    @property
    def expected(self) -> dict[str, Any]:
        return {name: value for name, value in self.told.items() if name not in _TOLD}


def all_cases() -> list[Case]:
    return [_read(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir()]


def _read(folder: Path) -> Case:
    resources = read((folder / "story.yaml").read_text())
    for resource in resources:
        resource.setdefault("metadata", {}).setdefault("name", folder.name)
    expectation = read_document((folder / "expectation.yaml").read_bytes()).data
    return Case(folder.name, resources[0], resources[1:], expectation)


def play(case: Case, *, slots: int = ENOUGH, seed: int | None = None, crash: bool = False, slice: int = 1_000) -> World:
    told = case.told
    world = World(
        case.story,
        told.get("inputs"),
        others=case.others,
        settings=told.get("settings"),
        options=told.get("options"),
        missing=bool(told.get("missing")),
        slots=slots,
        seed=seed,
        crash=crash,
        limits=Limits(slice=slice),
    )
    for said in told.get("steer", []):
        world.settle(START + int(said["at"] * SECOND) if "at" in said else None)
        _say(world, said)
    world.settle()
    return world


def _say(world: World, said: dict[str, Any]) -> None:
    if "gate" in said:
        world.decide(**said["gate"])
    elif "cancel" in said:
        world.tell(i.Cancel(said["cancel"]))
    elif "signal" in said:
        world.tell(i.Signal(said["signal"]["name"], jsontext.encode(said["signal"]["value"])))
    elif "retry" in said:
        world.steer("retry", step=said["retry"])
    elif "redrive" in said:
        if world.life.is_over:
            world.redrive(**said["redrive"])
        else:
            world.steer("redrive", **said["redrive"])
    elif "lose" in said:
        tasks = world.life.execution.state.tasks
        number = next(number for number, task in tasks.items() if task.path == said["lose"])
        world.tell(i.TaskLost(number, tasks[number].delivery, "its process ended before it did"))
    elif "apply" in said:
        world.apply(said["apply"])


Player = Callable[[Case], World]

WAYS: dict[str, Player] = {
    "many slots": lambda case: play(case),
    "results in another order": lambda case: play(case, seed=1),
    "results in a third order": lambda case: play(case, seed=2),
    "a crash after every commit": lambda case: play(case, crash=True),
    "a crash after every move, results shuffled": lambda case: play(case, crash=True, slice=1, seed=3),
}
