"""The operator's settings, with the names of the original (section 1.10).

Two defaults differ from it: inline limits and where offloaded data is read (STY-017, STY-018).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from perdure.dialects.story.resources.durations import BadDuration, read_positive
from perdure.kernel.documents.problems import guess

QUEUE = "storyrun.queue."


class BadSetting(ValueError):
    """A setting that does not exist or has an invalid value; the message says which."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Limits and priorities of one queue; 0 means no limit."""

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
    hub_buffer_max_messages: int = _key("hub.buffer-max-messages", 100)
    hub_buffer_max_bytes: int = _key("hub.buffer-max-bytes", 10_485_760)
    hub_buffer_eviction_ttl: str = _key("hub.buffer-eviction-ttl", "10m", is_span=True)
    hub_message_timeout: str = _key("hub.per-message-timeout", "10m", is_span=True)
    hub_max_streams: int = _key("hub.max-streams", 2_000)
    hub_max_buffers: int = _key("hub.max-buffers", 1_000)
    hub_hang_timeout: str = _key("hub.hang-timeout", "none", is_span=True)
    is_lenient: bool = _key("admission.lenient", False)  # unknown fields are warnings

    queues: Mapping[str, Queue] = field(default_factory=dict)
    explicit_keys: frozenset[str] = frozenset()
    """The keys that the operator set explicitly; some defaults only apply then (STY-104)."""

    def queue(self, name: str) -> Queue:
        """The settings of a queue; the queue `default` ages its waiting runs (STY-074)."""
        queue = self.queues.get(name)
        return queue if queue is not None else _default_queue(name)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Read settings from their keys. Raises `BadSetting`."""
        settings = cls(explicit_keys=frozenset(values))
        queues: dict[str, Queue] = {}
        for key, value in values.items():
            if key.startswith(QUEUE):
                _read_queue(queues, key, value)
            elif key in _FIELDS:
                settings = replace(settings, **{_FIELDS[key].name: _checked(key, value)})
            else:
                raise BadSetting(f"there is no setting {key!r}{guess(key, tuple(_FIELDS))}")
        return replace(settings, queues=queues)

    def different(self) -> dict[str, Any]:
        """Settings that were set explicitly or differ from the default, by key; `read` restores the same settings from
        them.
        """
        values = {
            key: list(value) if isinstance(value := getattr(self, setting.name), tuple) else value
            for key, setting in _FIELDS.items()
            if key in self.explicit_keys or getattr(self, setting.name) != setting.default
        }
        for name, queue in self.queues.items():
            default = _default_queue(name)
            for setting in fields(Queue):
                key = f"{QUEUE}{name}.{setting.name.replace('_', '-')}"
                if key in self.explicit_keys or getattr(queue, setting.name) != getattr(default, setting.name):
                    values[key] = getattr(queue, setting.name)
        return dict(sorted(values.items()))


_FIELDS = {field.metadata["key"]: field for field in fields(Settings) if "key" in field.metadata}


def _default_queue(name: str) -> Queue:
    return Queue(priority_aging_seconds=60 if name == "default" else 0)


def _read_queue(queues: dict[str, Queue], key: str, value: Any) -> None:
    name, _, member = key.removeprefix(QUEUE).rpartition(".")
    members = {queue_field.name.replace("_", "-"): queue_field.name for queue_field in fields(Queue)}
    if not name or member not in members:
        raise BadSetting(f"there is no setting {key!r}; a queue has {', '.join(members)}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadSetting(f"{key} must be an integer of 0 or more, not {value!r}")
    queues[name] = replace(queues.get(name) or _default_queue(name), **{members[member]: value})


def _checked(key: str, value: Any) -> Any:
    setting = _FIELDS[key]
    if isinstance(setting.default, tuple) and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if type(value) is not type(setting.default):
        raise BadSetting(f"{key} must be {_NOUNS[type(setting.default)]}, not {value!r}")
    if setting.metadata["among"] and value not in setting.metadata["among"]:
        raise BadSetting(f"{key} must be one of {', '.join(setting.metadata['among'])}, not {value!r}")
    if setting.metadata["is_span"] and value != setting.default:
        try:
            read_positive(value)
        except BadDuration as refusal:
            raise BadSetting(f"{key}: {refusal}") from None
    return value


_NOUNS = {int: "an integer", str: "a string", bool: "true or false", tuple: "a list of strings"}

DEFAULTS = Settings()
