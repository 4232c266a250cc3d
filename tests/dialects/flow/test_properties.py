"""Random Flows: they end, leave nothing behind, and do the same however they are split and crashed."""

import random
from typing import Any

import pytest

from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from tests.dialects.flow.documents import call, cleanup, flow, inner, middleware, mock, retry, returns, task, timeout
from tests.dialects.flow.test_cases import assert_nothing_is_left
from tests.dialects.flow.world import Answer, World

DELAYS = ("PT0S", "PT1S", "PT2S", "PT3S", "PT7S")
LIMITS = Limits(slice=1, moves=4_000)


class Author:
    """Writes Flows of every construct, most of them senseless."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def flow(self, depth: int = 3) -> dict[str, Any]:
        names = [f"s{at}" for at in range(self._random.randint(1, 3))]
        steps = {}
        for name, following in zip(names, [*names[1:], "done"], strict=True):
            steps[name] = self._step(following, depth)
        steps["done"] = self._random.choice([returns(), {"action": "Raise"}, returns("{{ vars }}")])
        steps["caught"] = self._random.choice(
            [returns("{{ failure.code }}"), {"action": "Raise"}, self._shaping("done")]
        )
        return inner(steps, middleware=self._stack(depth))

    def _step(self, following: str, depth: int) -> dict[str, Any]:
        match self._random.randrange(6):
            case 0:
                return self._shaping(following)
            case 1:
                return {"action": "Sleep", "for": self._random.choice(DELAYS), "next": following}
            case 2 if depth > 0:
                return self._gather(following, depth - 1)
            case _:
                made = call(
                    self._call(depth),
                    following,
                    middleware=self._stack(depth),
                    assign={"last": "{{ step.result.value }}"},
                )
                return {**made, "catch": self._catch()}

    def _shaping(self, following: str) -> dict[str, Any]:
        output = self._random.choice(
            ["{{ step.input }}", "{{ vars.nope }}", 1, "{{ has(vars.last) ? vars.last : null }}"]
        )
        return {"action": "Pass", "output": output, "assign": {"x": "{{ step.name }}"}, "next": following}

    def _catch(self) -> list[dict[str, Any]]:
        if self._random.random() < 0.6:
            return []
        return [{"match": {"codes": [self._random.choice(["*", "F", "System.*"])]}, "next": "caught"}]

    def _gather(self, following: str, depth: int) -> dict[str, Any]:
        completion = {"successes": self._random.randint(0, 3), "wait": self._random.random() < 0.3}
        return {
            "action": "Gather",
            "calls": [self._call(depth) for _ in range(self._random.randint(1, 3))],
            "completion": completion,
            "concurrency": self._random.choice([None, 1, 2]),
            "catch": self._catch(),
            "next": following,
        }

    def _call(self, depth: int) -> dict[str, Any]:
        target = self._target(depth)
        if self._random.random() < 0.3:
            target["onSuccess"] = {
                "assign": {"arm": self._random.choice(["{{ call.result.value }}", "{{ vars.nope }}"])}
            }
        return target

    def _target(self, depth: int) -> dict[str, Any]:
        match self._random.randrange(5):
            case 0 if depth > 0:
                return {"flow": self.flow(depth - 1)}
            case 1:
                return mock(delay=self._random.choice(DELAYS), failure={"code": "F"})
            case 2:
                return task("work", delay=self._random.randint(0, 4), stubborn=self._random.random() < 0.3)
            case _:
                return mock(delay=self._random.choice(DELAYS))

    def _stack(self, depth: int) -> list[dict[str, Any]]:
        return [self._entry(depth) for _ in range(self._random.choice([0, 0, 1, 2, 3]))]

    def _entry(self, depth: int) -> dict[str, Any]:
        match self._random.randrange(4):
            case 0:
                return timeout(
                    self._random.choice(DELAYS), onAlways={"assign": {"bounded": "{{ middleware.result.type }}"}}
                )
            case 1:
                backoff = {"initial": self._random.choice(DELAYS)} if self._random.random() < 0.5 else None
                return retry(2, self._random.choice(["*", "F"]), backoff=backoff)
            case 2:
                return middleware("loop", onSuccess={"when": "{{ middleware.metadata.iteration < 2 }}"})
            case _:
                return cleanup(self._call(depth - 1), *self._stack(0))


def work(arguments: dict[str, Any], value: Any) -> Answer:
    return Answer(value, after=arguments["delay"] * SECOND, stubborn=arguments["stubborn"])


def world(document: dict[str, Any], **options: Any) -> World:
    return World(document, {"in": 1}, work={"work": work}, **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_a_random_flow_does_the_same_however_it_is_cut_and_crashed(seed: int) -> None:
    document = flow({"c": call({"flow": Author(seed).flow()}), "done": returns()})
    whole = world(document)
    result = whole.run()
    assert_nothing_is_left(whole)

    cut = world(document, crash=True, limits=LIMITS)

    assert jsontext.canonical(cut.run()) == jsontext.canonical(result)
    assert cut.now == whole.now
    assert_nothing_is_left(cut)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40, 60))
def test_a_random_flow_can_be_cancelled_at_any_time(seed: int) -> None:
    document = flow({"c": call({"flow": Author(seed).flow()}), "done": returns()})
    whole = world(document, limits=LIMITS)
    whole.run()
    for commits in range(1, len(whole.rows), max(1, len(whole.rows) // 8)):
        cancelled = world(document, crash=True, limits=LIMITS, cancel_after=commits)

        assert cancelled.run()["type"] != "success"
        assert_nothing_is_left(cancelled)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pace", [100_000, 333_333, 1_000_000])
@pytest.mark.parametrize("seed", range(60, 72))
def test_a_random_flow_on_a_slow_machine_ends_and_leaves_nothing_behind(seed: int, pace: int) -> None:
    """Every move takes its time, so deadlines come between any two of them."""
    document = flow({"c": call({"flow": Author(seed).flow()}), "done": returns()})
    slow = world(document, crash=True, limits=LIMITS)
    slow.pace = pace

    slow.run()

    assert_nothing_is_left(slow)
