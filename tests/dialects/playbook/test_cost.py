"""What a Playbook costs, counted: events, bytes and calls per step and per branch do not grow with their number."""

import sys
from collections import OrderedDict
from dataclasses import dataclass
from types import FrameType
from typing import Any

import msgspec
import pytest
from bench.languages.playbook import LANGUAGE

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.values import Value
from tests.dialects.playbook.world import World


@dataclass(frozen=True)
class Cost:
    events: float
    bytes: float
    calls: float
    """Of functions, built-in ones too, by Perdure's own code."""

    def is_at_most(self, other: "Cost", factor: float) -> bool:
        mine, others = (self.events, self.bytes, self.calls), (other.events, other.bytes, other.calls)
        return all(item <= another * factor for item, another in zip(mine, others, strict=True))


def cost(document: bytes, value: Any, steps: int) -> Cost:
    """Per step, of a whole run with a task in each."""
    world = World(document, value, work={"echo": lambda arguments: arguments["value"]})
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and "/perdure/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        view = world.settle()
    finally:
        sys.setprofile(None)
    assert view["status"] == "success"
    assert len(world.performed) == steps
    return Cost(len(world.events) / steps, sum(map(len, world.rows)) / steps, calls / steps)


def fan(width: int) -> Cost:
    return cost(LANGUAGE.fan(width, "echo"), {}, width)


def sequence(length: int) -> Cost:
    return cost(LANGUAGE.sequence(length, "echo"), LANGUAGE.given({"i": 1}), length)


def test_a_plain_step_is_few_events_and_few_calls() -> None:
    """A bound stands about a tenth above what it is today, so that a change which does more has to say so here."""
    sequence(10)
    fan(10)
    step, branch = sequence(120), fan(500)

    assert step.events < 5.1, "its task ended, it passed, what is next, a task scheduled, an attempt started"
    assert step.calls < 235
    assert branch.events < 5.1, "an iteration started in place of what is next"
    assert branch.calls < 185


def test_a_branch_costs_the_same_at_any_width() -> None:
    fan(10)  # first uses

    assert fan(2_000).is_at_most(fan(500), 1.05), "numbers grow by a digit, nothing else"


def test_a_step_costs_the_same_in_a_run_of_any_length() -> None:
    sequence(10)

    assert sequence(400).is_at_most(sequence(120), 1.06), "numbers and names grow by a digit"


QUEUES = ("unevaluated", "arriving", "incomplete_forks", "admitted", "ready_threads", "looping", "closing", "routing")


@pytest.mark.parametrize("name", QUEUES)
def test_to_take_the_first_of_many_is_no_search(name: str) -> None:
    """A plain dict steps over all that were taken before, in C, where no count sees it: 100,000 branches cost
    a second pass over all of them for each. So the type is what is looked at, fresh and from a snapshot."""
    body = b.Body()
    getattr(body, name).update(dict.fromkeys([3, 1, 2]))
    thawed = b.thaw(b.freeze(body))

    assert type(getattr(b.Body(), name)) is type(getattr(thawed, name)) is OrderedDict
    assert list(getattr(thawed, name)) == [3, 1, 2]


def test_all_queues_are_known_here() -> None:
    fields = msgspec.structs.fields(b.Body)

    assert {item.name for item in fields if item.type == b.Queue} == set(QUEUES)


def test_what_a_join_holds_is_a_queue_per_branch() -> None:
    held = b.JoinTracker({"a": OrderedDict({2: None, 1: None})})
    body = b.Body(forks={b.WHOLE: b.TokenFork(trackers={"join": held})}, workload=Value(b"{}"))

    result = b.thaw(b.freeze(body)).forks[b.WHOLE].trackers["join"].held["a"]

    assert type(result) is OrderedDict
    assert list(result) == [2, 1]
