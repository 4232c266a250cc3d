"""What a running task may use of its run: a key, a deadline, a ledger of effects, a log.

One asynchronous core holds the rules. Functions that cannot await get `BlockingContext`, which drives the same core
over a port that answers at once.
"""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, overload

from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code
from perdure.kernel.tasks.assignments import Assignment, EffectClaimResult, RunPort, StreamRows
from perdure.providers.effects import EffectQueue
from perdure.providers.failure import EffectInDoubt, ProviderFailure

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SecretSource(Protocol):
    def __getitem__(self, name: str, /) -> str: ...

    def config(self, name: str, key: str, /) -> str | None:
        """A value of a ConfigMap that the store keeps; None: there is none."""

    def are_in(self, text: str, /) -> bool:
        """Whether a text contains a secret of the run."""

    def redact(self, value: Any, /) -> Any:
        """The value, as JSON data, without secrets of the run."""


class Cancellation:
    """A request to stop the task: a flag to check, and an event to await.

    `is_heeded` is False when it is known that nobody will check; then there is no point in waiting for that.
    """

    __slots__ = ("_event", "is_heeded", "requested")

    def __init__(self) -> None:
        self.requested = False
        self.is_heeded = True
        self._event: asyncio.Event | None = None

    def request(self) -> None:
        self.requested = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        import asyncio

        if self._event is None:
            self._event = asyncio.Event()
        if self.requested:
            self._event.set()
        await self._event.wait()


class _ContextBase:
    """The part of a context that needs no answer."""

    __slots__ = ("_cancellation", "_port", "_task", "secrets")

    def __init__(self, task: Assignment, port: RunPort, secrets: SecretSource, cancellation: Cancellation) -> None:
        self._task = task
        self._port = port
        self._cancellation = cancellation
        self.secrets = secrets

    @property
    def idempotency_key(self) -> str:
        """Stable over attempts and deliveries: pass it to systems that can recognise a repetition."""
        return self._task.idempotency_key

    @property
    def run(self) -> str:
        """The id of the run."""
        return self._task.run

    @property
    def traceparent(self) -> str:
        """The trace context of this attempt, as W3C writes it; empty if the run was started without one."""
        return self._task.traceparent

    @property
    def path(self) -> str:
        """The place of the task in its document."""
        return self._task.path

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._task.attempt

    @property
    def delivery(self) -> int:
        """How often this attempt was handed out, from 1: more than once after a lost process."""
        return self._task.delivery

    @property
    def deadline(self) -> datetime | None:
        """When the attempt must have ended, or None."""
        deadline = self._task.deadline
        return None if deadline is None else _EPOCH + timedelta(microseconds=deadline)

    @property
    def cancelled(self) -> bool:
        """True once the task should stop; check it between pieces of long work."""
        return self._cancellation.requested

    def heartbeat(self, detail: Any = None) -> None:
        """Report that the work continues, and how far it is."""
        self._port.heartbeat(None if detail is None else jsontext.encode(detail))

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        """Log a message: it goes to the worker's log and is stored with the run."""
        self._port.log(level, message, fields)


