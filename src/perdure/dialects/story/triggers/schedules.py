"""The built-in Impulse template `cron` (STY-160 to 162): its configuration and the events that it delivers."""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

import msgspec

from perdure.dialects.story.resources.durations import BadDuration, read_duration, write_duration
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import Resource, read_reference, spec_of
from perdure.dialects.story.resources.timestamps import moment
from perdure.expressions.cron import BadSchedule, find_zone, read_cron
from perdure.expressions.timetables import (
    LONGEST_CATCH_UP,
    LONGEST_DEADLINE,
    MOST_SCHEDULES,
    STARTING_DEADLINE,
    Overlap,
    Timetable,
)
from perdure.kernel.json_values.values import Instant

NAME = "cron"
VERSION = "1.0.0"
OVERLAPS = {
    **{overlap.value: overlap for overlap in Overlap},
    "forbid": Overlap.SKIP,
    "replace": Overlap.CANCEL_PREVIOUS,
}
"""By the words of `concurrencyPolicy`; `forbid` and `replace` are those of Kubernetes (STY-160)."""

LONGEST_NAME = 253
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
                    "description": {"type": "string"},
                    "inputs": {"type": "object"},
                    "metadata": {"type": "object"},
                    "enabled": {"type": "boolean", "default": True},
                    "jitter": {"type": "string"},
                    "onFailure": {"type": "object"},
                },
            },
        },
        "timezone": {"type": "string", "default": "UTC"},
        "runOnStartup": {"type": "boolean", "default": False},
        "concurrencyPolicy": {"type": "string", "enum": list(OVERLAPS), "default": "allow"},
        "startingDeadline": {"type": "string", "default": "60s"},
        "catchUpWindow": {"type": "string"},
    },
}

TEMPLATE: Resource = {
    "apiVersion": RESOURCE_KINDS["ImpulseTemplate"].api_version,
    "kind": "ImpulseTemplate",
    "metadata": {"name": NAME},
    "spec": {
        "version": VERSION,
        "description": "starts a document at the times of its schedules",
        "supportedModes": ["deployment", "statefulset"],
        "configSchema": CONFIG,
    },
}


class Schedule(msgspec.Struct, frozen=True):
    name: str
    text: str
    timetable: Timetable
    inputs: Mapping[str, Any]
    description: str
    is_enabled: bool


class Schedules(msgspec.Struct, frozen=True):
    runs_on_startup: bool
    entries: tuple[Schedule, ...]


def is_cron(impulse: Resource) -> bool:
    target = read_reference(spec_of(impulse).get("templateRef"), "")
    return target is not None and target.name == NAME


def read_schedules(impulse: Resource, only: str = "") -> Schedules:
    """Read the schedules of an Impulse, or one of them. Raises `BadSchedule` if it cannot be initialized."""
    config = spec_of(impulse).get("with")
    config = config if isinstance(config, dict) else {}
    schedules = config.get("schedules")
    if not isinstance(schedules, list) or not schedules:
        raise BadSchedule("with.schedules: there must be at least one schedule")
    if len(schedules) > MOST_SCHEDULES:
        raise BadSchedule(f"with.schedules: at most {MOST_SCHEDULES:,} schedules")
    policy = config.get("concurrencyPolicy") or "allow"
    if policy not in OVERLAPS:
        raise BadSchedule(f"with.concurrencyPolicy: {policy!r} is not one of {', '.join(OVERLAPS)}")
    try:
        zone = find_zone(str(config.get("timezone") or ""))
    except BadSchedule as refusal:
        raise BadSchedule(f"with.timezone: {refusal}") from None
    deadline = min(_duration(config, "startingDeadline", "with", STARTING_DEADLINE), LONGEST_DEADLINE)
    catch_up = _duration(config, "catchUpWindow", "with", 0)
    if catch_up > LONGEST_CATCH_UP:
        raise BadSchedule(f"with.catchUpWindow: at most {write_duration(LONGEST_CATCH_UP)}")
    entries = tuple(
        _read(entry, f"with.schedules[{index}]", zone, OVERLAPS[policy], deadline, catch_up)
        for index, entry in enumerate(schedules)
        if not only or (isinstance(entry, dict) and entry.get("name") == only)
    )
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise BadSchedule("with.schedules: two schedules have the same name")
    return Schedules(config.get("runOnStartup") is True, entries)


def token_of(impulse: str, schedule: str, instant: Instant) -> str:
    """The token of a firing of an Impulse, by its name: the same in every process (STY-162)."""
    return f"cron:{impulse}:{schedule}:{moment(instant).strftime('%Y-%m-%dT%H:%M:%SZ')}"


def event_of(schedule: Schedule, instant: Instant) -> dict[str, Any]:
    """The event that a firing delivers; `runID` is added without being hashed (STY-161, STY-162)."""
    local = moment(instant).astimezone(schedule.timetable.zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    event = {"schedule": schedule.name, "description": schedule.description, "triggeredAt": local}
    return {**schedule.inputs, "_cron": event}


def _read(entry: Any, path: str, zone: tzinfo, overlap: Overlap, deadline: Instant, catch_up: Instant) -> Schedule:
    if not isinstance(entry, dict) or not entry.get("name") or not isinstance(entry.get("cron"), str):
        raise BadSchedule(f"{path}: name and cron are required")
    if len(str(entry["name"])) > LONGEST_NAME:
        raise BadSchedule(f"{path}.name: at most {LONGEST_NAME} characters")
    try:
        cron = read_cron(entry["cron"])
    except BadSchedule as refusal:
        raise BadSchedule(f"{path}.cron: {refusal}") from None
    inputs, metadata, text = entry.get("inputs"), entry.get("metadata"), entry["cron"].strip()
    described = entry.get("description") or (metadata.get("description") if isinstance(metadata, dict) else None)
    return Schedule(
        str(entry["name"]),
        text,
        Timetable(cron, zone, _duration(entry, "jitter", path, 0), overlap, deadline, catch_up),
        inputs if isinstance(inputs, dict) else {},
        described if isinstance(described, str) and described else text,
        entry.get("enabled") is not False,
    )


def _duration(data: Mapping[str, Any], name: str, path: str, default: Instant) -> Instant:
    text = data.get(name)
    try:
        duration = read_duration(text) if text else default
    except BadDuration as refusal:
        raise BadSchedule(f"{path}.{name}: {refusal}") from None
    if duration < 0:
        raise BadSchedule(f"{path}.{name}: a duration must not be negative")
    return duration
