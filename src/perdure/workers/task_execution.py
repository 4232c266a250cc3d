"""The execution of one task: how the provider's call is prepared, and how its result is read.

It does not know where the call runs, nor who may stop it.
"""

import asyncio
import math
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from functools import lru_cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from time import monotonic, perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.jsontext import NODES, weigh
from perdure.kernel.outcomes import Outcome
from perdure.kernel.secrets.sealed_arguments import SecretPlaces, read_secret_places
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.providers.context import BlockingContext, CallPort, Cancellation, TaskContext
from perdure.providers.effects import EffectQueue
from perdure.providers.off_loop import resting
from perdure.providers.policy import of_api_document, policy_in_force, refusal_in_force
from perdure.providers.registry import QUICK, Mode, Provider, language_of, note_slow, slow_providers
from perdure.providers.task_outcomes import describe, to_outcome
from perdure.providers.text import Capture, at_work, family_at_work, hidden_by
from perdure.workers.secrets import MaskingPort, Secrets

if TYPE_CHECKING:
    from perdure.providers.isolation.frames import CallRequest

    Answer = Outcome | CoroutineType[Any, Any, Any]  # of a call: its end, or what has to run on the loop

Done = Callable[[Outcome], None]

_ANSWERED = frozenset(
    {"claim_effect", "complete_effect", "complete_effect_unfit", "release_effect", "emit_signal", "report"}
)
_HEARD = frozenset({"heartbeat", "log"})


@lru_cache(maxsize=4096)
def not_open(provider: str, language: str) -> str | None:
    """Why the run's language may not call the provider; a run of no known language is the caller's own."""
    owner = language_of(provider)
    if owner is None or language in ("", owner):
        return None
    return f"{provider!r} is called by the engine for a {owner}, and by no document"


def why_refused(assignment: Assignment) -> str | None:
    """Why the provider may not be called for this task: what its document was validated against may have changed."""
    provider, place, of_document = assignment.provider, assignment.namespace, assignment.document_namespace
    refusal = not_open(provider, assignment.language)
    return refusal or refusal_in_force(provider, place, of_document, assignment.from_api)


def mode_of(provider: Provider, assignment: Assignment) -> Mode:
    """Where a function is called that was declared quick."""
    size = len(assignment.arguments) + len(assignment.input)
    is_quick = size <= LITTLE and not assignment.sealed and provider.name not in slow_providers
    return Mode.INLINE if is_quick else provider.mode


PROCESS = "process"
"""The group of tasks that have a subprocess of the worker, and no other group."""


class StaleTask(RuntimeError):
    """A function that was given up still wants something from its run."""


LITTLE = 8 << 10  # bytes of arguments and input that a quick function is called with
MOST_UNHEARD = 20_000  # lines
LINES_AT_ONCE = 200
_MOST_OVER = 1_000  # deadlines that are kept although their task is over, beside as many as there are tasks

_ISOLATED = Mode.ISOLATED  # members of an enumeration are found slowly, and every task asks


