"""Random Stories in random orders: every run ends, whatever crashes, cuts, cancels and redrives do to it."""

from random import Random
from typing import Any

import pytest

from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from tests.dialects.story.world import CORE, World, story

TERMINAL = {"Succeeded", "Failed", "Timeout", "Canceled", "Finished", "Aborted", "Skipped", "Compensated"}
CHILD = story("steps: [{name: nap, type: sleep, with: {duration: 3s}}]\noutput: {n: 1}", "child")


def document(random: Random) -> dict[str, Any]:
    """Any shape the language has, in three blocks."""
    blocks: dict[str, list[dict[str, Any]]] = {"steps": [], "compensations": [], "finally": []}
    seen: list[str] = []
    for block, most in (("steps", 7), ("compensations", 2), ("finally", 2)):
        for n in range(random.randint(1 if block == "steps" else 0, most)):
            step = _step(random, f"{block[0]}{n}", seen)
            blocks[block].append(step)
            seen.append(step["name"])
    policy: dict[str, Any] = {"retries": {"continueOnStepFailure": random.random() < 0.5}}
    if random.random() < 0.3:
        policy["concurrency"] = random.choice([1, 2])
    if random.random() < 0.3:
        policy["timeouts"] = {"story": random.choice(["2s", "20s"]), "step": "4s"}
    random.shuffle(blocks["steps"])
    spec = {**blocks, "policy": policy, "output": {"n": "{{ len steps }}"}}
    return {"apiVersion": CORE, "kind": "Story", "metadata": {"name": "random"}, "spec": spec}


def _step(random: Random, name: str, seen: list[str]) -> dict[str, Any]:
    step: dict[str, Any] = {"name": name, "needs": random.sample(seen, random.randint(0, min(2, len(seen))))}
    if seen and random.random() < 0.2:
        step["if"] = f'{{{{ ne steps.{random.choice(seen)}.phase "{random.choice(["Failed", "Skipped"])}" }}}}'
    if random.random() < 0.2:
        step["allowFailure"] = True
    kinds = ["engram", "engram", "engram", "sleep", "wait", "gate", "parallel", "condition", "executeStory", "stop"]
    kind = random.choice(kinds)
    match kind:
        case "engram":
            return {**step, **_engram(random)}
        case "sleep":
            return {**step, "type": kind, "with": {"duration": random.choice(["1s", "5s"])}}
        case "wait":
            other = random.choice([*seen, name])
            until = f'{{{{ eq steps.{other}.phase "Succeeded" }}}}'
            return {**step, "type": kind, "with": {"until": until, "timeout": "9s", "onTimeout": _fate(random)}}
        case "gate":
            return {**step, "type": kind, "with": {"timeout": "7s", "onTimeout": _fate(random)}}
        case "parallel":
            branches = [{"name": f"{name}-{n}", **_engram(random)} for n in range(random.randint(1, 3))]
            return {**step, "type": kind, "with": {"steps": branches}}
        case "executeStory":
            waits = random.random() < 0.8
            return {**step, "type": kind, "with": {"storyRef": {"name": "child"}, "waitForCompletion": waits}}
        case "stop" if random.random() < 0.5:
            mode = random.choice(["success", "failure", "cancel"])
            return {**step, "type": kind, "with": {"mode": mode}}
        case _:
            return {**step, "type": "condition"}


def _fate(random: Random) -> str:
    return random.choice(["fail", "skip"])


def _engram(random: Random) -> dict[str, Any]:
    step: dict[str, Any] = random.choice(
        [
            {"name": "echo", "with": {"n": 1}},
            {"name": "fail", "with": {}},
            {"name": "flaky", "with": {"times": random.randint(1, 5), "key": str(random.random())}},
            {"name": "slow", "with": {"seconds": random.choice([1, 6]), "stubborn": random.random() < 0.3}},
        ]
    )
    return {"ref": {"name": step["name"]}, "with": step["with"]}


def check(world: "RandomWorld") -> None:
    shown = world.show()
    status = shown["status"]
    assert world.life.is_over, status["stepStates"]
    assert status["phase"] in TERMINAL
    states = status["stepStates"]
    assert all(state["phase"] in TERMINAL and state["finishedAt"] >= state["startedAt"] for state in states.values())
    named = [step["name"] for block in ("steps", "compensations", "finally") for step in world.told["spec"][block]]
    assert set(named) <= set(states), "every step has a state in the end"
    assert status["stepsTotal"] == len(named)
    assert not world.permits, "nothing is held by a run that has ended"
    state = world.life.execution.state
    assert not (state.tasks or state.timers or state.permits)
    failed = [name for name in named if name.startswith("s") and states[name]["phase"] == "Failed"]
    if status["phase"] == "Succeeded":
        assert set(failed) <= set(status["allowedFailures"])


class RandomWorld(World):
    def __init__(self, story: dict[str, Any], **rest: Any) -> None:
        self.told = story
        super().__init__(story, others=[CHILD], **rest)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(150))
def test_a_random_story_ends(seed: int) -> None:
    """STY-056 STY-057 STY-117."""
    story = document(Random(seed))
    for way in ({}, {"seed": seed}, {"crash": True, "limits": Limits(slice=1)}):
        world = RandomWorld(story, **way)
        world.settle()
        check(world)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_a_random_story_can_be_cancelled_and_redriven_at_any_commit(seed: int) -> None:
    """STY-185 STY-188 STY-192."""
    story = document(Random(seed))
    whole = RandomWorld(story, seed=seed)
    whole.settle()
    for commits in range(1, len(whole.life.rows), max(1, len(whole.life.rows) // 4)):
        for word in ("cancel", "redrive"):
            world = RandomWorld(story, seed=seed, crash=True)
            while len(world.life.rows) < commits:
                world._next()
            if word == "cancel":
                world.tell(i.Cancel("stop"))
            else:
                world.steer("redrive", token="again")
            world.settle()
            check(world)
            if word == "cancel" and world.status["phase"] == "Finished":
                world.redrive(token="after")
                world.settle()
                check(world)