class TaskContext(_ContextBase):
    """The context of a coroutine."""

    __slots__ = ("_effects", "_may_await")

    def __init__(
        self,
        task: Assignment,
        port: RunPort,
        secrets: SecretSource,
        cancellation: Cancellation,
        effects: EffectQueue,
        *,
        may_await: bool = True,
    ) -> None:
        super().__init__(task, port, secrets, cancellation)
        self._effects = effects
        self._may_await = may_await

    @property
    def port(self) -> RunPort:
        """How the task reaches its run: for what stands between a task and code elsewhere."""
        return self._port

    async def wait_cancelled(self) -> None:
        """Return when the task should stop."""
        await self._cancellation.wait()

    @overload
    async def effect_once(self, key: str, effect: Callable[[], Awaitable[_T]]) -> _T: ...

    @overload
    async def effect_once(self, key: str, effect: Callable[[], _T]) -> _T: ...

    async def effect_once(self, key: str, effect: Callable[[], Any]) -> Any:
        """Perform `effect` unless the ledger already has its result; return the result.

        Callers of one key take turns: one performs it, the others get its result. If `effect` raises, the claim is
        released: it counts as not performed.

        It is *in doubt* when nobody knows: an earlier holder vanished in the middle, a cancel, an exit or a deadline
        came while it was in flight, or it raised `EffectInDoubt`. Then it runs again, under the same idempotency key,
        unless the step asked for such effects to be held until an operator has settled them.

        A result without a JSON form fails the task. The effect stays performed: every later call raises this failure.
        """
        async with self._effects.turn(key, may_await=self._may_await):
            claim = await self._port.claim_effect(key)
            if claim.completed:
                return self._recorded(key, claim)
            if self._task.hold_effects_in_doubt and (claim.in_doubt or key in self._effects.begun):
                self._hold(key)
            result = await self._perform(key, effect)
            try:
                text = jsontext.encode(result)
            except Exception as error:  # whatever is wrong with the result, the effect was performed
                await self._port.complete_effect_unfit(key, str(error))
                self._effects.begun.discard(key)
                self._refuse_unfit(key, str(error))
            await self._port.complete_effect(key, text)
            self._effects.begun.discard(key)
            return result

    async def _perform(self, key: str, effect: Callable[[], Any]) -> Any:
        was_stopping = self._cancellation.requested
        try:
            with self._effects.performing(key):
                result = effect()
                return await self._awaited(result) if isinstance(result, Awaitable) else result
        except EffectInDoubt as doubt:
            details = doubt.details if isinstance(doubt.details, dict) else {"details": doubt.details}
            doubt.details = {**self._facts(key), **details} if doubt.details is not None else self._facts(key)
            raise
        except Exception:
            if was_stopping or not self._cancellation.requested:  # otherwise the stop may have made it fail
                await self._port.release_effect(key)
                self._effects.begun.discard(key)
            raise

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        if self._may_await:
            return await result
        if isinstance(result, Coroutine):
            result.close()
        raise TypeError(
            "a plain function cannot perform a coroutine as an effect; make the provider a coroutine function"
        )

    def _hold(self, key: str) -> NoReturn:
        message = f"effect {key!r} was begun before and may have happened"
        raise ProviderFailure(Code.EFFECT_IN_DOUBT, message, retryable=False, details=self._facts(key))

    def _refuse_unfit(self, key: str, reason: str) -> NoReturn:
        message = f"effect {key!r} was performed, but what it gave has no JSON form: {reason}"
        raise ProviderFailure(Code.EFFECT_UNFIT, message, retryable=False, details=self._facts(key))

    def _facts(self, key: str) -> dict[str, str]:
        return {"effect": key, "idempotency_key": self.idempotency_key}

    def _recorded(self, key: str, claim: EffectClaimResult) -> Any:
        if claim.unfit is not None:
            self._refuse_unfit(key, claim.unfit)
        return None if claim.result is None else jsontext.decode(claim.result)

    async def record_effect(self, key: str, value: Any) -> Any:
        """Record something that was just done; a value recorded earlier is kept and returned.

        A claim in doubt is not an obstacle: nothing happens between this claim and its completion.
        """
        text = jsontext.encode(value)
        async with self._effects.turn(key, may_await=self._may_await):
            claim = await self._port.claim_effect(key)
            if claim.completed:
                return self._recorded(key, claim)
            await self._port.complete_effect(key, text)
            return value

    async def emit_signal(self, name: str, value: Any = None) -> None:
        """Send a signal to the run of this task."""
        await self._port.emit_signal(name, jsontext.encode(value))

    @property
    def stream_rows(self) -> StreamRows | None:
        """Rows beside the run's log, for a task that carries its streams; None where the engine is elsewhere."""
        return getattr(self._port, "stream_rows", None)

    async def report(self, body: Any) -> Any:
        """Send a report in the terms of the run's language; its answer arrives once that is recorded."""
        answer = await self._port.report(jsontext.encode(body))
        return None if answer is None else jsontext.decode(answer)


