"""Bodies of results in an object store (PBK-171): stored first, then referenced.

    the tool has ended ──▶ ResultStoring ──▶ a task writes the object ──▶ AttemptEnded, with the reference

That task runs where the execution runs, also for steps of a pool: the body is there, and so are the operator's keys.
A store that does not take the body is an error outcome of the attempt. The body of an earlier result is read from the
run, which has it as well; only a reference of another run is fetched from the object store.
"""

from typing import Any
from urllib.parse import unquote

import msgspec

from perdure.dialects.playbook.plan.program import Task
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.values import references
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn

STORE = "s3"
PROVIDER = "playbook.result_store"


def belongs_elsewhere(task: Task, attempt: p.AttemptEnded) -> bool:
    """Whether the body of this result is to be stored outside before the result is known."""
    return task.result.store == STORE and attempt.error is None and _stored(attempt) is not None


def _stored(attempt: p.AttemptEnded) -> p.Stored | None:
    if attempt.reference is None:
        return None
    return next((stored for stored in attempt.stored if stored.reference == attempt.reference), None)


def start_upload(turn: Turn, task: Task, attempt: p.AttemptEnded, path: str, key: str) -> None:
    """The attempt ends when the object is stored. `path` and `key` are those of the task-run."""
    number = attempt.thread
    thread: b.PipelineThread = turn.body.threads[number]
    reference: dict[str, Any] = jsontext.decode(attempt.reference or b"{}")
    arguments = {
        "action": "put",
        "namespace": turn.execution.namespace,
        "bucket": task.result.bucket,
        "key": _key(turn.execution.id, reference["ref"]),
        "sha256": reference["meta"]["sha256"],
    }
    upload = turn.schedule_task(
        PROVIDER,
        path,
        jsontext.encode(arguments),
        _body(thread, attempt),
        attempt=thread.attempt,
        max_deliveries=thread.charges_left,
        key=f"{key}/store",
    )
    if attempt.label:
        turn.emit(p.AttemptStarted(number, attempt.label, attempt.kind, upload, turn.now))
        attempt = msgspec.structs.replace(attempt, label="", kind="")
    turn.emit(p.ResultStoring(attempt, upload))


def _body(thread: b.PipelineThread, attempt: p.AttemptEnded) -> Payload:
    if attempt.source == "given":
        return attempt.result
    assert thread.outcome is not None
    return thread.outcome.result.payload


def _key(execution: str, uri: str) -> str:
    """By execution, so that no run replaces the object of another one."""
    own = f"{references.SCHEME}execution/{execution}/"
    inside = uri.removeprefix(own) if uri.startswith(own) else f"uri/{uri.removeprefix(references.SCHEME)}"
    parts = [unquote(part).replace("/", "-") for part in inside.strip("/").split("/")]
    return "/".join((execution, *parts)) + ".json"


def stored_attempt(turn: Turn, attempt: p.AttemptEnded, answer: Payload) -> p.AttemptEnded:
    """The end of the attempt, with the reference that says where the object is."""
    reference = {**jsontext.decode(attempt.reference or b"{}"), **jsontext.decode(turn.text(answer))}
    text, before = jsontext.encode(reference), _stored(attempt)
    stored = tuple(msgspec.structs.replace(item, reference=text) if item is before else item for item in attempt.stored)
    return msgspec.structs.replace(attempt, at=turn.now, reference=text, stored=stored)


def fetch_arguments(turn: Turn, reference: Any) -> dict[str, Any] | None:
    """What fetches a body that this run does not have; None: the reference does not lead to an object store."""
    match reference:
        case {"store": "s3", "object": str(place), "meta": {"sha256": str(digest)}, "ref": str(uri)}:
            if references.lookup(turn.body, uri) is None:
                return {"action": "get", "namespace": turn.execution.namespace, "object": place, "sha256": digest}
    return None
