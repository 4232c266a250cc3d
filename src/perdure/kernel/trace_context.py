"""Trace context as W3C has it: which trace a run belongs to, and which span is which part of it.

Ids derive from the ids of runs, so that any process, also after a crash, gives the same thing the same id. A run that
was started with a `traceparent` belongs to that trace; so do all runs below it.
"""

from collections.abc import Mapping
from hashlib import sha256

from perdure.kernel.ids import root_of
from perdure.kernel.lazy_regex import lazy_regex

TRACEPARENT = "perdure.dev/traceparent"
"""The label of a run that keeps what its start was given."""

SAMPLED = "01"
_FORM = lazy_regex(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def read_traceparent(text: str) -> str | None:
    """The header in the form of version 00; None if it is none, as the specification says to ignore it."""
    match = _FORM.fullmatch(text.strip().lower())
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    is_empty = not int(trace, 16) or not int(span, 16)
    if version == "ff" or is_empty or (version == "00" and rest):
        return None
    return f"00-{trace}-{span}-{SAMPLED if int(flags, 16) & 1 else '00'}"


def trace_id(run: str, labels: Mapping[str, str]) -> str:
    if parent := labels.get(TRACEPARENT):
        return parent[3:35]
    return sha256(f"perdure trace {root_of(run)}".encode()).hexdigest()[:32]


def parent_span(labels: Mapping[str, str]) -> str:
    """The span that a start was given; empty if it was given none."""
    return labels.get(TRACEPARENT, "")[36:52]


def is_sampled(labels: Mapping[str, str]) -> bool:
    return not labels.get(TRACEPARENT, "").endswith("-00")


def span_id(run: str, *parts: str | int) -> str:
    """Of a part of a run: a life of it, a visit of a step, an attempt."""
    return sha256("\0".join((run, *map(str, parts))).encode()).hexdigest()[:16]


def attempt_span(run: str, task: int) -> str:
    """Numbers of tasks are never used again in a run, and each attempt has its own."""
    return span_id(run, "task", task)


def traceparent_of_task(run: str, labels: Mapping[str, str], task: int) -> str:
    """What the task is given, to go on with; empty for a run that was started without."""
    if TRACEPARENT not in labels:
        return ""
    flags = SAMPLED if is_sampled(labels) else "00"
    return f"00-{trace_id(run, labels)}-{attempt_span(run, task)}-{flags}"
