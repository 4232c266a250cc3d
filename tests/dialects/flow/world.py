"""A scripted world: drives executions purely, without an engine, on a clock that jumps to the next due thing.

Tasks are answered by plain functions, at once or after a delay. After every commit the log can be folded anew and
compared with the live state, and the run can go on from the fold: a crash at that boundary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from perdure.dialects.flow import Flow
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns, encode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.turn import Turn

START: Instant = 1_800_000_000_000_000


@dataclass
class Answer:
    """What a task will say, and how long it takes; a stubborn one does not stop when it is asked to."""

    value: Any = None
    failure: Failed | None = None
    after: Instant = 0
    stubborn: bool = False

    def outcome(self) -> Outcome:
        return self.failure or Succeeded(jsontext.encode(self.value))


@dataclass
class Described:
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "additionalProperties": True})


Work = Callable[[dict[str, Any], Any], Answer]


class World:
    """One run. `work` answers tasks by provider name.

    `cancel_at` cancels from outside at that offset, `cancel_after` right after that many commits.
    """

    def __init__(
        self,
        document: dict[str, Any] | bytes,
        input: Any = None,
        arguments: dict[str, Any] | None = None,
        *,
        work: dict[str, Work] | None = None,
        cancel_at: Instant | None = None,
        cancel_after: int | None = None,
        crash: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.work = work or {}
        self.dialect: Dialect = Flow(lambda name: Described() if name in self.work else None, lambda: tuple(self.work))
        self.text = document if isinstance(document, bytes) else jsontext.encode(document)
        self.crash = crash
        self.cancel_after = cancel_after
        self.limits = limits or Limits()
        self.now = START
        self.rows: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.queue: list[tuple[Instant, int, int, i.Input]] = []
        self.count = 0
        self.pace: Instant = 0  # how much time passes before each decision
        self.outage: tuple[Instant, Instant] = (0, 0)  # offsets between which nobody decides anything
        self.stubborn: set[int] = set()
        self.moves = 0
        self.events: list[e.Event] = []
        self.execution = self._fresh()
        options = jsontext.encode({"args": arguments} if arguments is not None else {})
        self._offer(START, 0, i.Start("flow", b"", "flow", jsontext.encode(input), options, 7))
        if cancel_at is not None:
            self._offer(START + cancel_at, 0, i.Cancel("stop"))

    def _fresh(self) -> Execution:
        return Execution(RunId("run"), self.dialect, self.dialect.load(self.text))

    def _offer(self, at: Instant, rank: int, input: i.Input) -> None:
        self.count += 1
        heappush(self.queue, (at, rank, self.count, input))

    def run(self) -> Any:
        while not self.execution.state.status.is_final:
            assert self.queue, f"stuck: {self.dialect.show(self.execution, self.values)}"
            self.turn()
        return self.dialect.show(self.execution, self.values)

    def turn(self) -> None:
        """Decide the next input."""
        at, _, _, value = heappop(self.queue)
        self.now = max(self.now, at)
        if self.outage[0] <= self.now - START < self.outage[1]:
            self.now = START + self.outage[1]  # it arrived in time, but nobody was there to take it up
        self._take(value, at)

    def redrive(self) -> Any:
        self._take(i.Reopen(), self.now)
        return self.run()

    def _take(self, input: i.Input, arrived: Instant) -> None:
        self.now += self.pace
        turn = Turn(self.execution, input, arrived, self.now)
        while (needs := decide(turn, self.limits)) is not None:
            turn.texts |= {name: self.values[name] for name in needs.digests}
            turn.answers |= dict.fromkeys(needs.lookups)  # there is no catalog
        self.values |= turn.values
        self.moves += turn.moves
        self.events += turn.events
        if turn.events:
            row = encode_turns([(turn.now, turn.events)])
            self.rows.append(row)
            if self.crash:
                self._fold_and_compare()
            if len(self.rows) == self.cancel_after:
                self._offer(self.now, -2, i.Cancel("stop"))
        for event in turn.events:
            self._obey(event)
        if self.execution.state.sliced:
            self._offer(self.now, -1, i.Proceed())

    def _fold_and_compare(self) -> None:
        folded = self._fresh()
        for row in self.rows:
            folded.fold(decode_turns(self.dialect, row))
        assert self.dialect.freeze(folded.body) == self.dialect.freeze(self.execution.body)
        thawed = self.dialect.thaw(folded.program, self.dialect.freeze(folded.body))
        assert self.dialect.freeze(thawed) == self.dialect.freeze(folded.body)
        folded.body = thawed
        self.execution = folded

    def _obey(self, event: e.Event) -> None:
        match event:
            case e.TimerSet(timer, due, rank):
                self._offer(due, 1 + rank, i.TimerDue(timer))
            case e.TaskScheduled(task, provider, _, arguments, value):
                answer = self.work[provider](self._data(arguments), self._data(value))
                self._offer(self.now + answer.after, 0, i.TaskResult(task, 1, 1, answer.outcome()))
                if answer.stubborn:
                    self.stubborn.add(task)
            case e.TaskCancelRequested(task) if task not in self.stubborn:
                self._offer(self.now, 0, i.TaskResult(task, 1, 1, Cancelled("asked to")))
            case _:
                pass

    def _data(self, payload: Any) -> Any:
        return jsontext.decode(payload if isinstance(payload, bytes) else self.values[payload.digest])

    @property
    def size(self) -> int:
        return sum(len(row) for row in self.rows)
