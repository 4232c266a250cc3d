"""What two values, or the histories of two runs, do not have in common.

Histories are compared thread by thread: what happened at one step, iteration or frame is in order, what happened at two
of them beside each other is not. Numbers, times and ids that any two runs differ in do not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

MOST_DIFFERENCES = 200
DEEPEST = 64

CHANCE = frozenset(
    {
        *("seq", "at", "own_at", "timestamp", "event_id", "execution_id", "entity_id", "token_id", "step_run_id"),
        *("task_run_id", "iteration_id", "parent_id", "parent_step_run_id", "lease_epoch", "worker_id", "worker"),
        *("expires_at", "seed", "key", "idempotencyKey", "task", "child", "timer", "due", "deadline", "arrived", "who"),
        *("started_by", "labels", "payload_sha256", "content_sha256", "program", "frame", "number", "owner"),
        *("parent_execution_id", "accepted", "started_at", "ended_at", "duration_ms"),
    }
)
"""Members of events in which two runs of one document differ by chance."""

DECISIONS = frozenset(
    {
        *("event", "event_type", "next", "phase", "status", "ok", "allow", "directive", "matched_rule_index", "flow"),
        *("block", "cause", "entry", "name", "outcome", "outcome.type", "outcome.code", "outcome.status"),
        *("failure", "failure.code", "error", "error.type", "error.code"),
    }
)
"""Places in events that say what was decided; at the others are the values it was decided from."""


class Difference(msgspec.Struct):
    """At one place of two values; a place that one of them does not have is not in `has`."""

    path: str
    left: Any = None
    right: Any = None
    has: tuple[bool, bool] = (True, True)


class Parting(msgspec.Struct):
    """The same place of two histories, where something else happened; None: nothing did."""

    thread: str
    step: str  # empty: the run itself
    left: dict[str, Any] | None
    right: dict[str, Any] | None
    differences: list[Difference]


class HistoryComparison(msgspec.Struct):
    values: Parting | None  # where they part first
    decision: Parting | None  # where something else was decided first


def differences(left: Any, right: Any, most: int = MOST_DIFFERENCES) -> list[Difference]:
    """The places at which two JSON values differ, in order; at most so many."""
    return list(islice(_differences(left, right, "", 0), most))


def _differences(left: Any, right: Any, path: str, depth: int) -> Iterator[Difference]:
    if type(left) is type(right) and left == right:
        return
    if isinstance(left, dict) and isinstance(right, dict) and depth < DEEPEST:
        for name in [*left, *(name for name in right if name not in left)]:
            below = f"{path}.{name}" if path else str(name)
            if name in left and name in right:
                yield from _differences(left[name], right[name], below, depth + 1)
            else:
                yield Difference(below, left.get(name), right.get(name), (name in left, name in right))
    elif isinstance(left, list) and isinstance(right, list) and depth < DEEPEST:
        for place in range(max(len(left), len(right))):
            below = f"{path}[{place}]"
            if place < min(len(left), len(right)):
                yield from _differences(left[place], right[place], below, depth + 1)
            else:
                has = (place < len(left), place < len(right))
                yield Difference(below, left[place] if has[0] else None, right[place] if has[1] else None, has)
    elif left != right or isinstance(left, bool) is not isinstance(right, bool):
        yield Difference(path, left, right)


def compare_histories(
    left: Sequence[dict[str, Any]],
    right: Sequence[dict[str, Any]],
    names: tuple[Sequence[str], Sequence[str]],
    *,
    is_open: bool = False,
) -> HistoryComparison:
    """`names`: texts that stand for the runs themselves in their events, such as ids. `is_open`: of the left one more
    is to come, so what only the right one has is no difference.
    """
    threads = _threads(left, names[0]), _threads(right, names[1])
    values: list[Parting] = []
    decisions: list[Parting] = []
    for thread in dict.fromkeys([*threads[0], *threads[1]]):
        first, second = (own.get(thread, []) for own in threads)
        for place in range(max(len(first), len(second))):
            pair = [own[place] if place < len(own) else None for own in (first, second)]
            if pair[0] is not None and pair[1] is not None and pair[0][1] == pair[1][1]:
                continue
            if is_open and pair[0] is None:
                break
            parting = _parting(thread, pair[0], pair[1])
            if not values or values[-1].thread != thread:
                values.append(parting)
            if _is_decision(parting):
                decisions.append(parting)
                break
    return HistoryComparison(min(values, key=_position, default=None), min(decisions, key=_position, default=None))


_Event = tuple[dict[str, Any], dict[str, Any], str]  # as it was told, without chance, and its step


def _threads(events: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, list[_Event]]:
    threads: dict[str, list[_Event]] = {}
    frames: dict[Any, str] = {}
    steps: dict[str, str] = {}  # of frames, which their events do not repeat
    for event in events:
        if "frame" in event and "path" in event and event["frame"] not in frames:
            index = f"[{event['index']}]" if event.get("index", -1) >= 0 else ""
            frames[event["frame"]] = f"{event['path'] or '/'}{index}"
        thread = _thread_of(event, frames)
        if "frame" in event and isinstance(event.get("name"), str):
            steps[thread] = event["name"]
        step = steps.get(thread, "") if "frame" in event else thread
        threads.setdefault(thread, []).append((event, _without_chance(event, names), step))
        if "frame" in event and isinstance(event.get("next"), str):
            steps[thread] = event["next"]
    return threads


def _thread_of(event: Mapping[str, Any], frames: Mapping[Any, str]) -> str:
    """Which step, iteration or frame an event belongs to; empty: the run."""
    if event.get("frame") in frames:
        return frames[event["frame"]]
    step = event.get("step")
    if not isinstance(step, str):
        return ""
    iteration = event.get("iteration")
    return step if iteration is None else f"{step}[{iteration}]"


def _without_chance(event: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What languages tell is in the payload of an event; values of runs, which may have such names, are deeper."""
    kept = {name: member for name, member in event.items() if name not in CHANCE}
    payload = kept.get("payload")
    if isinstance(payload, dict):
        kept["payload"] = {name: member for name, member in payload.items() if name not in CHANCE}
    unnamed: dict[str, Any] = _without_names(kept, names)
    return unnamed


def _without_names(value: Any, names: Sequence[str], depth: int = 0) -> Any:
    if isinstance(value, dict) and depth < DEEPEST:
        return {name: _without_names(member, names, depth + 1) for name, member in value.items()}
    if isinstance(value, list) and depth < DEEPEST:
        return [_without_names(item, names, depth + 1) for item in value]
    if isinstance(value, str):
        for name in names:
            value = value.replace(name, "RUN")
    return value


def _parting(thread: str, left: _Event | None, right: _Event | None) -> Parting:
    if left is not None and right is not None:
        return Parting(thread, left[2], left[0], right[0], differences(left[1], right[1]))
    (event, _, step) = left or right or ({}, {}, "")
    return Parting(thread, step, event if left is not None else None, event if right is not None else None, [])


def _is_decision(parting: Parting) -> bool:
    if parting.left is None or parting.right is None:
        return True
    return any(difference.path.removeprefix("payload.") in DECISIONS for difference in parting.differences)


def _position(parting: Parting) -> int:
    return min(int(event["seq"]) for event in (parting.left, parting.right) if event is not None)
