"""What views show otherwise than they did when a corpus was written, each change with its reason."""

import re
from typing import Any

from perdure.kernel.json_values import jsontext

_FINE = re.compile(rb"(\d\d:\d\d:\d\d[.]\d{3})\d{3}(?=Z)")

SHOWN_OTHERWISE = {
    "story inputs-too-large run": "STY-151: inputs above the limit are shown as references",
    "story map-some-at-a-time-and-reduce run.5": "STY-151: such inputs are known by their hash",
    "story map-with-stories-in-place run.6": "STY-151: such inputs are known by their hash",
    "story signals-and-effects run": "STY-052: an EffectClaim carries its times",
}
"""Runs whose `show` is another one now, and why."""


def without_requests(shown: Any) -> Any:
    """STY-183: the annotation that asked for a redrive stands beside the one that tells of it; it did not then."""
    if isinstance(shown, dict) and shown.get("kind") == "StoryRun":
        notes = shown["metadata"]["annotations"]
        for name in ("redrive-token", "redrive-from-step"):
            notes.pop(f"storyrun.bubustack.io/{name}", None)
    return shown


def told_now(language: str, events: list[Any]) -> list[Any]:
    """What `history` gives now for what it gave then."""
    return [_told_playbook(event) if language == "playbook" else event for event in events]


def _told_playbook(event: dict[str, Any]) -> dict[str, Any]:
    """PBK-161: the epoch of a lease stands in the event itself, no longer in its payload."""
    payload = event.get("payload")
    if not isinstance(payload, dict) or "lease_epoch" not in payload:
        return event
    rest = {name: value for name, value in payload.items() if name != "lease_epoch"}
    return {**event, "lease_epoch": payload["lease_epoch"], "payload": rest}


def to_milliseconds(language: str, events: list[Any]) -> list[Any]:
    """SRV-010: histories of Stories told milliseconds, and tell microseconds now."""
    return jsontext.decode(_FINE.sub(rb"\1", jsontext.encode(events))) if language == "story" else events


def without_own(events: list[Any]) -> list[Any]:
    """An event's own `at`, `seq` and `event`, which its number, time and name used to hide, were not told then."""
    return [{name: value for name, value in event.items() if not name.startswith("own_")} for event in events]