class TaskExecution(msgspec.Struct, eq=False):
    """Begins with `arguments`, ends with one outcome.

    `stopped` is the outcome that a cancel or a deadline has decided; whatever the function
    still gives after that does not count. A struct, because its many fields are filled by one call into C.
    """

    assignment: Assignment
    port: RunPort
    provider: Provider
    done: Done
    secrets: Secrets
    limit: int
    family: str
    mode: Mode
    group: str  # what it takes a place of; what is to be apart has places of its own
    cancellation: Cancellation | None = None
    stopped: Outcome | None = None
    has_begun: bool = False
    is_over: bool = False
    coroutine: Coroutine[Any, Any, Any] | None = None
    task: "asyncio.Task[None] | None" = None
    timer: asyncio.TimerHandle | None = None  # ends its grace
    expiry: int = 0  # its number among `Deadlines`
    arguments: dict[str, Any] = {}
    payload: Any = None  # the input, if it was read before the call
    loop: asyncio.AbstractEventLoop | None = None  # of the worker, where the call runs in another thread
    unfinished: dict[str, str] = {}  # what was printed behind the last end of a line, by stream
    unheard: deque[tuple[str, str, dict[str, Any]]] | None = None  # lines from another thread, for the event loop
    missed: int = 0  # of them, because they were too many

    __repr__ = object.__repr__  # event loops log it: a struct would show its arguments

    @property
    def can_be_cancelled(self) -> bool:
        """Whether the function, which is not a coroutine, could notice that it should stop."""
        if not (self.has_begun and self.provider.function.wants_context):
            return False
        return self.cancellation is None or self.cancellation.is_heeded  # None: it is only now being called

    def open(self, places: SecretPlaces | None) -> None:
        """Read the arguments and fill in their secrets, whose `places` are known; raises what is wrong with them."""
        filled = None if places is None else places.fill(self.secrets.__getitem__)
        arguments = self._read(self.assignment.arguments) if filled is None else filled
        if self.provider.mode_for is None and self.mode is not _ISOLATED:
            self.arguments = arguments
        else:
            self.take(arguments)

    def _read(self, text: bytes) -> dict[str, Any]:
        arguments = jsontext.decode(text) if text else None
        if type(arguments) is dict:
            return arguments
        if arguments is None:
            return {}
        raise TypeError(f"arguments must be an object, not {type(arguments).__name__}")

    def read_aside(self) -> dict[str, Any]:
        """The arguments, read in another thread; the input is kept for the call."""
        with resting():
            if self.provider.function.wants_input:
                self.payload = jsontext.decode(self.assignment.input)
            text = self.assignment.arguments
            places = read_secret_places(text) if self.assignment.sealed else None
            return self._read(text) if places is None else places.fill(self.secrets.__getitem__)

    def settle_aside(self, value: Any) -> Outcome:
        """How it ended, written in another thread."""
        with resting():
            return to_outcome(value, self.limit)

    def take(self, arguments: dict[str, Any]) -> None:
        """These are the arguments of the call."""
        self.arguments = arguments
        if self.assignment.apart:
            return
        if self.provider.mode_for is not None:
            self.mode = self.provider.mode_for(arguments)
        if self.mode is _ISOLATED and not self.group:
            self.group = PROCESS

    def attempt(self, loop: asyncio.AbstractEventLoop | None = None) -> "Answer":
        """Make the call. With `loop`, this is another thread and the context must speak to that loop."""
        self.has_begun = True
        if self.assignment.from_api is not of_api_document.get():
            of_api_document.set(self.assignment.from_api)
        began = perf_counter() if self.provider.is_quick and loop is None else 0.0
        token = None
        if loop is not None:
            self.loop = loop
            self.take_up()
        elif Capture.is_on:
            token = at_work.set(self)
        try:
            function = self.provider.function
            context = self._context(loop) if function.wants_context else None
            payload = self.payload
            if payload is not None:
                self.payload = None
            elif function.wants_input:
                payload = jsontext.decode(self.assignment.input)
            value = function.invoke(self.arguments, payload, context)
            if isinstance(value, CoroutineType):
                return value
            if loop is not None and weigh(value, NODES) > NODES:
                return self.settle_aside(value)
            return to_outcome(value, self.limit)
        except BaseException as error:  # SystemExit of a user's function must not end the engine
            return self.failure(error)
        finally:
            if token is not None:
                at_work.reset(token)
            if began and perf_counter() - began > QUICK:
                note_slow(self.provider.name, perf_counter() - began)

    def take_up(self) -> None:
        """What is done from here on, in this task of the loop or in this thread, is done for it."""
        hidden_by.set(self.secrets.mask)
        family_at_work.set(self.family)
        if Capture.is_on:
            at_work.set(self)

    # What its function prints and logs, in whatever thread.

    def printed(self, stream: str, text: str) -> None:
        *lines, rest = (self.unfinished.get(stream, "") + text).split("\n")
        self.unfinished = {**self.unfinished, stream: rest}
        for line in lines:
            self._say("info", line, {"stream": stream})

    def logged(self, level: str, text: str, logger: str) -> None:
        self._say(level, text, {"logger": logger})

    def end(self) -> None:
        """It is over; what it has printed behind the last end of a line is a line."""
        if self.unfinished:
            self._finish_lines()
        while self.unheard:  # the process may end with the run
            self.hear("log", self.unheard.popleft())
        self.is_over = True

    def _finish_lines(self) -> None:
        unfinished, self.unfinished = self.unfinished, {}
        for stream, text in unfinished.items():
            if text:
                self._say("info", text, {"stream": stream})  # behind what is on its way from another thread

    def _say(self, level: str, text: str, fields: dict[str, Any]) -> None:
        if self.loop is None:
            self.hear("log", (level, text, fields))
            return
        if self.unheard is None:
            self.unheard = deque(maxlen=MOST_UNHEARD)
        is_first = not self.unheard
        self.missed += len(self.unheard) == MOST_UNHEARD
        self.unheard.append((level, text, fields))
        if is_first:
            self.loop.call_soon_threadsafe(self._hear_lines)

    def _hear_lines(self) -> None:
        """Some at a time: a function may print faster than the event loop has time for."""
        assert self.unheard is not None and self.loop is not None
        missed, self.missed = self.missed, 0
        if missed:
            self.hear("log", ("warning", f"{missed} lines before these are not shown: they came too fast", {}))
        for _ in range(min(LINES_AT_ONCE, len(self.unheard))):
            self.hear("log", self.unheard[0])
            self.unheard.popleft()
        if self.unheard:
            self.loop.call_soon(self._hear_lines)

    def order(self, sources: list[str]) -> "CallRequest":
        """The same call, written down for a subprocess."""
        from perdure.providers.isolation.frames import CallRequest

        is_plain = bool(self.assignment.arguments) and not self.assignment.sealed
        filled = self.assignment.arguments if is_plain else jsontext.encode_finite(self.arguments)
        return CallRequest(
            assignment=msgspec.structs.replace(self.assignment, arguments=filled),
            origin=self.provider.source,
            sources=sources,
            import_path=sys.path,
            result_limit=self.limit,
            folder=_working_directory(),
            policy=msgspec.json.encode(policy_in_force()),
        )

    def failure(self, error: BaseException) -> Outcome:
        return describe(error, self.provider.prefix)

    def masking_port(self) -> RunPort:
        return MaskingPort(self.port, self.secrets)

    async def answer(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Serve a context that lives in another thread or process."""
        if self.is_over:
            raise StaleTask("this delivery of the task has ended; its function should stop")
        if verb == "secret":
            return self.secrets[arguments[0]]
        if verb == "config":
            return self.secrets.config(*arguments)
        if verb == "is_secret_in":
            return self.secrets.are_in(arguments[0])
        if verb == "redact":
            return await self.secrets.hide_json(arguments[0])
        if verb not in _ANSWERED:
            raise ValueError(f"a task cannot ask for {verb!r}")
        return await getattr(self.masking_port(), verb)(*arguments)

    def hear(self, verb: str, arguments: tuple[Any, ...]) -> None:
        """Like `answer`, for what needs none. The last lines of a log may be heard after the end."""
        if verb not in _HEARD or (self.is_over and verb != "log"):
            return
        getattr(self.masking_port(), verb)(*arguments)
        if Capture.echo is not None and verb == "log":
            _, text, fields = arguments
            if "stream" in fields:
                token = at_work.set(None)  # what shows it may print
                Capture.echo(self.assignment.path, self.secrets.mask.text(text))
                at_work.reset(token)

    def _context(self, loop: asyncio.AbstractEventLoop | None) -> TaskContext | BlockingContext:
        cancellation = self.cancellation = Cancellation()
        if self.stopped is not None:  # the stop came while the call waited for its thread
            cancellation.request()
        effects = EffectQueue()
        if loop is None:
            return self._core_context(cancellation, effects)

        def ask(verb: str, *arguments: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(self.answer(verb, arguments), loop).result()

        def tell(verb: str, *arguments: Any) -> None:
            if verb == "log":
                self._say(*arguments)  # with what the function prints: lines have the order in which they were said
            else:
                loop.call_soon_threadsafe(self.hear, verb, arguments)

        port = CallPort(ask, tell)
        return BlockingContext(self.assignment, port, self.secrets, cancellation, effects, self._core_context)

    def _core_context(self, cancellation: Cancellation, effects: EffectQueue) -> TaskContext:
        return TaskContext(self.assignment, self.masking_port(), self.secrets, cancellation, effects)


class Deadlines:
    """Tells when an execution has reached its deadline: one alarm for all of them, set for the earliest.

    Nearly every task ends long before, and forgetting it costs next to nothing.
    """

    def __init__(self, expire: Callable[[TaskExecution], None]) -> None:
        self._expire = expire
        self._open: dict[int, TaskExecution] = {}
        self._order: list[tuple[float, int]] = []  # when and who, as a heap; those who are over are dropped later
        self._last = 0
        self._next = math.inf  # when the alarm goes off
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, execution: TaskExecution, remaining: float) -> int:
        self._last = number = self._last + 1
        self._open[number] = execution
        due = monotonic() + remaining
        heappush(self._order, (due, number))
        if due < self._next:
            self._set(due)
        return number

    def remove(self, execution: TaskExecution) -> None:
        del self._open[execution.expiry]
        execution.expiry = 0
        if len(self._order) > 2 * len(self._open) + _MOST_OVER:
            self._order = [entry for entry in self._order if entry[1] in self._open]
            heapify(self._order)

    def _set(self, due: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._next = due
        self._alarm = asyncio.get_running_loop().call_later(max(0.0, due - monotonic()), self._check)

    def _check(self) -> None:
        self._alarm, self._next = None, math.inf
        now = monotonic()
        try:
            while self._order and (self._order[0][0] <= now or self._order[0][1] not in self._open):
                execution = self._open.get(heappop(self._order)[1])
                if execution is not None:
                    self._expire(execution)
        finally:
            if self._order:
                self._set(self._order[0][0])

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was deleted: where relative names lead nowhere
        return ""


def is_isolated(provider: Provider, assignment: Assignment) -> bool:
    """Whether it is done in a subprocess by nature. Sealed arguments that might say so say nothing here."""
    text = assignment.arguments
    if provider.mode_for is None or assignment.sealed or not text:
        return provider.mode is Mode.ISOLATED
    try:
        arguments = jsontext.decode(text)
    except ValueError:
        return False  # it fails when it is begun, and says why
    return isinstance(arguments, dict) and provider.mode_for(arguments) is Mode.ISOLATED
