"""The context of an Engram: the task context in Story's terms.

In a coroutine function, the calls that reach the run (`effect_once`, `record_effect`, `emit_signal`,
`replay_signals`) must be awaited; in a plain function they return their results directly.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.providers.context import BlockingContext, TaskContext
from perdure.services.story.engrams import storage
from perdure.services.story.engrams.hydration import families_of
from perdure.services.story.engrams.secrets import EngramSecrets
from perdure.services.story.engrams.step_log import StepLog


class EngramContext:
    """What an Engram knows of its step, and how it reaches its run."""

    def __init__(self, inner: TaskContext | BlockingContext, task: Mapping[str, Any]) -> None:
        self._inner = inner
        self._task = task
        self.logbook = StepLog()
        self.secrets = EngramSecrets(inner.secrets, task.get("secrets") or {})

    @property
    def idempotency_key(self) -> str:
        """The step's key: the same for all attempts, restarts and redeliveries."""
        return str(self._task.get("idempotencyKey") or self._inner.idempotency_key)

    @property
    def traceparent(self) -> str:
        """The trace context of this attempt, as W3C writes it; empty if the run was started without one."""
        return self._inner.traceparent

    @property
    def step(self) -> str:
        """The name of the step."""
        return str(self._about("step", "id"))

    @property
    def step_run(self) -> str:
        """The name of the StepRun."""
        return str(self._about("step", "run"))

    @property
    def story(self) -> str:
        """The name of the Story."""
        return str(self._about("story", "name"))

    @property
    def story_run(self) -> str:
        """The name of the StoryRun."""
        return str(self._about("storyRun", "name"))

    @property
    def namespace(self) -> str:
        """The namespace of the run."""
        return str(self._about("storyRun", "namespace") or "default")

    @property
    def engram(self) -> str:
        """The name of the Engram."""
        return str(self._about("engram", "name"))

    @property
    def attempt(self) -> int:
        return self._inner.attempt

    @property
    def delivery(self) -> int:
        return self._inner.delivery

    @property
    def deadline(self) -> datetime | None:
        return self._inner.deadline

    @property
    def cancelled(self) -> bool:
        """True once the step should stop; check it between pieces of long work."""
        return self._inner.cancelled

    def wait_cancelled(self) -> Any:
        """For coroutine functions: returns when the step should stop."""
        assert isinstance(self._inner, TaskContext), "a plain function must check `cancelled`"
        return self._inner.wait_cancelled()

    def log(self, message: str, level: str = "info", **fields: Any) -> None:
        """Log a message: it goes to the worker's log and is stored with the run (STY-263)."""
        self._inner.log(message, level, **fields)
        self.logbook.add(str(message), level, fields)

    def heartbeat(self, detail: Any = None) -> None:
        self._inner.heartbeat(detail)

    def effect_once(self, key: str, effect: Any) -> Any:
        """Perform `effect` unless it was recorded before; either way, return its result (STY-167)."""
        return self._inner.effect_once(key, effect)

    def record_effect(self, key: str, status: str = "succeeded", details: Any = None) -> Any:
        """Add an entry to the step's list of effects; a key that is already listed is not added again (STY-164)."""
        entry = {"key": key, "status": status, "details": details}
        return self._inner.report({"effect": entry})

    def emit_signal(self, key: str, value: Any = None) -> Any:
        """Write a signal of this step, which templates and other steps read."""
        return self._inner.emit_signal(key, value)

    def replay_signals(self, since: int = 0, step: str | None = None) -> Any:
        """Signals of a step (default: this one) with a number above `since`, oldest first.

        `{"events": [{"seq", "key", "emittedAt", "payload"}, …], "firstRetainedSeq": n}`: earlier ones are no longer
        kept.
        """
        return self._inner.report({"replaySignals": {"step": step or self.step, "sinceSeq": since}})

    def store(self, key: str, value: Any) -> dict[str, str]:
        """Store a large value in the storage that workers share; return a reference to use in place of the value.

        As in any result, the run's secrets are masked in it.
        """
        settings, family = self._task.get("storage") or {}, family_of(self._inner.run)
        hidden = self._inner.secrets.redact(jsontext.decode(jsontext.encode(value)))
        return storage.put(settings, self.namespace, family, self.step_run, key, hidden)

    def load(self, reference: Mapping[str, Any]) -> Any:
        """The value of a storage reference; those in `inputs` are already resolved."""
        return storage.get(reference, families_of(self._task, self._inner.run))

    async def report_log(self) -> None:
        """Report what was logged to the run."""
        assert isinstance(self._inner, TaskContext)
        await self.logbook.report(self._inner)

    def _about(self, section: str, member: str) -> Any:
        return (self._task.get(section) or {}).get(member, "")
