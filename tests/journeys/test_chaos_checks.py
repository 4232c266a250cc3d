"""The checks of the chaos test report nothing when nothing is wrong, and every fault that is planted."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

if TYPE_CHECKING:
    from tests.journeys.chaos.receiver import Call, Receiver
    from tests.journeys.chaos.scenario import Calm


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Calm]":
    """Every kind of run twice, played without faults."""
    from tests.journeys.chaos.scenario import without_faults

    yield asyncio.run(without_faults(tmp_path_factory.mktemp("calm")))


async def test_a_play_without_faults_has_nothing_wrong(calm: "Calm") -> None:
    assert await calm.find_problems(calm.url, calm.receiver) == []


ROWS = "SELECT position FROM log WHERE run = (SELECT number FROM runs WHERE id LIKE '%flow-chain%') ORDER BY position"

IN_THE_STORE: dict[str, tuple[str, str]] = {
    "an event in the middle is lost": (f"DELETE FROM log WHERE position = ({ROWS} LIMIT 1 OFFSET 1)", "ends at event"),
    "the last event is lost": (f"DELETE FROM log WHERE position = ({ROWS} DESC LIMIT 1)", "its row says"),
    "an event is doubled": (
        f"INSERT INTO log (run, seq, body) SELECT run, seq + 1, body FROM log WHERE position = ({ROWS} DESC LIMIT 1)",
        "ends at event",
    ),
    "a run is lost": ("DELETE FROM runs WHERE id LIKE '%flow-retry%' AND parent IS NULL", "no such run"),
    "a row says what the log does not": (
        "UPDATE runs SET status = 'failed' WHERE id LIKE '%flow-chain%'",
        "its row says",
    ),
    "work is left": ("UPDATE runs SET has_work = 1 WHERE id LIKE '%flow-chain%'", "has_work True"),
}


@pytest.mark.parametrize("fault", IN_THE_STORE)
async def test_a_fault_planted_in_the_store_is_noticed(calm: "Calm", tmp_path: Path, fault: str) -> None:
    statement, message = IN_THE_STORE[fault]
    copied = Path(shutil.copy(calm.url.removeprefix("sqlite:///"), tmp_path / "planted.db"))
    connection = apsw.Connection(str(copied))
    connection.execute(statement)
    assert connection.changes()
    connection.close()

    wrong = await calm.find_problems(f"sqlite:///{copied}", calm.receiver)

    assert any(message in problem for problem in wrong), wrong


def _effect_done_twice(receiver: "Receiver") -> None:
    calls = next(iter(receiver.performed.values()))
    calls.append(calls[0])


def _effect_tried_again(receiver: "Receiver") -> None:
    receiver.calls.append(_later(receiver, "/charge"))


def _effect_never_done(receiver: "Receiver") -> None:
    receiver.performed.popitem()


def _effect_under_another_key(receiver: "Receiver") -> None:
    receiver.performed["another"] = [next(iter(receiver.performed.values()))[0]]


def _task_ran_again(receiver: "Receiver") -> None:
    receiver.calls.append(_later(receiver, "/began"))


def _task_began_late(receiver: "Receiver") -> None:
    call = _later(receiver, "/began")
    receiver.calls[next(n for n, other in enumerate(receiver.calls) if other.path == "/began")] = call


def _stranger_ran(receiver: "Receiver") -> None:
    call = _later(receiver, "/began")
    receiver.calls.append(type(call)(call.path, {**call.said, "path": "nowhere"}, call.at, call.recorded_at))


def _next_delivery_unrecorded(receiver: "Receiver") -> None:
    call = _later(receiver, "/began")
    receiver.calls.append(type(call)(call.path, {**call.said, "delivery": 9}, call.at, call.recorded_at))


def _later(receiver: "Receiver", path: str) -> "Call":
    call = next(request for request in receiver.calls if request.path == path)
    return type(call)(call.path, call.said, call.at + 60, call.recorded_at + 60_000_000)


async def test_an_acknowledged_word_that_left_no_trace_is_noticed(calm: "Calm") -> None:
    """Invariant 26."""
    from tests.journeys.chaos.workload import Word

    run = calm.words[0][0]
    planted = replace(calm, words=[*calm.words, (run, Word("signal", "lost", ("any", 1)))])

    wrong = await planted.find_problems(calm.url, calm.receiver)

    assert wrong == [f"{run}: signal 'lost' was acknowledged, and is neither counted nor declined"]


OUTSIDE: dict[str, tuple[Callable[["Receiver"], None], str]] = {
    "an effect is done twice": (_effect_done_twice, "performed 2 times"),
    "an effect is tried again after its completion": (_effect_tried_again, "tried again after it was completed"),
    "an effect is recorded and never done": (_effect_never_done, "never performed"),
    "an effect is done under another key": (_effect_under_another_key, "charged 2 times instead of 1"),
    "a finished task runs again": (_task_ran_again, "began twice"),
    "a task begins after its end": (_task_began_late, "began after the task had ended"),
    "a task runs that nobody scheduled": (_stranger_ran, "it ran and is not recorded"),
    "a delivery runs that is not recorded": (_next_delivery_unrecorded, "ran and is not recorded"),
}


@pytest.mark.parametrize("fault", OUTSIDE)
async def test_a_fault_planted_outside_is_noticed(calm: "Calm", fault: str) -> None:
    from tests.journeys.chaos.receiver import Receiver

    plant, message = OUTSIDE[fault]
    seen = calm.receiver
    planted = Receiver(list(seen.calls), {key: list(calls) for key, calls in seen.performed.items()})
    plant(planted)

    wrong = await calm.find_problems(calm.url, planted)

    assert any(message in problem for problem in wrong), wrong
