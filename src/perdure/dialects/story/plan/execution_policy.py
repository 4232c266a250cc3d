"""How a step is executed: retries, timeouts, cache, sizes. Each field comes from the most specific level (STY-008)."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Self

import msgspec

from perdure.dialects.story.plan.engram_code import pool_of
from perdure.dialects.story.plan.program import Data, Program, Step, object_at
from perdure.dialects.story.resources.durations import BadDuration, read_duration, read_positive
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.tasks.retry import Backoff, delay

SHORTEST_WAIT: Instant = 10_000  # STY-127
LAST_GRACE: Instant = 30 * SECOND  # STY-187: if no valid value is set


class Retry(msgspec.Struct, frozen=True):
    most: int
    base: Instant = SECOND
    ceiling: Instant | None = None
    jitter: int = 0
    backoff: Backoff = Backoff.EXPONENTIAL

    def wait(self, retry: int, draw: Callable[[], float], asked: Instant = 0) -> Instant:
        """The delay before the n-th retry: grown, capped, jittered, capped again, at least 10 ms (STY-127).

        `asked`: how long the other side wants to be left alone; at least so long, up to the cap.
        """
        ceiling = None if self.ceiling is None else max(self.ceiling, SHORTEST_WAIT)
        pause = delay(self.backoff, self.base, retry, ceiling)
        if self.jitter:
            pause = int(pause * (1 + draw() * self.jitter / 100))
        pause = max(pause, asked)
        if ceiling is not None:
            pause = min(pause, ceiling)
        return max(pause, SHORTEST_WAIT)


class ExecutionPolicy(msgspec.Struct, frozen=True, dict=True):
    """The levels that define one step's execution, most specific first. Each is read once."""

    program: Program
    step: Step
    engram: Data
    template: Data

    @cached_property
    def _levels(self) -> tuple[Data, Data, Data, Data]:
        """Blocks of the same shape: ExecutionOverrides and ExecutionPolicy."""
        spec = object_at(self.engram, "spec")
        return (
            self.step.execution,
            object_at(self.program.policy, "execution"),
            object_at(spec, "overrides"),
            object_at(spec, "executionPolicy"),
        )

    @cached_property
    def pool(self) -> str:
        """The pool of workers elsewhere that does the step; empty: none is named."""
        return pool_of(self.engram, self.template)

    def retry(self) -> Retry:
        step_retry = object_at(self.step.execution, "retry")
        if self.step.has_side_effects and not step_retry:
            return Retry(0)  # STY-129
        step, story, override, policy = self._levels
        levels = [
            object_at(step, "retry"),
            object_at(self.program.policy, "retries", "stepRetryPolicy"),
            *(object_at(level, "retry") for level in (story, override, policy)),
        ]
        advice = object_at(self.template, "spec", "execution", "retry")
        levels.append(
            {
                # The recommended number of retries only applies if the author sets no retry at all (STY-131).
                **({} if any(levels) else {"maxRetries": advice.get("recommendedMaxRetries")}),
                "delay": advice.get("recommendedBaseDelay"),
                "maxDelay": advice.get("recommendedMaxDelay"),
                "backoff": advice.get("recommendedBackoff"),
            }
        )
        return Retry(
            max(0, _first(levels, "maxRetries", _integer, self.program.settings.max_retries)),
            _first(levels, "delay", _duration, SECOND),
            _first(levels, "maxDelay", _duration, None),
            _first(levels, "jitter", _integer, 0),
            _first(levels, "backoff", _backoff, Backoff.EXPONENTIAL),
        )

    def timeout(self) -> Instant | None:
        """The timeout of one attempt (STY-133)."""
        return self._timeout

    @cached_property
    def _timeout(self) -> Instant | None:
        step, *others = self._levels
        levels = [step, {"timeout": object_at(self.program.policy, "timeouts").get("step")}, *others]
        levels.append(object_at(self.template, "spec", "execution"))
        return _first(levels, "timeout", _positive, None) or _positive(self.program.settings.default_step_timeout)

    def inline_limit(self) -> int:
        return self._inline_limit

    @cached_property
    def _inline_limit(self) -> int:
        return int(_first(self._levels, "maxInlineSize", _integer, self.program.settings.max_inline_size))

    @cached_property
    def holds_effects(self) -> bool:
        """Whether effects in doubt wait for an operator."""
        return bool(_first(self._levels, "effectsInDoubt", _text, "repeat") == "hold")

    def storage(self) -> Data:
        """Where Engrams store what they share by reference (STY-007)."""
        return self._storage

    @cached_property
    def _storage(self) -> Data:
        step, *others = self._levels
        levels = [step, self.program.policy, *others, object_at(self.template, "spec", "execution")]
        return next((object_at(level, "storage") for level in levels if object_at(level, "storage")), {})

    def cache(self) -> Data | None:
        """The merged cache policy of step, Engram and Story; None if there is none (STY-224)."""
        return self._cache

    @cached_property
    def _cache(self) -> Data | None:
        step, story, override, policy = self._levels
        blocks = [object_at(level, "cache") for level in (step, override, policy, story) if "cache" in level]
        if not blocks:
            return None
        cache: dict[str, Any] = {}
        for block in reversed(blocks):
            cache |= block
        return cache if cache.get("enabled", True) is True else None


class TaskSettings(msgspec.Struct, frozen=True, gc=False):
    """What is the same for every task of a step, whatever the run and the attempt."""

    provider: str
    pool: str
    timeout: Instant | None
    max_deliveries: int
    grace: Instant
    holds_effects: bool

    @classmethod
    def of(cls, execution: ExecutionPolicy, provider: str) -> Self:
        program = execution.program
        restarts = program.settings.max_restarts
        deliveries = restarts + 1 if restarts > 0 else 0
        return cls(provider, execution.pool, execution.timeout(), deliveries, grace(program), execution.holds_effects)


def own_timeout(step: Step) -> Instant | None:
    """What the step itself says in `execution.timeout`."""
    return _positive(step.execution.get("timeout"))


def grace(program: Program) -> Instant:
    """The time that work has to stop after it was asked to (STY-187)."""
    timeout = program.bounds.get("gracefulShutdownTimeout")
    if timeout is not None:
        return timeout
    seconds = program.settings.graceful_shutdown_seconds
    return seconds * SECOND if seconds >= 0 else LAST_GRACE


def _first(levels: Iterable[Data], name: str, read: Callable[[Any], Any], default: Any) -> Any:
    """The first valid value of a field; invalid values count as absent."""
    for level in levels:
        if level.get(name) is not None and (value := read(level[name])) is not None:
            return value
    return default


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _duration(value: Any) -> Instant | None:
    try:
        return max(0, read_duration(value))
    except BadDuration:
        return None


def _positive(value: Any) -> Instant | None:
    try:
        return read_positive(value)
    except BadDuration:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _backoff(value: Any) -> Backoff | None:
    return Backoff(value) if value in tuple(Backoff) else None
