"""Any interleaving of inputs ends in a legal state, and a fold of the log is always the live state."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns, encode_snapshot, encode_turns, restore
from perdure.kernel.control_messages import deferred_places
from perdure.kernel.events import Event
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status, Succeeded
from perdure.kernel.turn import Turn
from perdure.testing.drill import Drill
from tests.sampling import seed

SECOND = 1_000_000
LIMITS = Limits(slice=20, moves=400)

OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Succeeded(b'"ok"')),
    st.just(Failed("Some.Trouble", retryable=True)),
    st.just(Failed("Some.End", retryable=False)),
    st.just(Cancelled("stopped")),
)


WORDS: list[i.Input] = [
    i.Signal("go", b'"said"'),
    i.Signal("other", b"1"),
    i.Steer("set", b'{"x": 1}'),
    i.Steer("what", b"{}"),
    i.Cancel("enough"),
    i.PermitGrant(99),
]


def steps(depth: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    plain: list[st.SearchStrategy[dict[str, Any]]] = [
        st.just({"call": "work", "save": "a"}),
        st.just({"call": "work", "retry": {"attempts": 2, "delay": "1s"}, "timeout": "3s"}),
        st.just({"call": "work", "catch": [{"call": "work"}]}),
        st.just({"sleep": "2s"}),
        st.just({"signal": "go", "save": "b"}),
        st.just({"signal": "go", "timeout": "2s"}),
        st.just({"spin": 45}),
        st.just({"draw": "c"}),
        st.just({"set": {"d": [1, "$a"]}}),
        st.just({"child": {"drill": 1, "steps": []}, "save": "e"}),
        st.just({"fail": "Meant.It"}),
        st.just({"return": "$a"}),
    ]
    if depth:
        inner = steps(depth - 1)
        plain += [
            inner.map(lambda do: {"each": 3, "do": do, "limit": 2, "save": "f"}),
            inner.map(lambda do: {"repeat": 2, "do": do}),
            inner.map(lambda do: {"permit": "p", "limit": 1, "do": do}),
            st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"all": branches}),
        ]
    return st.lists(st.one_of(plain), max_size=4)


DOCUMENTS = st.builds(
    lambda body, cleanup: {"drill": 1, "name": "any", "steps": body, "cleanup": cleanup}, steps(2), steps(0)
)


class Interleavings(RuleBasedStateMachine):
    dialect = Drill()

    @initialize(document=DOCUMENTS)
    def begin(self, document: dict[str, Any]) -> None:
        text = jsontext.encode(document)
        judged = self.dialect.parse(text)
        program, problems = judged.program, judged.problems
        assert not problems
        self.program = program
        self.now = 1_000 * SECOND
        self.live = Execution(RunId("r"), self.dialect, program)
        self.log: list[bytes] = []
        self.ended = 0
        self._offer(i.Start("drill", digest(text), "any", b"null", b"{}", 7))

    def _offer(self, message: i.Input) -> i.InputAnswer:
        turn = Turn(self.live, message, self.now, self.now)
        assert decide(turn, LIMITS) is None
        if turn.events:
            self.log.append(encode_turns([(turn.now, turn.events)]))
        self.ended += sum(type(event).__name__ == "RunEnded" for event in turn.events)
        return turn.answer

    def _open(self) -> bool:
        return self.live.state.outcome is None

    @rule(data=st.data(), outcome=OUTCOMES)
    def a_task_ends(self, data: st.DataObject, outcome: Outcome) -> None:
        if self.live.state.tasks:
            number = data.draw(st.sampled_from(sorted(self.live.state.tasks)))
            task = self.live.state.tasks[number]
            answer = self._offer(i.TaskResult(number, task.attempt, task.delivery, outcome))
            assert isinstance(answer, i.Accepted)

    @rule(data=st.data())
    def a_task_is_lost(self, data: st.DataObject) -> None:
        if self.live.state.tasks:
            number = data.draw(st.sampled_from(sorted(self.live.state.tasks)))
            self._offer(i.TaskLost(number, self.live.state.tasks[number].delivery, "gone"))

    @rule(data=st.data())
    def it_is_handed_over(self, data: st.DataObject) -> None:
        """Tasks that were not begun are laid down, and keep their delivery for the next owner."""
        tasks = self.live.state.tasks
        numbers = data.draw(st.lists(st.sampled_from([*tasks, 999]), unique=True))
        before = {number: task.delivery for number, task in tasks.items()}
        self._offer(i.LayDown(numbers))
        laid = [number for number in numbers if number in tasks and not tasks[number].cancelling]
        self.live = self._folded()
        assert [number for number, task in self.live.state.tasks.items() if task.laid_down] == sorted(laid)
        self._offer(i.TakeUp(laid))
        assert not any(task.laid_down for task in self.live.state.tasks.values())
        assert before == {number: task.delivery for number, task in self.live.state.tasks.items()}

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND
        timers = self.live.state.timers.items()
        due = sorted((timer.rank >= i.CONTROL_WAIT_RANK, timer.due, timer.rank, number) for number, timer in timers)
        for _, instant, _, number in due:  # waits for a word run out when nothing else is left
            if instant <= self.now:
                self._offer(i.TimerDue(number))

    @rule()
    def a_signal_comes(self) -> None:
        self._offer(i.Signal("go", b'"said"'))

    @rule(words=st.lists(st.sampled_from(WORDS), min_size=2, max_size=5))
    def words_come_together(self, words: list[i.Input]) -> None:
        """A row: all are accepted, then moves are made; what is refused in it leaves a trace."""
        places = deferred_places(words)
        turns = []
        for place, message in enumerate(words):
            turn = Turn(self.live, message, self.now, self.now)
            turn.is_acknowledged = True
            assert decide(turn, LIMITS, is_held=place in places, owes_moves=place - 1 in places) is None
            assert not (turn.moves and place in places)
            turns.append((turn.now, turn.events))
        if any(events for _, events in turns):
            self.log.append(encode_turns([entry for entry in turns if entry[1]]))
        self.ended += sum(type(event).__name__ == "RunEnded" for _, events in turns for event in events)

    @rule(data=st.data(), outcome=OUTCOMES)
    def a_child_ends(self, data: st.DataObject, outcome: Outcome) -> None:
        if self.live.state.children:
            number = data.draw(st.sampled_from(sorted(self.live.state.children)))
            status = Status.SUCCEEDED if isinstance(outcome, Succeeded) else Status.FAILED
            self._offer(i.ChildResult(number, status, outcome))

    @rule()
    def permits_are_granted(self) -> None:
        for number, permit in list(self.live.state.permits.items()):
            if not permit.granted:
                self._offer(i.PermitGrant(number))

    @rule()
    def it_proceeds(self) -> None:
        if self.live.state.sliced:
            self._offer(i.Proceed())

    @rule()
    def somebody_cancels(self) -> None:
        self._offer(i.Cancel("enough"))

    @rule(number=st.integers(0, 30))
    def something_stale_comes(self, number: int) -> None:
        before = self.live.state.seq
        state = self.live.state
        if number not in state.timers and number not in state.tasks and number not in state.children:
            assert isinstance(self._offer(i.TimerDue(number)), i.Refused)
            assert isinstance(self._offer(i.TaskResult(number, 1, 1, Succeeded(b"1"))), i.Refused)
            assert isinstance(self._offer(i.ChildResult(number, Status.FAILED, Cancelled())), i.Refused)
            assert before == self.live.state.seq, "what came too late changed nothing"

    @precondition(lambda self: not self._open())
    @rule()
    def it_is_reopened(self) -> None:
        self._offer(i.Reopen(key=f"life {self.live.state.incarnation}"))

    @rule()
    def it_crashes(self) -> None:
        """From here on the folded execution lives on; whatever only memory knew is gone."""
        self.live = self._folded()

    def _folded(self) -> Execution:
        folded = Execution(RunId("r"), self.dialect, self.program)
        for row in self.log:
            folded.fold(decode_turns(self.dialect, row))
        return folded

    @invariant()
    def the_fold_is_the_live_state(self) -> None:
        if hasattr(self, "live"):
            frozen = encode_snapshot(self.live)
            assert frozen == encode_snapshot(self._folded())
            thawed = Execution(RunId("r"), self.dialect, self.program)
            assert restore(thawed, frozen)
            assert frozen == encode_snapshot(thawed)

    @invariant()
    def the_state_is_legal(self) -> None:
        if not hasattr(self, "live"):
            return
        state = self.live.state
        assert (state.outcome is None) == (not state.status.is_final)
        assert self.ended == state.incarnation - (1 if state.outcome is None else 0), "each life ends once"
        if state.outcome is not None:
            assert not (state.tasks or state.timers or state.children or state.permits)
        else:
            listens = any(self.live.body.listeners.values())
            waits = state.tasks or state.timers or state.children or state.permits or state.sliced or listens
            assert waits, "a run that is open waits for something"
        assert state.local_tasks == sum(not task.pool for task in state.tasks.values())


Interleavings.TestCase.settings = settings(
    max_examples=400 if seed() is None else 100, stateful_step_count=30, deadline=None
)
TestInterleavings = Interleavings.TestCase


@pytest.mark.parametrize("outcome", [Succeeded(b"1"), Failed("Bad", "no")], ids=["succeeds", "fails"])
def test_a_timeout_is_over_with_its_call_although_the_thread_has_not_moved_since(outcome: Outcome) -> None:
    """Another thread's long work is cut into slices, and the timer comes between two of them."""
    call = {"call": "work", "retry": {"attempts": 2, "delay": "1s"}, "timeout": "3s"}
    steps = [{"all": [[call], [{"spin": 45}]]}]
    play = Interleavings()
    play.begin({"drill": 1, "name": "any", "steps": steps, "cleanup": []})
    ((number, task),) = play.live.state.tasks.items()
    play._offer(i.TaskResult(number, task.attempt, task.delivery, outcome))
    play.time_passes(3)
    play.the_fold_is_the_live_state()
    while play.live.state.sliced:
        play._offer(i.Proceed())

    attempts = [task.attempt for task in play.live.state.tasks.values()]
    assert attempts == [] and play.ended == isinstance(outcome, Succeeded)


def test_every_kernel_event_changes_the_state_by_a_handler_of_its_own() -> None:
    """Completeness: an event that the kernel forgot would be lost in every fold."""
    from perdure.kernel.events import KERNEL_EVENTS
    from perdure.kernel.state_changes import CHANGES

    assert set(KERNEL_EVENTS) == set(CHANGES)
    assert all(issubclass(event, Event) for event in KERNEL_EVENTS)
