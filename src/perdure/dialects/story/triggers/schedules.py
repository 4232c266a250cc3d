"""The built-in Impulse template `cron` (STY-160 to 162): what its `with` says, and what a strike delivers."""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

import msgspec

from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import Resource, name_of, read_reference, spec_of
from perdure.dialects.story.resources.timestamps import moment
from perdure.dialects.story.triggers.cron import BadSchedule, Cron, find_zone, read_cron
from perdure.kernel.values import SECOND, Instant

NAME = "cron"
VERSION = "1.0.0"
POLICIES = ("allow", "forbid", "replace")
STARTING_DEADLINE: Instant = 60 * SECOND
LONGEST_DEADLINE: Instant = 7 * 24 * 3600 * SECOND

CONFIG: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schedules"],
    "properties": {
        "schedules": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "cron"],
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "cron": {"type": "string", "minLength": 1},
                    "inputs": {"type": "object"},
                    "metadata": {"type": "object"},
                    "enabled": {"type": "boolean", "default": True},
                    "jitter": {"type": "string"},
                },
            },
        },
        "timezone": {"type": "string", "default": "UTC"},
        "runOnStartup": {"type": "boolean", "default": False},
        "concurrencyPolicy": {"type": "string", "enum": list(POLICIES), "default": "allow"},
        "startingDeadline": {"type": "string", "default": "60s"},
    },
}

TEMPLATE: Resource = {
    "apiVersion": RESOURCE_KINDS["ImpulseTemplate"].api_version,
    "kind": "ImpulseTemplate",
    "metadata": {"name": NAME},
    "spec": {
        "version": VERSION,
        "description": "starts a Story at the times of its schedules",
        "supportedModes": ["deployment", "statefulset"],
        "configSchema": CONFIG,
    },
}


class Schedule(msgspec.Struct, frozen=True):
    name: str
    written: str
    cron: Cron
    inputs: Mapping[str, Any]
    metadata: Mapping[str, Any]
    is_enabled: bool
    jitter: Instant

    @property
    def description(self) -> str:
        found = self.metadata.get("description")
        return found if isinstance(found, str) and found else self.written


class Schedules(msgspec.Struct, frozen=True):
    zone: tzinfo
    runs_on_startup: bool
    policy: str
    deadline: Instant
    entries: tuple[Schedule, ...]


def is_cron(impulse: Resource) -> bool:
    target = read_reference(spec_of(impulse).get("templateRef"), "")
    return target is not None and target.name == NAME


def read_schedules(impulse: Resource) -> Schedules:
    """Raises `BadSchedule`: the Impulse cannot be initialized."""
    given = spec_of(impulse).get("with")
    given = given if isinstance(given, dict) else {}
    written = given.get("schedules")
    if not isinstance(written, list) or not written:
        raise BadSchedule("with.schedules: there must be at least one schedule")
    entries = tuple(_read(one, f"with.schedules[{n}]") for n, one in enumerate(written))
    names = [one.name for one in entries]
    if len(set(names)) < len(names):
        raise BadSchedule("with.schedules: two schedules have one name")
    policy = given.get("concurrencyPolicy") or "allow"
    if policy not in POLICIES:
        raise BadSchedule(f"with.concurrencyPolicy: {policy!r} is none of {', '.join(POLICIES)}")
    try:
        zone = find_zone(str(given.get("timezone") or ""))
    except BadSchedule as refusal:
        raise BadSchedule(f"with.timezone: {refusal}") from None
    deadline = _span(given, "startingDeadline", "with", STARTING_DEADLINE)
    return Schedules(zone, given.get("runOnStartup") is True, policy, min(deadline, LONGEST_DEADLINE), entries)


def token_of(impulse: Resource, schedule: str, at: Instant) -> str:
    """The same strike in every process (STY-162)."""
    return f"cron:{name_of(impulse)}:{schedule}:{moment(at).strftime('%Y-%m-%dT%H:%M:%SZ')}"


def event_of(schedule: Schedule, at: Instant, zone: tzinfo) -> dict[str, Any]:
    """What a strike delivers; `runID` is added beside what is hashed (STY-161, STY-162)."""
    return {
        **schedule.inputs,
        "_cron": {
            "schedule": schedule.name,
            "description": schedule.description,
            "triggeredAt": moment(at).astimezone(zone).isoformat(timespec="seconds").replace("+00:00", "Z"),
        },
    }


def _read(one: Any, path: str) -> Schedule:
    if not isinstance(one, dict) or not one.get("name") or not isinstance(one.get("cron"), str):
        raise BadSchedule(f"{path}: name and cron are required")
    try:
        cron = read_cron(one["cron"])
    except BadSchedule as refusal:
        raise BadSchedule(f"{path}.cron: {refusal}") from None
    inputs, metadata = one.get("inputs"), one.get("metadata")
    return Schedule(
        str(one["name"]),
        one["cron"].strip(),
        cron,
        inputs if isinstance(inputs, dict) else {},
        metadata if isinstance(metadata, dict) else {},
        one.get("enabled") is not False,
        _span(one, "jitter", path, 0),
    )


def _span(data: Mapping[str, Any], name: str, path: str, default: Instant) -> Instant:
    text = data.get(name)
    try:
        found = read_duration(text) if text else default
    except BadDuration as refusal:
        raise BadSchedule(f"{path}.{name}: {refusal}") from None
    if found < 0:
        raise BadSchedule(f"{path}.{name}: a span of time is not negative")
    return found
