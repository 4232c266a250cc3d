"""Scenario folders: `story.yaml` (a Story and what it refers to) and `expectation.yaml` beside each other.

An expectation names what must be in the run's resource: members that it leaves out may be anything, lists are whole.
Besides it may hold `rules` (which it cites), `inputs`, `settings`, `options`, and `steer`: what happens from outside,
in order, each `at` so many seconds or else when nothing moves by itself any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perdure.dialects.story import Story
from perdure.documents import read_document
from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.tasks.crash_attribution import LossKind
from tests.dialects.played import Stage
from tests.dialects.story.world import Resource, World, bundle, providers, read
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

    @property
    def tells_of_crashes(self) -> bool:
        """Whether a crash would rightly show: restarts are counted, reports made twice, stubborn work died with it."""
        written = jsontext.encode([self.story, self.others, self.told]).decode()
        return any(word in written for word in ('"lose"', '"says"', '"stubborn"'))


@cache
def all_cases() -> tuple[Case, ...]:
    return tuple(_read(folder) for folder in sorted(FOLDER.iterdir()) if folder.is_dir())


def _read(folder: Path) -> Case:
    resources = read((folder / "story.yaml").read_text())
    for resource in resources:
        resource.setdefault("metadata", {}).setdefault("name", folder.name)
    expectation = read_document((folder / "expectation.yaml").read_bytes()).data
    return Case(folder.name, resources[0], resources[1:], expectation)


def play(case: Case, *, slots: int = ENOUGH, seed: int | None = None, crash: bool = False, slice: int = 1_000) -> World:
    script = case.told
    world = World(
        case.story,
        script.get("inputs"),
        others=case.others,
        settings=script.get("settings"),
        options=script.get("options"),
        missing=bool(script.get("missing")),
        slots=slots,
        seed=seed,
        crash=crash,
        limits=Limits(slice=slice),
    )
    for action in script.get("steer", []):
        world.settle(START + int(action["at"] * SECOND) if "at" in action else None)
        _say(world, action)
    world.settle()
    return world


def _say(world: World, action: dict[str, Any]) -> None:
    if not action.keys() - {"at"}:
        return  # only time passes
    if "lose" in action:
        tasks = world.life.execution.state.tasks
        number = next(number for number, task in tasks.items() if task.path == action["lose"])
        world.tell(i.TaskLost(number, tasks[number].delivery, "its process ended before it did", LossKind.ALONE))
    elif "apply" in action:
        world.apply(action["apply"])
    else:
        world.tell(input_of(action, is_over=world.life.is_over))


def input_of(action: dict[str, Any], *, is_over: bool, key: str = "") -> i.Input:
    """What somebody outside says to the run; `key` names it, so that it can be said twice and count once."""
    match action:
        case {"gate": gate}:
            return _steer("gate", key, **{"state": "Approved", **gate})
        case {"cancel": reason}:
            return i.Cancel(reason)
        case {"signal": {"name": name, "value": value}}:
            return i.Signal(name, jsontext.encode(value), key)
        case {"retry": step}:
            return _steer("retry", key, step=step)
        case {"redrive": redrive} if is_over:
            token = redrive.get("token", "again")
            return i.Reopen(jsontext.encode({"step": "", "token": token, **redrive}), token, by="operator")
        case {"redrive": redrive}:
            return _steer("redrive", key, **redrive)
    raise AssertionError(f"nobody can say {action}")


def _steer(verb: str, key: str, **details: Any) -> i.Steer:
    return i.Steer(verb, jsontext.encode(details), key, by="operator")


async def stage_play(case: Case, folder: Path, **options: Any) -> Stage:
    """The same through the real engine, on the store under test; the stage is left open."""
    script = case.told
    stage = Stage(folder, {"story": Story()}, providers(), **options)
    await stage.world.boot()
    text = bundle(case.story, case.others, script.get("settings"), missing=bool(script.get("missing")))
    await stage.begin("story", text, script.get("inputs"), {"name": "run", **script.get("options", {})})
    for number, action in enumerate(script.get("steer", [])):
        await stage.settle(START + int(action["at"] * SECOND) if "at" in action else None)
        if "lose" in action:
            await stage.lose(action["lose"])
        elif "apply" in action:
            await stage.apply(action["apply"])
        elif action.keys() - {"at"}:
            await stage.tell(input_of(action, is_over=await stage.is_over(), key=f"said-{number}"))
    await stage.settle()
    return stage


Player = Callable[[Case], World]

WAYS: dict[str, Player] = {
    "many slots": lambda case: play(case),
    "results in another order": lambda case: play(case, seed=1),
    "results in a third order": lambda case: play(case, seed=2),
    "a crash after every commit": lambda case: play(case, crash=True),
    "a crash after every move, results shuffled": lambda case: play(case, crash=True, slice=1, seed=3),
}
