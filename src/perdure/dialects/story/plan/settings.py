"""What an operator may set, under the names the original gives them (section 1.10).

Two defaults are ours: inline limits and the place where offloaded data are read (STY-017, STY-018).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from perdure.dialects.story.resources.durations import BadDuration, read_positive
from perdure.kernel.problems import guess

QUEUE = "storyrun.queue."


class BadSetting(ValueError):
    """A setting that does not exist, or a value it cannot have; the sentence says which."""


@dataclass(frozen=True, slots=True)
class Queue:
    """How one queue is served; the limits are off at 0."""

    concurrency: int = 0
    default_priority: int = 0
    priority_aging_seconds: int = 0


def _key(name: str, default: Any, *, among: tuple[str, ...] = (), is_span: bool = False) -> Any:
    return field(default=default, metadata={"key": name, "among": among, "is_span": is_span})


@dataclass(frozen=True, slots=True)
class Settings:
    global_concurrency: int = _key("storyrun.global-concurrency", 0)
    max_inline_inputs_size: int = _key("storyrun.max-inline-inputs-size", 262_144)
    retention_seconds: int = _key("storyrun.retention-seconds", 86_400)
    job_ttl_seconds: int = _key("job.ttl-seconds-after-finished", 3_600)
    streaming_ttl_seconds: int = _key("streaming.ttl-seconds-after-finished", 0)
    max_retries: int = _key("retry.max-retries", 3)
    default_step_timeout: str = _key("timeout.default-step", "5m", is_span=True)
    approval_timeout: str = _key("timeout.approval-default", "24h", is_span=True)
    external_data_timeout: str = _key("timeout.external-data-default", "30m", is_span=True)
    evaluation_timeout: str = _key("templating.evaluation-timeout", "30s", is_span=True)
    max_output_bytes: int = _key("templating.max-output-bytes", 65_536)
    is_deterministic: bool = _key("templating.deterministic", False)
    has_typed_functions: bool = _key("templating.typed-functions", False)
    offloaded_data: str = _key(
        "templating.offloaded-data-policy", "controller", among=("error", "inject", "controller")
    )
    materialize_engram: str = _key("templating.materialize-engram", "materialize")
    cross_namespace: str = _key("references.cross-namespace-policy", "deny", among=("deny", "grant", "allow"))
    missing_references: str = _key("references.missing", "block", among=("block", "fail"))
    max_inline_size: int = _key("engram.default-max-inline-size", 65_536)
    max_recursion_depth: int = _key("engram.default-max-recursion-depth", 32)
    graceful_shutdown_seconds: int = _key("engram.default-graceful-shutdown-timeout-seconds", 20)
    max_with_bytes: int = _key("controller.max-story-with-block-size-bytes", 65_536)
    max_story_depth: int = _key("executeStory.max-depth", 16)
    max_restarts: int = _key("steprun.max-restarts", 0)
    runs_finally_on_cancel: bool = _key("cancel.run-finally", True)
    stores_signal_values: bool = _key("signals.store-values", True)
    storage_drivers: tuple[str, ...] = _key("storage.drivers", ("file",))
    is_lenient: bool = _key("admission.lenient", False)  # unknown fields are warnings

    queues: Mapping[str, Queue] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    """The keys an operator wrote: some defaults only count then (STY-104)."""

    def queue(self, name: str) -> Queue:
        """How a queue is served; the one called `default` ages its waiting runs (STY-074)."""
        found = self.queues.get(name)
        return found if found is not None else _unwritten_queue(name)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """From keys as the table has them. Raises `BadSetting`."""
        settings = cls(written=frozenset(given))
        queues: dict[str, Queue] = {}
        for key, value in given.items():
            if key.startswith(QUEUE):
                _read_queue(queues, key, value)
            elif key in _FIELDS:
                settings = replace(settings, **{_FIELDS[key].name: _checked(key, value)})
            else:
                raise BadSetting(f"there is no setting {key!r}{guess(key, tuple(_FIELDS))}")
        return replace(settings, queues=queues)

    def different(self) -> dict[str, Any]:
        """What was written or differs, by key: `read` gives the same settings of it again."""
        found = {
            key: list(value) if isinstance(value := getattr(self, one.name), tuple) else value
            for key, one in _FIELDS.items()
            if key in self.written or getattr(self, one.name) != one.default
        }
        for name, queue in self.queues.items():
            usual = _unwritten_queue(name)
            for one in fields(Queue):
                key = f"{QUEUE}{name}.{one.name.replace('_', '-')}"
                if key in self.written or getattr(queue, one.name) != getattr(usual, one.name):
                    found[key] = getattr(queue, one.name)
        return dict(sorted(found.items()))


_FIELDS = {one.metadata["key"]: one for one in fields(Settings) if "key" in one.metadata}


def _unwritten_queue(name: str) -> Queue:
    return Queue(priority_aging_seconds=60 if name == "default" else 0)


def _read_queue(queues: dict[str, Queue], key: str, value: Any) -> None:
    name, _, word = key.removeprefix(QUEUE).rpartition(".")
    known = {one.name.replace("_", "-"): one.name for one in fields(Queue)}
    if not name or word not in known:
        raise BadSetting(f"there is no setting {key!r}; of a queue there are {', '.join(known)}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadSetting(f"{key} must be a whole number of 0 or more, not {value!r}")
    queues[name] = replace(queues.get(name) or _unwritten_queue(name), **{known[word]: value})


def _checked(key: str, value: Any) -> Any:
    one = _FIELDS[key]
    if isinstance(one.default, tuple) and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if type(value) is not type(one.default):
        raise BadSetting(f"{key} must be {_NOUNS[type(one.default)]}, not {value!r}")
    if one.metadata["among"] and value not in one.metadata["among"]:
        raise BadSetting(f"{key} must be one of {', '.join(one.metadata['among'])}, not {value!r}")
    if one.metadata["is_span"]:
        try:
            read_positive(value)
        except BadDuration as refusal:
            raise BadSetting(f"{key}: {refusal}") from None
    return value


_NOUNS = {int: "a whole number", str: "a text", bool: "true or false", tuple: "a list of texts"}

DEFAULTS = Settings()
