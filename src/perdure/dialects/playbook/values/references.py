"""Results by reference (section 12): the reference object of a body, and where the body is looked up.

A reference holds what templates may need without the body: its size and digest, the values that `select` extracted, and
a sample. The body itself is kept beside the log; only an `artifact` task reads it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from perdure.dialects.playbook.plan.program import ResultPolicy, Task
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.events import Stored
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.names import run_id, timestamp
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Reader, Value
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload, Ref, digest
from perdure.kernel.turn import Turn

LARGEST_IN_KV = 1024 * 1024  # PBK-171: above it a body belongs in a file, not in a row
LARGEST_EXTRACT = 16 * 1024  # of one selected value
LARGEST_SMALL = 1024  # of the members that are extracted without `select`, together
SCHEME = "noetl://"
CROSSING = ("workflow", "permanent")  # scopes whose bodies other executions of the tree may read

Shard = Mapping[str, Any]
"""The shard of a fan-out that produced a result (PBK-132)."""


class BadSelect(Exception):
    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem


# Names of bodies.


def task_run_id(run: int, index: int, visits: int) -> str:
    iteration = "" if index == b.ALONE else f"/{index}" if index > b.ALONE else f"/frame/{b.ALONE - index}"
    return f"{run_id(run)}{iteration}/{visits}"


def attempt_uri(execution: str, task: Task, run: int, index: int, visits: int, attempt: int) -> str:
    """The uri of the result of one attempt (PBK-172)."""
    iteration = "" if index == b.ALONE else f"%2F{index}"
    return f"{SCHEME}execution/{execution}/{task.place}/run/{run_id(run)}{iteration}%2F{visits}/attempt/{attempt}"


def loop_uri(execution: str, step: str, run: int) -> str:
    """The uri of the result of a looped step-run; `/results` below it is the list, `/iteration/N` one element."""
    return f"{SCHEME}execution/{execution}/step/{quote(step, safe='')}/run/{run_id(run)}"


def ctx_uri(execution: str) -> str:
    return f"{SCHEME}execution/{execution}/ctx"


# Making references.


def size_of(payload: Payload) -> int:
    return payload.size if isinstance(payload, Ref) else len(payload)


def store(turn: Turn, uri: str, policy: ResultPolicy, payload: Payload, shard: Shard | None = None) -> Stored:
    """Store a body outside the log and make its reference object. Reads the body, emits nothing."""
    value = jsontext.decode(turn.text(payload))
    size = size_of(payload)
    expires = 0 if policy.ttl is None else turn.now + policy.ttl
    reference = {
        "kind": "result_ref",
        "ref": uri,
        **_whereabouts(policy, size, expires),
        "meta": meta(payload),
        "extracted": _extracted(policy, value),
        "preview": preview(value, size, policy.preview_max),
        **(shard or {}),
    }
    return Stored(uri, jsontext.encode(reference), None, policy.scope, expires)


def _whereabouts(policy: ResultPolicy, size: int, expires: Instant) -> dict[str, Any]:
    kind = policy.store
    if kind == "auto":
        kind = "kv" if size <= LARGEST_IN_KV else "disk"
    return {"store": kind, "scope": policy.scope, "expires_at": timestamp(expires) if expires else None}


def meta(payload: Payload) -> dict[str, Any]:
    name = payload.digest if isinstance(payload, Ref) else digest(payload)
    metadata = {"content_type": "application/json", "bytes": size_of(payload), "sha256": name.hex()}
    return {**metadata, "compression": "none"}


def log_reference(uri: str, payload: Payload) -> dict[str, Any]:
    """A reference to a small result, which is in the log itself (PBK-143)."""
    return {
        "kind": "result_ref",
        "ref": uri,
        "store": "eventlog",
        "scope": "execution",
        "expires_at": None,
        "meta": meta(payload),
        "extracted": {},
    }


def _extracted(policy: ResultPolicy, value: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if policy.selects_small and not policy.select and isinstance(value, dict):
        return _small_members(value)
    for path, name in policy.select:
        values[name] = path.read(value)
        size = len(jsontext.encode(values[name]))
        if size > LARGEST_EXTRACT:
            message = f"select: {name!r} has {size} bytes, {LARGEST_EXTRACT} are allowed; select something smaller"
            raise BadSelect(error("limit", message, "EXTRACT_TOO_LARGE"))
    return values


def _small_members(value: dict[str, Any]) -> dict[str, Any]:
    """Numbers, short texts and the like, in their order, as long as they are small together."""
    members, size = dict[str, Any](), 0
    for name, member in value.items():
        if isinstance(member, dict | list):
            continue
        size += len(name) + (len(member) if isinstance(member, str) else 8)
        if size > LARGEST_SMALL:
            break
        members[name] = member
    return members


def preview(value: Any, size: int, limit: int) -> dict[str, Any]:
    sample = _sampled(value, limit) if limit else None
    sample_size = len(jsontext.encode(sample)) if limit else 0
    return {"truncated": sample_size < size, "bytes": sample_size, "sample": sample}


def _sampled(value: Any, limit: int) -> Any:
    """A prefix of a value with the same shape in about this many bytes; null if not even that fits."""
    match value:
        case str():
            return _beginning(value, limit)
        case list():
            return list(_fitting(((1, item) for item in value), limit - 1))
        case dict():
            sized = ((len(jsontext.encode(name)) + 2, item) for name, item in value.items())
            return dict(zip(value, _fitting(sized, limit - 1), strict=False))
    return value if len(jsontext.encode(value)) <= limit else None


def _fitting(sized: Iterable[tuple[int, Any]], limit: int) -> Iterator[Any]:
    """The part of these items that fits, each with its own overhead; the last of them perhaps in part."""
    for beside, item in sized:
        limit -= beside
        if limit < 3:
            return
        size = len(jsontext.encode(item))
        if size >= limit:
            yield _sampled(item, limit - 2)
            return
        yield item
        limit -= size


def _beginning(text: str, limit: int) -> str:
    cut = text[: max(0, limit)]
    while cut and (size := len(jsontext.encode(cut))) > limit:
        cut = cut[: len(cut) * limit // size]
    return cut


# Loops.


def manifest(uri: str, policy: ResultPolicy, state: LoopState, now: Instant) -> Stored:
    """The manifest that replaces the results of a loop if they are too large to be inlined (PBK-176).

    Its list of parts is left out if that list itself would be too large; the whole is read by its own reference.
    """
    expires = 0 if policy.ttl is None else now + policy.ttl
    results_uri = f"{uri}/results"
    summary: dict[str, Any] = {
        "kind": "manifest",
        "ref": results_uri,
        "strategy": "append",
        "merge_path": None,
        "total_parts": state.total,
        "total_bytes": state.size,
        **_whereabouts(policy, state.size, expires),
    }
    if policy.store == "s3":  # that is where the large ones of its parts are; the list of them stays with the run
        summary["store"] = "kv" if state.size <= LARGEST_IN_KV else "disk"
    parts = [{"ref": part_ref(uri, index, state.results.get(index))} for index in range(state.total)]
    text = jsontext.encode({**summary, "parts": parts})
    return Stored(
        results_uri, text if len(text) <= policy.inline_max else jsontext.encode(summary), None, policy.scope, expires
    )


def part_ref(uri: str, index: int, part: Value | None) -> str | None:
    if part is None:
        return None
    if part.reference is None:
        return f"{uri}/iteration/{index}"
    values: str = jsontext.decode(part.reference)["ref"]
    return values


def reference_of(value: Value, uri: str, text: Reader) -> dict[str, Any] | None:
    """The reference of a step's result, also if the result itself is inlined; None without a result."""
    if not uri:
        return None
    if value.reference is not None:
        values: dict[str, Any] = jsontext.decode(value.reference)
        return values
    if value.description is None:
        value.description = log_reference(
            uri, value.payload if value.parts is None else jsontext.encode(value.body(text))
        )
    return value.description


