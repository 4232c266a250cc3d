"""A scripted world: drives a Playbook's run purely, without an engine, on a clock that jumps to the next due thing.

Tasks are answered by plain functions. The order in which results arrive is the test's to choose: in order, reversed, or
shuffled by a seed. After every commit the log can be folded anew and the run goes on from the fold: a crash.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any

from perdure.dialects.playbook import Playbook
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.codec import decode_turns, encode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.execution import Execution, Limits, decide
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.turn import Turn
from perdure.kernel.values import INLINE_BYTES, SECOND, Instant, Payload, Ref, RunId, digest

START: Instant = 1_800_000_000_000_000


@dataclass
class Answer:
    """What a task will say, and how long it takes."""

    value: Any = None
    failure: Failed | None = None
    after: Instant = 0

    def outcome(self) -> Outcome:
        return self.failure or Succeeded(jsontext.encode(self.value))


Work = Callable[[dict[str, Any]], Any]


class World:
    """One run. `work` answers tasks by provider name: a value, a `Failed`, an `Answer`, or an exception.

    `slots` bounds how many tasks work at once, as a worker would; the others wait their turn in order.
    """

    def __init__(
        self,
        document: str | bytes,
        workload: Any = None,
        *,
        options: dict[str, Any] | None = None,
        work: dict[str, Work] | None = None,
        children: dict[str, str] | None = None,
        crash: bool = False,
        seed: int | None = None,
        slots: int = 1_000_000,
        limits: Limits | None = None,
        id: str = "run",
    ) -> None:
        self.id = RunId(id)
        self.work = work or {}
        self.children = children or {}
        self.dialect: Dialect = Playbook(self.work.__contains__, lambda: tuple(self.work))
        self.text = document if isinstance(document, bytes) else document.encode()
        self.crash = crash
        self.random = None if seed is None else Random(seed)
        self.slots = slots
        self.busy = 0
        self.queued: list[e.TaskScheduled] = []
        self.limits = limits or Limits()
        self.now = START
        self.rows: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.queue: list[tuple[Instant, int, float, int, i.Input]] = []
        self.count = 0
        self.moves = 0
        self.events: list[e.Event] = []
        self.performed: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str] = []
        self.cancelled: list[int] = []
        self.execution = self._fresh()
        given = self._kept(jsontext.encode(workload))
        applied = [{"file": name, "text": text} for name, text in self.children.items()]
        told = jsontext.encode({"applied": applied, **(options or {})})
        self._offer(START, 0, i.Start("playbook", b"", "playbook", given, told, 7))

    def _fresh(self) -> Execution:
        return Execution(self.id, self.dialect, self.dialect.load(self.text))

    def _offer(self, at: Instant, rank: int, given: i.Input) -> None:
        self.count += 1
        tie = self.random.random() if self.random is not None and rank == 0 else 0.0
        heappush(self.queue, (at, rank, tie, self.count, given))

    # Time passes.

    def run(self) -> Any:
        """Until the end."""
        while not self.is_over:
            assert self.queue, f"stuck: {self.show()}"
            self._next()
        return self.show()

    def settle(self) -> Any:
        """Until the end, or until nothing but the outside can move it."""
        while not self.is_over and self.queue:
            self._next()
        return self.show()

    def pass_time(self, seconds: float) -> Any:
        """Let time go on; what is due on the way happens."""
        until = self.now + int(seconds * SECOND)
        while not self.is_over and self.queue and self.queue[0][0] <= until:
            self._next()
        self.now = max(self.now, until)
        return self.show()

    def patch(self, ctx: dict[str, Any], **rest: Any) -> Any:
        return self.tell(i.Steer("patch", jsontext.encode({"ctx": ctx, **rest}), by="operator"))

    def tell(self, given: i.Input) -> Any:
        turn = self._take(given, self.now)
        return turn.answer

    @property
    def is_over(self) -> bool:
        return self.execution.state.status.is_final

    def show(self) -> Any:
        return self.dialect.show(self.execution, self.values)

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def _next(self) -> None:
        at, _, _, _, given = heappop(self.queue)
        self.now = max(self.now, at)
        self._take(given, at)

    def _take(self, given: i.Input, arrived: Instant) -> Turn:
        turn = Turn(self.execution, given, arrived, self.now)
        while (needs := decide(turn, self.limits)) is not None:
            turn.texts |= {name: self.values[name] for name in needs.wanted if name in self.values}
            missing = {name for name in needs.wanted if name not in self.values}
            assert needs.may_be_absent or not missing
            turn.absent |= missing
        self.values |= turn.values
        self.moves += turn.moves
        self.events += turn.events
        if turn.events:
            self.rows.append(encode_turns([(turn.now, turn.events)]))
            if self.crash:
                self._fold_and_compare()
        if isinstance(given, i.TaskResult):
            self.busy -= 1
        for event in turn.events:
            self._obey(event)
        while self.queued and self.busy < self.slots and self.queued[0].provider in self.work:
            self._perform(self.queued.pop(0))
        if self.execution.state.sliced:
            self._offer(self.now, -1, i.Proceed())
        return turn

    def _fold_and_compare(self) -> None:
        folded = self._fresh()
        for row in self.rows:
            folded.fold(decode_turns(self.dialect, row))
        assert self.dialect.freeze(folded.body) == self.dialect.freeze(self.execution.body)
        thawed = self.dialect.thaw(folded.program, self.dialect.freeze(folded.body))
        assert self.dialect.freeze(thawed) == self.dialect.freeze(folded.body)
        folded.body = thawed
        self.execution = folded

    # The outside obeys.

    def _obey(self, event: e.Event) -> None:
        match event:
            case e.TimerSet(timer, due, rank):
                self._offer(due, 1 + rank, i.TimerDue(timer))
            case e.TaskScheduled():
                self.queued.append(event)
            case e.TaskCancelRequested(task):
                self.cancelled.append(task)
                self.queued = [waiting for waiting in self.queued if waiting.task != task]
                self._offer(self.now, 0, i.TaskResult(task, self.attempts[task], 1, Cancelled("asked to")))
            case e.ChildStarted(child, _, _, name, given, options):
                inner = World(
                    self.children[name],
                    self._data(given),
                    options=jsontext.decode(options),
                    work=self.work,
                    crash=self.crash,
                    id=self.execution.child_id(child),
                )
                inner.children = self.children
                inner.settle()
                self.values |= inner.values  # as the engine copies what crosses
                state = inner.execution.state
                if state.outcome is not None:
                    self._offer(self.now, 0, i.ChildResult(child, state.status, state.outcome))
            case _:
                pass

    @property
    def attempts(self) -> dict[int, int]:
        return {event.task: event.attempt for event in self.events if isinstance(event, e.TaskScheduled)}

    def _perform(self, event: e.TaskScheduled) -> None:
        self.busy += 1
        arguments = self._data(event.arguments)
        self.performed.append((event.provider, arguments))
        self.keys.append(event.path)
        try:
            answer = self.work[event.provider](arguments)
        except Exception as error:
            answer = Failed(f"Provider.Call.X.Errors.{type(error).__name__}", str(error))
        if isinstance(answer, Failed):
            answer = Answer(failure=answer)
        if not isinstance(answer, Answer):
            answer = Answer(answer)
        outcome = answer.outcome()
        if isinstance(outcome, Succeeded) and isinstance(outcome.value, bytes):
            outcome = Succeeded(self._kept(outcome.value))
        self._offer(self.now + answer.after, 0, i.TaskResult(event.task, event.attempt, 1, outcome))

    def _kept(self, text: bytes) -> Payload:
        """As the engine does it: what is large is put beside the log before the run hears of it."""
        if len(text) <= INLINE_BYTES:
            return text
        name = digest(text)
        self.values[name] = text
        return Ref(name, len(text))

    def _data(self, payload: Any) -> Any:
        return jsontext.decode(payload if isinstance(payload, bytes) else self.values[payload.digest])


HEAD = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: test, path: tests/test}
"""


def playbook(body: str) -> str:
    return HEAD + body
