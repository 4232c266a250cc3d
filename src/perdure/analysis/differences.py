"""What two values, or the histories of two runs, do not have in common.

Histories are compared thread by thread: what happened at one step, iteration or frame is in order, what happened at two
of them beside each other is not. Numbers, times and ids that any two runs differ in do not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, zip_longest
from typing import Any, NamedTuple

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
    marks = HistoryMarks(names[0]), HistoryMarks(names[1])
    for mark, events in zip(marks, (left, right), strict=True):
        mark.add(events)
    by_number = [{event["seq"]: event for event in events} for events in (left, right)]
    partings = [
        None
        if place is None
        else part(place, [by_number[side].get(seq) for side, seq in enumerate(place.numbers)], names)
        for place in parted_places(*marks, is_open=is_open)
    ]
    return HistoryComparison(*partings)


class EventMark(NamedTuple):
    """What is kept of an event to compare it: the event itself may be large."""

    seq: int
    whole: bytes  # digests: of all that counts
    decided: bytes  # and of what was decided
    step: str


class PartedPlace(NamedTuple):
    """The same place of two histories, where the events are not the same."""

    thread: str
    left: EventMark | None
    right: EventMark | None

    @property
    def numbers(self) -> tuple[int | None, int | None]:
        return (None if self.left is None else self.left.seq, None if self.right is None else self.right.seq)

    @property
    def position(self) -> int:
        return min(mark.seq for mark in (self.left, self.right) if mark is not None)

    @property
    def is_decision(self) -> bool:
        return self.left is None or self.right is None or self.left.decided != self.right.decided


class HistoryMarks:
    """A history by thread; its events may come page by page."""

    def __init__(self, names: Sequence[str]) -> None:
        self.threads: dict[str, list[EventMark]] = {}
        self._names = names
        self._frames: dict[Any, str] = {}
        self._steps: dict[str, str] = {}  # of frames, which their events do not repeat

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        steps = self._steps
        for event in events:
            if "frame" in event and "path" in event and event["frame"] not in self._frames:
                index = f"[{event['index']}]" if event.get("index", -1) >= 0 else ""
                self._frames[event["frame"]] = f"{event['path'] or '/'}{index}"
            thread = _thread_of(event, self._frames)
            if "frame" in event and isinstance(event.get("name"), str):
                steps[thread] = event["name"]
            step = steps.get(thread, "") if "frame" in event else thread
            compared = _without_chance(event, self._names)
            mark = EventMark(int(event["seq"]), _digest(compared), _digest(_decided(compared)), step)
            self.threads.setdefault(thread, []).append(mark)
            if "frame" in event and isinstance(event.get("next"), str):
                steps[thread] = event["next"]


def parted_places(
    left: HistoryMarks, right: HistoryMarks, *, is_open: bool = False
) -> tuple[PartedPlace | None, PartedPlace | None]:
    """The first place at which two histories part, and the first at which something else was decided."""
    first: list[PartedPlace | None] = [None, None]
    for thread in dict.fromkeys([*left.threads, *right.threads]):
        is_found = [False, False]
        for mine, theirs in zip_longest(left.threads.get(thread, ()), right.threads.get(thread, ())):
            if is_open and mine is None:
                break
            if mine is not None and theirs is not None and mine.whole == theirs.whole:
                continue
            place = PartedPlace(thread, mine, theirs)
            for kind in (0, 1) if place.is_decision else (0,):
                known = first[kind]
                if not is_found[kind] and (known is None or place.position < known.position):
                    first[kind] = place
                is_found[kind] = True
            if is_found[1]:
                break
    return first[0], first[1]


def part(
    place: PartedPlace, events: Sequence[dict[str, Any] | None], names: tuple[Sequence[str], Sequence[str]]
) -> Parting:
    """What happened at a place; `events`: those that it has there."""
    left, right = events
    step = (place.left or place.right or EventMark(0, b"", b"", "")).step
    changes: list[Difference] = []
    if left is not None and right is not None:
        changes = differences(_without_chance(left, names[0]), _without_chance(right, names[1]))
    return Parting(place.thread, step, left, right, changes)


_encoder = msgspec.json.Encoder(order="deterministic")


def _digest(value: Any) -> bytes:
    return blake2b(_encoder.encode(value), digest_size=16).digest()


_ROUTE = ("step", "matched")


def _decided(event: Mapping[str, Any]) -> dict[str, Any]:
    """What stands at the places of decisions; of lists and objects that they are there."""
    decisions: dict[str, Any] = {}
    payload = event.get("payload")
    for prefix, holder in (("", event), ("payload.", payload if isinstance(payload, dict) else {})):
        for path in DECISIONS:
            value, is_there = _member(holder, path)
            if is_there:
                decisions[prefix + path] = type(value).__name__ if isinstance(value, dict | list) else [value]
        if isinstance(holder.get("arcs"), list):  # of a router, when it was evaluated
            decisions[f"{prefix}arcs"] = [[_member(arc, name)[0] for name in _ROUTE] for arc in holder["arcs"]]
    return decisions


def _member(holder: Mapping[str, Any], path: str) -> tuple[Any, bool]:
    value: Any = holder
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None, False
        value = value[name]
    return value, True


def _thread_of(event: Mapping[str, Any], frames: Mapping[Any, str]) -> str:
    """Which step, iteration or frame an event belongs to; empty: the run."""
    if event.get("frame") in frames:
        return frames[event["frame"]]
    step = event.get("step")
    if not isinstance(step, str):
        return ""
    iteration = event.get("iteration")
    return step if iteration is None else f"{step}[{iteration}]"


_STARTED = "RunStarted"


def _without_chance(event: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What languages tell is in the payload of an event; values of runs, which may have such names, are deeper."""
    chance = CHANCE | {"name"} if event.get("event") == _STARTED else CHANCE  # who compares runs knows their names
    kept = {name: member for name, member in event.items() if name not in chance}
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
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value
