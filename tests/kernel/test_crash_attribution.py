"""Which task is charged with the loss of a process, decided without I/O: invariant 27."""

from itertools import count

import msgspec
import pytest

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Cancelled, Code, Failed, Succeeded
from perdure.kernel.state import OpenTask
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace, attribute, pace, time_alone
from perdure.kernel.turn import Turn
from perdure.testing.drill import Drill
from tests.engine.documents import drill


class Life:
    """One run with one open task, told what becomes of it."""

    def __init__(self, cap: int = 3) -> None:
        dialect = Drill()
        document = drill({"call": "x", "deliveries": cap}, {"return": "lived"})
        self.execution = Execution(RunId("r"), dialect, dialect.load(msgspec.json.encode(document)))
        self._clock = count(1)
        self.events: list[e.Event] = []
        self.tell(i.Start("drill", b"", "x", b"null", b"{}", 1))

    def tell(self, input: i.Input) -> i.InputAnswer:
        now = next(self._clock)
        turn = Turn(self.execution, input, now, now, 99)
        assert decide(turn, Limits()) is None
        self.events += turn.events
        return turn.answer

    @property
    def task(self) -> OpenTask:
        (task,) = self.execution.state.tasks.values()
        return task

    def begin(self, place: StartPlace) -> i.InputAnswer:
        return self.tell(i.Begin(1, self.task.delivery, place))

    def lose(self, loss: LossKind = LossKind.PROCESS) -> None:
        self.tell(i.TaskLost(1, self.task.delivery, "gone", loss))


def test_a_first_loss_makes_a_suspect_and_charges_nothing() -> None:
    """Invariant 27."""
    life = Life()
    life.lose()

    assert life.events[-1] == e.TaskRedelivered(1, 2, "gone", suspicion=1, charged=False)
    assert (life.task.suspicion, life.task.charges, life.task.delivery) == (1, 0, 2)


def test_a_suspect_whose_begin_is_not_recorded_has_not_begun() -> None:
    """Invariant 27."""
    life = Life()
    for _ in range(10):
        life.lose()

    assert (life.task.suspicion, life.task.charges, life.task.delivery) == (1, 0, 11)


def test_a_killer_among_others_ends_after_two_losses_and_its_cap() -> None:
    """Invariant 27: every loss beside others makes it more suspicious, only those alone are charged."""
    life = Life(cap=3)
    life.lose()
    life.begin(StartPlace.BESIDE_OTHERS)
    life.lose()
    for _ in range(3):
        assert life.task.suspicion >= 2
        life.begin(StartPlace.ALONE)
        life.lose()

    (ended,) = [event for event in life.events if isinstance(event, e.TaskEnded)]
    assert isinstance(ended.outcome, Failed)
    assert (ended.outcome.code, ended.outcome.retryable) == (Code.DELIVERIES_EXHAUSTED, False)
    assert "3 times" in ended.outcome.message
    charged = [event.charged for event in life.events if isinstance(event, e.TaskRedelivered)]
    assert charged == [False, False, True, True]


@pytest.mark.parametrize("cap", [1, 3, 5])
def test_a_lone_killer_ends_after_its_cap(cap: int) -> None:
    """Invariant 27: where it is known that no other task was open, the first loss is charged."""
    life = Life(cap)
    for _ in range(cap - 1):
        life.lose(LossKind.ONLY)
        life.begin(StartPlace.BESIDE_OTHERS)
    assert life.execution.state.tasks
    life.lose(LossKind.ONLY)

    assert not life.execution.state.tasks


def test_without_a_cap_it_is_handed_out_for_ever() -> None:
    """Invariants 12 and 27: 0 is no cap."""
    life = Life(cap=0)
    for _ in range(50):
        life.lose(LossKind.ALONE)

    assert (life.task.charges, life.task.delivery) == (50, 51)


@pytest.mark.parametrize("place", [StartPlace.UNKNOWN, StartPlace.BESIDE_OTHERS, StartPlace.ALONE, StartPlace.APART])
def test_what_is_not_its_doing_changes_nothing(place: StartPlace) -> None:
    """Invariant 27: an orderly stop, a lost lease, a machine that restarted."""
    life = Life(cap=1)
    if place is not StartPlace.UNKNOWN:
        life.lose()
        life.begin(place)
    before = life.task.suspicion
    life.lose(LossKind.STOPPED)

    assert (life.task.suspicion, life.task.charges) == (before, 0)


def test_one_that_was_let_go_in_order_is_not_blamed_for_what_comes_after() -> None:
    """Invariant 27: the process that stops says so before it ends."""
    life = Life(cap=1)
    life.tell(i.LayDown([], [1]))
    life.lose(LossKind.ONLY)

    assert (life.task.suspicion, life.task.charges, life.task.delivery) == (0, 0, 2)


def test_the_end_of_the_engine_is_no_charge_for_one_apart_and_that_of_its_own_process_is() -> None:
    """Invariant 27."""
    life = Life()
    life.lose()
    life.begin(StartPlace.APART)
    life.lose(LossKind.PROCESS)
    assert (life.task.suspicion, life.task.charges) == (1, 0)
    life.begin(StartPlace.APART)
    life.lose(LossKind.ALONE)

    assert (life.task.suspicion, life.task.charges) == (2, 1)


