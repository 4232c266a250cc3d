"""What a scenario expects of a run, and how what happened differs from it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.kernel.graphs.graph import Graph
from perdure.kernel.graphs.run_trace import Trace, Visit, VisitStatus
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Status

EXPECTED = ("status", "result", "includes", "error", "steps", "events", "calls", "waits_for")
STATUSES = tuple(status.value for status in Status)
LONGEST_SHOWN = 300


class RunExpectation(msgspec.Struct, frozen=True):
    """Only what is said is expected; `result` is exact, `includes` is a part of it."""

    status: str | None = None
    result: Any = None
    has_result: bool = False
    includes: Any = None
    has_includes: bool = False
    error: Mapping[str, str] | None = None  # `code` exactly, `message` as a part
    steps: Mapping[str, Any] = {}
    events: Sequence[Any] = ()  # in this order, others between them
    calls: Mapping[str, Any] = {}
    waits_for: Sequence[str] = ()
    line: int = 0

    @property
    def wants_failure(self) -> bool:
        return self.error is not None or self.status not in (None, "succeeded", "partial")


class Observed(msgspec.Struct, kw_only=True):
    """A run as a scenario looks at it."""

    status: str
    result: Any = None
    error: dict[str, str] | None = None
    graph: Graph | None = None
    trace: Trace | None = None
    events: list[dict[str, Any]] = msgspec.field(default_factory=list)
    calls: dict[str, list[Any]] = msgspec.field(default_factory=dict)  # by name: the arguments of each call
    awaits: list[str] = msgspec.field(default_factory=list)


def differences(expected: RunExpectation, seen: Observed) -> Iterator[str]:
    """A sentence for each thing that is not as expected."""
    yield from _end(expected, seen)
    for name, required in expected.steps.items():
        yield from _step(name, required, seen)
    yield from _events(expected.events, seen.events)
    for name, required in expected.calls.items():
        yield from _calls(name, required, seen.calls.get(name, []))
    for phrase in expected.waits_for:
        if not any(str(phrase) in awaited for awaited in seen.awaits):
            awaited = "; ".join(seen.awaits) or "nothing"
            yield f"it was to wait for {phrase!r}, and waits for: {awaited}"


def _end(expected: RunExpectation, seen: Observed) -> Iterator[str]:
    if expected.status is not None and seen.status != expected.status:
        yield f"status is {seen.status!r}, expected {expected.status!r}{_reason(seen)}"
    if (expected.has_result or expected.has_includes) and not Status(seen.status).has_result:
        yield f"there is no result: the run is {seen.status}{_reason(seen)}"
        return
    if expected.has_result:
        yield from _compare("result", expected.result, seen.result, is_part=False)
    if expected.has_includes:
        yield from _compare("result", expected.includes, seen.result, is_part=True)
    if expected.error is not None:
        if seen.error is None:
            yield f"it was to fail with {shown(expected.error)}, and is {seen.status}"
            return
        if "code" in expected.error and seen.error["code"] != expected.error["code"]:
            yield f"error.code is {seen.error['code']!r}, expected {expected.error['code']!r}"
        if expected.error.get("message", "") not in seen.error["message"]:
            yield f"error.message is {seen.error['message']!r}, without {expected.error['message']!r}"


def _reason(seen: Observed) -> str:
    if seen.error is not None:
        return (
            f" ({seen.error['code']}: {seen.error['message']})" if seen.error["message"] else f" ({seen.error['code']})"
        )
    return f" (it waits for: {'; '.join(seen.awaits)})" if seen.awaits else ""


def _compare(path: str, expected: Any, seen: Any, *, is_part: bool) -> Iterator[str]:
    """The innermost places that differ."""
    if isinstance(expected, Mapping) and isinstance(seen, Mapping):
        for name in expected:
            if name not in seen:
                yield f"{path}.{name} is missing, expected {shown(expected[name])}"
            else:
                yield from _compare(f"{path}.{name}", expected[name], seen[name], is_part=is_part)
        if not is_part:
            yield from (
                f"{path}.{name} is {shown(seen[name])}, expected nothing" for name in seen.keys() - expected.keys()
            )
    elif isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        for index, (required, actual) in enumerate(zip(expected, seen, strict=True)):
            yield from _compare(f"{path}[{index}]", required, actual, is_part=is_part)
    elif not same(expected, seen):
        yield f"{path} is {shown(seen)}, expected {shown(expected)}"


def same(expected: Any, seen: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(expected, bool) == isinstance(seen, bool) and bool(expected == seen)


def includes(expected: Any, seen: Any) -> bool:
    return next(_compare("", expected, seen, is_part=True), None) is None


def shown(value: Any) -> str:
    try:
        text = jsontext.encode(value).decode()
    except jsontext.NotJson:
        text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


# Steps, events, calls.


def find_nodes(graph: Graph, name: str) -> list[str]:
    """The nodes that people mean by a name: an id, a label, or a qualified name such as `Inner/step`."""
    ids = [node.id for node in graph.nodes]
    if name in ids:
        return [name]
    labels = {node.id: node.label for node in graph.nodes}
    parents = {node.id: node.parent for node in graph.nodes}
    required = name.split("/")
    matches = []
    for node in ids:
        here, parts = node, list(required)
        while here and parts and labels[here] == parts[-1]:
            parts.pop()
            here = parents[here]
        if not parts:
            matches.append(node)
    return matches


def visits_of(trace: Trace, node: str) -> list[Visit]:
    return [visit for visit in trace.visits if visit.node == node]


def status_of(visits: Sequence[Visit]) -> str:
    if not visits:
        return "never"
    is_open = [visit.status for visit in visits if visit.status.is_open]
    return str((is_open or [visit.status for visit in visits])[-1])


def _step(name: str, required: Any, seen: Observed) -> Iterator[str]:
    if seen.graph is None or seen.trace is None:
        yield f"steps.{name}: the steps of this run are not known"
        return
    nodes = find_nodes(seen.graph, name)
    if len(nodes) != 1:
        names = sorted({node.label for node in seen.graph.nodes})
        reason = (
            "is the name of several steps: use " + ", ".join(nodes) if nodes else f"is not a step ({', '.join(names)})"
        )
        yield f"steps.{name}: {name!r} {reason}"
        return
    visits = visits_of(seen.trace, nodes[0])
    status = status_of(visits) if visits or nodes[0] not in seen.trace.passed else "done"
    facts = required if isinstance(required, Mapping) else {"status": required}
    if "status" in facts and status != facts["status"]:
        yield f"steps.{name} is {status!r}, expected {facts['status']!r}"
    counts = {"runs": sum(visit.status is not VisitStatus.SKIPPED for visit in visits)}
    counts["attempts"] = sum(visit.attempts for visit in visits)
    for count in ("runs", "attempts"):
        if count in facts and counts[count] != facts[count]:
            yield f"steps.{name}: {counts[count]} {count}, expected {facts[count]}"


def event_name(event: Mapping[str, Any]) -> str:
    return str(event.get("event_type") or event.get("event") or "")


def _events(expected: Sequence[Any], seen: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    at = 0
    for required in expected:
        facts = {"event": required} if isinstance(required, str) else dict(required)
        name = facts.pop("event")
        position = next(
            (
                index
                for index in range(at, len(seen))
                if event_name(seen[index]) == name and includes(facts, seen[index])
            ),
            None,
        )
        if position is None:
            is_earlier = any(event_name(event) == name and includes(facts, event) for event in seen[:at])
            where = f" after event {at}" if is_earlier else ""
            yield f"events: there is no {shown(required)}{where}"
            return
        at = position + 1


def _calls(name: str, required: Any, seen: list[Any]) -> Iterator[str]:
    if isinstance(required, int):
        if len(seen) != required:
            yield f"calls.{name} is {len(seen)}, expected {required}"
        return
    if len(required) != len(seen):
        yield f"calls.{name} is {len(seen)}, expected {len(required)}: {shown(seen)}"
        return
    for index, (arguments, actual) in enumerate(zip(required, seen, strict=True)):
        yield from _compare(f"calls.{name}[{index}]", arguments, actual, is_part=True)
