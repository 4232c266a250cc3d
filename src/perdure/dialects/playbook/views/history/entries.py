"""Shared parts of the exported history: one entry, the ids of its subject, and values shortened to a size limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.names import run_id, token_id
from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import Patch, Value
from perdure.dialects.playbook.values.references import meta, task_run_id
from perdure.dialects.playbook.values.results import shard_names
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload, RunId

WORKER = "engine"  # who performs tasks: the process that drives the run
LARGEST_INPUTS = 8 * 1024
LARGEST_VALUE = 60 * 1024  # of one value: a payload holds 64 KiB at most (PBK-168)

Rest = dict[str, Any]


class HistoryEntry(NamedTuple):
    """A canonical event: its name, the id of its subject, its payload, and further members of its envelope."""

    name: str
    about: str
    payload: dict[str, Any]
    rest: Rest
    source: str = "server"
    status: str = ""  # if it does not follow from the name


@dataclass
class HistoryState:
    """What entries are made from: the state before the event, and facts of earlier events that it needs."""

    body: b.Body = field(default_factory=b.Body)
    document: str = ""  # digest of the pinned text
    arguments: dict[int, Payload] = field(default_factory=dict)  # of tasks whose attempt has no entry yet
    run: RunId | None = None
    children: set[int] = field(default_factory=set)  # runs whose attempt has no entry yet


# The subject of an event.


def token_ids(number: int, step: str) -> Rest:
    return {"token_id": token_id(number), "step": step}


def run_ids(body: b.Body, number: int, index: int = b.ALONE) -> Rest:
    run = body.runs[number]
    rest: Rest = {"step": run.step, "step_run_id": run_id(number), "token_id": token_id(run.token)}
    if index > b.ALONE:
        rest |= {"iteration": index, "iteration_id": f"{run_id(number)}/{index}", "parent_id": run_id(number)}
        if is_fanout(run):
            rest |= shard_names(number, index)
    return rest


def is_fanout(run: b.StepRun) -> bool:
    return run.loop is not None and run.loop.mode == "fanout"


def task_ids(body: b.Body, number: int, label: str = "") -> Rest:
    thread = body.threads[number]
    rest = run_ids(body, thread.run, thread.index)
    rest |= {
        "parent_id": rest.get("iteration_id", rest["step_run_id"]),
        "task_run_id": task_run_id(thread.run, thread.index, thread.visits),
        "attempt": thread.attempt,
        "worker_id": WORKER,
        "lease_epoch": thread.epoch,
    }
    return {**rest, "task": label or thread.label} if label or thread.label else rest


# Values.


def value_of(payload: Payload) -> Any:
    """A value, or a reference to one that is stored outside the log."""
    if isinstance(payload, bytes) and len(payload) <= LARGEST_VALUE:
        return jsontext.decode(payload)
    return {"kind": "result_ref", "store": "eventlog", "meta": meta(payload)}


def brief_value_of(payload: Payload) -> Any:
    size = len(payload) if isinstance(payload, bytes) else payload.size
    return value_of(payload) if size <= LARGEST_INPUTS else {"truncated": True, "bytes": size}


def result_of(value: Value) -> Any:
    """A result as templates see it; never a body that is held by reference, nor the list of a loop's results."""
    if value.reference is not None:
        return jsontext.decode(value.reference)
    return None if value.parts is not None else value_of(value.payload)


def error_of(error: Error | None) -> dict[str, Any] | None:
    return None if error is None else error.data()


def rule_of(rule: int) -> int | str | None:
    return {b.ELSE: "else", b.NO_RULE: None}.get(rule, rule)


def whole_patch(view: HistoryState, patch: Patch) -> Patch:
    """The whole values of a patch, also of keys for which only an addition was recorded (PBK-153)."""
    return view.body.ctx.whole(patch, view.body.growing)


def patch_entry(
    patch: Patch, principal: str, reason: str, rest: Mapping[str, Any], *, conflict: bool = False
) -> HistoryEntry:
    most = LARGEST_VALUE if sum(len(text) for _, text in patch) <= LARGEST_VALUE else LARGEST_VALUE // len(patch)
    values = {
        key: jsontext.decode(text) if len(text) <= most else {"truncated": True, "bytes": len(text)}
        for key, text in patch
    }
    payload = {"keys": list(values), "values": values, "principal": principal, "reason": reason, "conflict": conflict}
    return HistoryEntry("ctx.patched", "", payload, dict(rest))