def test_who_outlives_its_time_alone_is_cleared_by_one_degree() -> None:
    """Invariant 27: and is one of the others from then on; the next time alone is longer all the same."""
    life = Life()
    life.lose()
    life.begin(StartPlace.BESIDE_OTHERS)
    life.lose()
    life.begin(StartPlace.ALONE)
    life.tell(i.Clear(1, life.task.delivery, outlived=True))
    assert (life.task.suspicion, life.task.place) == (1, StartPlace.BESIDE_OTHERS)
    life.lose()

    assert (life.task.suspicion, life.task.charges, life.task.losses) == (2, 0, 3)
    assert time_alone(life.task.losses) == 2 * time_alone(2) == 120 * SECOND


def test_a_charge_is_taken_back_when_its_process_lives() -> None:
    """Invariant 27: a lease may end although nobody has died. Once, and only the latest."""
    life = Life(cap=2)
    life.lose()
    life.begin(StartPlace.ALONE)
    life.lose()
    assert life.task.charges == 1
    assert isinstance(life.tell(i.Clear(1, 2, outlived=False)), i.Accepted)
    assert (life.task.charges, life.task.suspicion) == (0, 1)
    assert isinstance(life.tell(i.Clear(1, 2, outlived=False)), i.Refused)


def test_a_word_for_the_task_may_come_before_its_loss_is_known() -> None:
    """Invariant 27."""
    life = Life(cap=1)
    life.lose()
    life.begin(StartPlace.ALONE)
    life.tell(i.Clear(1, 2, outlived=False))
    life.lose()

    assert (life.task.charges, life.task.delivery) == (0, 3)


def test_a_begin_counts_for_its_delivery_only_and_once() -> None:
    """Invariants 11 and 27."""
    life = Life()
    life.lose()
    assert isinstance(life.tell(i.Begin(1, 1, StartPlace.ALONE)), i.Refused)
    assert isinstance(life.begin(StartPlace.ALONE), i.Accepted)
    recorded = len(life.events)
    assert isinstance(life.begin(StartPlace.ALONE), i.Accepted), "asked again after a commit of unknown end"
    assert len(life.events) == recorded


def test_a_task_that_is_called_back_leaves_what_is_known_of_it_to_the_next_at_its_site() -> None:
    """Invariant 27: work that begins again from its start is not innocent again."""
    life = Life()
    life.lose()
    site = life.task.path
    life.execution.apply(e.TaskEnded(1, Cancelled("its pipeline starts again")))
    life.execution.apply(e.TaskScheduled(2, "x", site))
    assert (life.task.suspicion, life.task.losses, life.task.charges) == (1, 1, 0)
    life.execution.apply(e.TaskEnded(2, Succeeded(b"1")))
    life.execution.apply(e.TaskScheduled(3, "x", site))
    assert life.task.suspicion == 0


def test_what_an_older_program_recorded_folds_as_before() -> None:
    """Invariant 24: a redelivery without a word about guilt."""
    life = Life()
    row = msgspec.msgpack.encode([3, 1, 2, "gone"])
    event = msgspec.msgpack.decode(row, type=e.TaskRedelivered)
    life.execution.apply(event)

    assert (life.task.delivery, life.task.suspicion, life.task.charges) == (2, 0, 0)


def test_times_grow_and_stay_bounded() -> None:
    """Invariant 27."""
    assert [time_alone(losses) // SECOND for losses in (1, 2, 3, 4, 5)] == [60, 60, 120, 240, 480]
    assert time_alone(10_000) == time_alone(1_000)
    assert [pace(losses) // SECOND for losses in (0, 9, 10, 11, 99)] == [0, 0, 1, 2, 60]


def test_every_loss_is_judged_in_every_place() -> None:
    """Invariant 27: charged is only what was alone."""
    for place in StartPlace:
        for loss in LossKind:
            task = OpenTask("x", "p", b"", b"", 1, 1, "", None, 3, 0, False, suspicion=1, place=place)
            suspicion, charged = attribute(task, loss)
            is_alone = (
                loss is LossKind.ALONE
                or (loss is LossKind.ONLY and place in (StartPlace.BESIDE_OTHERS, StartPlace.ALONE))
                or (loss is LossKind.PROCESS and place is StartPlace.ALONE)
            )
            assert charged == is_alone, (place, loss)
            assert suspicion in (1, 2) and (suspicion == 2 or not charged)


def test_one_loss_on_a_machine_that_nobody_has_seen_since_is_let_pass() -> None:
    """Invariant 27: it may have restarted; but who goes on to kill is charged, wherever that happens."""
    life = Life(cap=3)
    life.lose()
    life.begin(StartPlace.BESIDE_OTHERS)
    life.lose()
    charges = []
    while life.execution.state.tasks:
        life.begin(StartPlace.ALONE)
        charges.append(life.task.charges)
        life.lose(LossKind.UNSEEN)

    assert charges == [0, 0, 1, 2]
