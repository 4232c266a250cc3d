"""One assignment in the hands of a worker: how its call is made ready, and how its answer is read.

It knows nothing of where the call runs nor of who may stop it.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from functools import lru_cache, partial
from inspect import iscoroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel import jsontext
from perdure.kernel.assignments import Assignment, RunPort
from perdure.kernel.outcomes import Outcome
from perdure.kernel.sealed_arguments import read_secret_places
from perdure.kernel.turn_budget import TurnBudget
from perdure.providers.context import BlockingContext, CallPort, Cancellation, TaskContext
from perdure.providers.effects import EffectQueue
from perdure.providers.policy import policy_in_force
from perdure.providers.registry import Mode, Provider, language_of
from perdure.providers.task_outcomes import describe, settle
from perdure.providers.text import family_at_work, hidden_by
from perdure.workers.secrets import MaskingPort, Secrets

if TYPE_CHECKING:
    from types import CoroutineType

    from perdure.providers.isolation.frames import CallRequest

    Answer = Outcome | CoroutineType[Any, Any, Any]  # of a call: its end, or what has to run on the loop

Done = Callable[[Outcome], None]

_ANSWERED = frozenset(
    {"claim_effect", "complete_effect", "complete_effect_unfit", "release_effect", "emit_signal", "report"}
)
_HEARD = frozenset({"heartbeat", "log"})


_REST = 0.00005  # seconds in which the event loop gets the interpreter, between two pieces of large JSON


def _resting() -> TurnBudget:
    return TurnBudget(sys.maxsize, partial(time.sleep, _REST))


@lru_cache(maxsize=4096)
def not_open(provider: str, language: str) -> str | None:
    """Why the run's language may not call the provider; a run of no known language is the caller's own."""
    owner = language_of(provider)
    if owner is None or language in ("", owner):
        return None
    return f"{provider!r} is called by the engine for a {owner}, and by no document"


PROCESS = "process"
"""The group of tasks that have a subprocess of the worker, and no other group."""


class StaleTask(RuntimeError):
    """A function that was given up still wants something from its run."""


_LATER: Any = None  # filled in by `__post_init__`
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
    mode: Mode = _LATER
    group: str = ""  # what it takes a place of; what is to be apart has places of its own
    cancellation: Cancellation | None = None
    stopped: Outcome | None = None
    has_begun: bool = False
    is_over: bool = False
    coroutine: Coroutine[Any, Any, Any] | None = None
    task: "asyncio.Task[None] | None" = None
    timer: asyncio.TimerHandle | None = None
    arguments: dict[str, Any] = {}
    payload: Any = None  # the input, if it was read before the call

    __repr__ = object.__repr__  # event loops log it: a struct would show its arguments

    def __post_init__(self) -> None:
        self.mode = _ISOLATED if self.assignment.apart else self.provider.mode
        self.group = self.provider.group

    @property
    def can_hear(self) -> bool:
        """Whether the function, which is not a coroutine, could notice that it should stop."""
        if not (self.has_begun and self.provider.function.wants_context):
            return False
        return self.cancellation is None or self.cancellation.is_heeded  # None: it is only now being called

    def open(self) -> None:
        """Read the arguments and fill in their secrets; raises what is wrong with them."""
        if self.assignment.sealed:
            sealed = read_secret_places(self.assignment.arguments)
            if sealed is not None:
                self.take(sealed.fill(self.secrets.__getitem__))
                return
        self.take(self._read(self.assignment.arguments))

    def _read(self, text: bytes) -> dict[str, Any]:
        arguments = jsontext.decode(text) if text else None
        if type(arguments) is dict:
            return arguments
        if arguments is None:
            return {}
        raise TypeError(f"arguments must be an object, not {type(arguments).__name__}")

    def read_aside(self) -> dict[str, Any]:
        """The arguments, read in another thread; the input is kept for the call."""
        with _resting():
            if self.provider.function.wants_input:
                self.payload = jsontext.decode(self.assignment.input)
            return self._read(self.assignment.arguments)

    def settle_aside(self, value: Any) -> Outcome:
        """How it ended, written in another thread."""
        with _resting():
            return settle(value, self.limit)

    def take(self, arguments: dict[str, Any]) -> None:
        """These are the arguments of the call."""
        self.arguments = arguments
        if self.provider.mode_for is not None and not self.assignment.apart:
            self.mode = self.provider.mode_for(arguments)
        if self.mode is _ISOLATED and not self.group and not self.assignment.apart:
            self.group = PROCESS

    def attempt(self, loop: asyncio.AbstractEventLoop | None = None) -> "Answer":
        """Make the call. With `loop`, this is another thread and the context must speak to that loop."""
        self.has_begun = True
        if loop is not None:
            self.take_up()
        try:
            function = self.provider.function
            context = self._context(loop) if function.wants_context else None
            payload, self.payload = self.payload, None
            if payload is None and function.wants_input:
                payload = jsontext.decode(self.assignment.input)
            value = function.invoke(self.arguments, payload, context)
            if iscoroutine(value):
                return value
            is_aside = loop is not None and jsontext.weigh(value, jsontext.NODES) > jsontext.NODES
            return self.settle_aside(value) if is_aside else settle(value, self.limit)
        except BaseException as error:  # SystemExit of a user's function must not end the engine
            return self.failure(error)

    def take_up(self) -> None:
        """What is done from here on, in this task of the loop or in this thread, is done for it."""
        hidden_by.set(self.secrets.mask.raw)
        family_at_work.set(self.family)

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

    def discreet_port(self) -> RunPort:
        return MaskingPort(self.port, self.secrets)

    async def answer(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Serve a context that lives in another thread or process."""
        if self.is_over:
            raise StaleTask("this delivery of the task has ended; its function should stop")
        if verb == "secret":
            return self.secrets[arguments[0]]
        if verb == "is_secret_in":
            return self.secrets.are_in(arguments[0])
        if verb == "redact":
            return self.secrets.mask.json(arguments[0])
        if verb not in _ANSWERED:
            raise ValueError(f"a task cannot ask for {verb!r}")
        return await getattr(self.discreet_port(), verb)(*arguments)

    def hear(self, verb: str, arguments: tuple[Any, ...]) -> None:
        """Like `answer`, for what needs none."""
        if verb in _HEARD and not self.is_over:
            getattr(self.discreet_port(), verb)(*arguments)

    def _context(self, loop: asyncio.AbstractEventLoop | None) -> TaskContext | BlockingContext:
        cancellation = self.cancellation = Cancellation()
        if self.stopped is not None:  # the stop came while the call waited for its thread
            cancellation.request()
        effects = EffectQueue()
        core = TaskContext(self.assignment, self.discreet_port(), self.secrets, cancellation, effects)
        if loop is None:
            return core

        def ask(verb: str, *arguments: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(self.answer(verb, arguments), loop).result()

        def tell(verb: str, *arguments: Any) -> None:
            loop.call_soon_threadsafe(self.hear, verb, arguments)

        return BlockingContext(self.assignment, CallPort(ask, tell), self.secrets, cancellation, effects, core)


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