# Finding bodies.


def lookup(body: b.Body, uri: str) -> b.StoredBody | None:
    """What a reference of this run refers to; None if it is not (or no longer) available.

    It may have expired: a live execution that asks for it still refers to it (PBK-177).
    """
    stored = body.stored_bodies.get(uri)
    if stored is None:
        stored = next((b.StoredBody(tally.result) for tally in body.tallies.values() if _logs(tally, uri)), None)
    if stored is None:
        stored = _inside(body, uri)
    return stored


def _logs(tally: b.StepTally, uri: str) -> bool:
    """Whether this is the step's latest result and is in the log."""
    return tally.uri == uri and tally.result.reference is None


def _inside(body: b.Body, uri: str) -> b.StoredBody | None:
    """One element of a loop's results, or a loop's result whose list is held by a manifest."""
    outer, _, index = uri.rpartition("/iteration/")
    if not outer or not (index.isascii() and index.isdecimal() and len(index) <= 18):
        return body.stored_bodies.get(f"{uri}/results")
    loop_result = lookup(body, outer)
    parts = None if loop_result is None else loop_result.value.parts
    if loop_result is None or parts is None or int(index) >= len(parts):
        return None
    part = parts[int(index)]
    return None if part is None else b.StoredBody(part, part.reference, loop_result.scope, loop_result.expires)


def references_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every reference object inside a value."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if item.get("kind") in ("result_ref", "temp_ref", "manifest") and isinstance(item.get("ref"), str):
                yield item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