class BlockingContext(_ContextBase):
    """The context of a function that cannot await, in a thread or in a subprocess."""

    __slots__ = ("_effects", "_on_loop")

    def __init__(
        self,
        task: Assignment,
        port: "CallPort",
        secrets: SecretSource,
        cancellation: Cancellation,
        effects: EffectQueue,
        on_loop: Callable[[Cancellation, EffectQueue], TaskContext] | None = None,
    ) -> None:
        self._task = task
        self._port = port
        self._cancellation = cancellation
        self.secrets = secrets
        self._effects = effects
        self._on_loop = on_loop

    @property
    def for_coroutines(self) -> TaskContext:
        """If the called function turns out to be a coroutine."""
        if self._on_loop is not None:
            return self._on_loop(self._cancellation, self._effects)
        return TaskContext(self._task, self._port, self.secrets, self._cancellation, self._effects)

    @property
    def _core(self) -> TaskContext:
        """The rules, over a port that answers at once. Most functions never need them."""
        return TaskContext(self._task, self._port, self.secrets, self._cancellation, self._effects, may_await=False)

    def mark_unheeded(self) -> None:
        """The context is not passed on to the function that does the work, so it cannot notice a cancel."""
        self._cancellation.is_heeded = False

    def effect_once(self, key: str, effect: Callable[[], _T]) -> _T:
        return _complete(self._core.effect_once(key, effect))

    def record_effect(self, key: str, value: Any) -> Any:
        return _complete(self._core.record_effect(key, value))

    def emit_signal(self, name: str, value: Any = None) -> None:
        """Send a signal to the run of this task."""
        _complete(self._core.emit_signal(name, value))

    def report(self, body: Any) -> Any:
        return _complete(self._core.report(body))


def argument_text(context: TaskContext | BlockingContext) -> bytes:
    """The arguments of the task as JSON; empty where they are sealed."""
    task = context._task
    return b"" if task.sealed else task.arguments


BlockingContext.effect_once.__doc__ = TaskContext.effect_once.__doc__


def _complete(steps: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine whose awaits all return at once."""
    try:
        steps.send(None)
    except StopIteration as end:
        answer: _T = end.value
        return answer
    steps.close()
    raise RuntimeError("the context of a plain function waited for an event loop")


class ParentCall(Protocol):
    """Sends a request to where the real port is, and waits for the answer."""

    def __call__(self, verb: str, *arguments: Any) -> Any: ...


class ParentNotice(Protocol):
    """Sends a request to where the real port is, and does not wait."""

    def __call__(self, verb: str, *arguments: Any) -> None: ...


class CallPort:
    """A port over one blocking call: its coroutines never suspend."""

    __slots__ = ("_notify", "_request")

    def __init__(self, request: ParentCall, notify: ParentNotice) -> None:
        self._request = request
        self._notify = notify

    async def claim_effect(self, key: str) -> EffectClaimResult:
        answer = self._request("claim_effect", key)
        return answer if isinstance(answer, EffectClaimResult) else EffectClaimResult(**answer)

    async def complete_effect(self, key: str, result: bytes) -> None:
        self._request("complete_effect", key, result)

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        self._request("complete_effect_unfit", key, reason)

    async def release_effect(self, key: str) -> None:
        self._request("release_effect", key)

    async def emit_signal(self, name: str, value: bytes) -> None:
        """Send a signal to the run of this task."""
        self._request("emit_signal", name, value)

    async def report(self, body: bytes) -> bytes | None:
        answer: bytes | None = self._request("report", body)
        return answer

    def heartbeat(self, detail: bytes | None) -> None:
        self._notify("heartbeat", detail)

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Log a message: it goes to the worker's log and is stored with the run."""
        self._notify("log", level, message, fields)
