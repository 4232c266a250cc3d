"""Runs, their events and Playbooks in the words of NoETL's clients. Pure: what we show in, what they read out.

Their statuses are PENDING, RUNNING, COMPLETED, FAILED and CANCELLED. Their command line shows a run as failed only if
both `completed` and `failed` are true, so a failed or cancelled run has both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Status
from perdure.server.noetl.noetl_catalog import KIND, PlaybookVersion, RunVersion
from perdure.stores.protocol import RunRow
from perdure.views.times import iso, span

STATUS_WORDS = {
    Status.RUNNING: "RUNNING",
    Status.WAITING: "RUNNING",
    Status.PAUSED: "RUNNING",
    Status.SUCCEEDED: "COMPLETED",
    Status.PARTIAL: "COMPLETED",
    Status.FAILED: "FAILED",
    Status.TIMED_OUT: "FAILED",
    Status.CANCELLED: "CANCELLED",
}
END_EVENTS = {"COMPLETED": "playbook.completed", "FAILED": "playbook.failed", "CANCELLED": "execution.cancelled"}
EVENT_STATUSES = {"success": "COMPLETED", "error": "FAILED", "in_progress": "RUNNING"}
PARTIAL = "partial: the execution has a result, although parts of it failed"

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """A run as far as every answer about it needs it."""

    row: RunRow  # with its status of now
    version: RunVersion
    now: Instant
    parent: str | None = None
    error: Mapping[str, Any] | None = None  # `code` and `message`
    picture: Mapping[str, Any] | None = None  # in the words of its language; None in lists

    @property
    def word(self) -> str:
        if self.picture is not None and self.picture.get("status") == "pending":
            return "PENDING"
        return STATUS_WORDS[self.row.status]

    @property
    def is_over(self) -> bool:
        return self.row.status.is_final

    @property
    def error_text(self) -> str | None:
        """One text: their command line drops anything else."""
        message = str((self.error or {}).get("message") or (self.error or {}).get("code") or "")
        match self.row.status:
            case Status.CANCELLED:
                return f"cancelled: {message or 'no reason was given'}"
            case Status.FAILED | Status.TIMED_OUT:
                return message or self.row.status.value
            case Status.PARTIAL:
                return PARTIAL
            case _:
                return None


def execution_json(view: ExecutionView) -> Plain:
    """One of a list; with a picture also what it has returned and how far it is."""
    row, picture = view.row, view.picture or {}
    return {
        "execution_id": row.id,
        "catalog_id": view.version.catalog_id,
        "path": view.version.path,
        "version": view.version.version,
        "status": view.word,
        "perdure_status": row.status.value,
        "namespace": row.namespace,
        "start_time": iso(row.created_at),
        "end_time": iso(row.ended_at),
        **_duration(view),
        "progress": _progress(view),
        "result": picture.get("result"),
        "error": view.error_text,
        "parent_execution_id": view.parent,
    }


def status_json(view: ExecutionView) -> Plain:
    """`variables` is the `ctx`. An end is never inferred (PBK-213)."""
    picture = view.picture or {}
    order: Sequence[Sequence[Any]] = picture.get("order", ())
    is_bad = view.word in ("FAILED", "CANCELLED")
    return {
        "execution_id": view.row.id,
        "status": view.word,
        "perdure_status": view.row.status.value,
        "current_step": _current_step(picture, order),
        "completed_steps": list(dict.fromkeys(step for step, verb, _ in order if verb == "ended")),
        "completed": view.is_over,
        "failed": is_bad,
        "completion_inferred": False,
        "variables": picture.get("ctx", {}),
        "source": "events",
        "error": view.error_text,
        **_duration(view),
        "start_time": iso(view.row.created_at),
        "end_time": iso(view.row.ended_at),
    }


def _current_step(picture: Mapping[str, Any], order: Sequence[Sequence[Any]]) -> str | None:
    """What runs, else the gate that is waited at, else what was done last."""
    for name in ("current", "pending"):
        if steps := picture.get(name):
            return str(steps[0]["step"])
    return str(order[-1][0]) if order else None


def _duration(view: ExecutionView) -> Plain:
    length = max(0, (view.row.ended_at or view.now) - view.row.created_at)
    return {"duration_seconds": round(length / SECOND, 3), "duration_human": span(length)}


def _progress(view: ExecutionView) -> int:
    if view.is_over:
        return 100
    steps = (view.picture or {}).get("steps", {})
    done = sum(step["done"] for step in steps.values())
    runs = sum(step["runs"] for step in steps.values())
    return min(99, 100 * done // runs) if runs else 0


def cancellation_json(view: ExecutionView, *, is_asked: bool) -> Plain:
    """Here `failed` is false for what was cancelled."""
    is_cancelled = view.word == "CANCELLED" or (is_asked and not view.is_over)
    return {
        "execution_id": view.row.id,
        "status": "CANCELLED" if is_cancelled else view.word,
        "event_type": END_EVENTS["CANCELLED"] if is_cancelled else END_EVENTS.get(view.word, "playbook.started"),
        "cancelled": is_cancelled,
        "is_cancelled": is_cancelled,
        "completed": view.is_over,
        "failed": view.word == "FAILED",
    }


# Events.


@dataclass(frozen=True, slots=True)
class EventSelection:
    page: int = 1
    page_size: int = 100
    since_event_id: int = 0
    event_type: str | None = None


def event_page(
    events: Sequence[Mapping[str, Any]], selection: EventSelection, version: RunVersion, parent: str | None
) -> tuple[list[Plain], Plain]:
    """The events of a page, the newest first, and where the page is."""
    since, event_type = selection.since_event_id, selection.event_type
    chosen = [event for event in events if event["seq"] > since and event_type in (None, "", event["event_type"])]
    first = (selection.page - 1) * selection.page_size
    shown = chosen[::-1][first : first + selection.page_size]
    pages = ceil(len(chosen) / selection.page_size)
    place = {
        "page": selection.page,
        "page_size": selection.page_size,
        "total_events": len(chosen),
        "total_pages": pages,
        "has_next": selection.page < pages,
        "has_prev": selection.page > 1,
    }
    return [event_json(event, version, parent) for event in shown], place


def event_json(event: Mapping[str, Any], version: RunVersion, parent: str | None) -> Plain:
    """`event_id` is the number of the event: their pages compute with it."""
    payload: Mapping[str, Any] = event["payload"]
    outcome: Mapping[str, Any] = payload.get("outcome") or {}
    milliseconds = event.get("duration_ms")
    return {
        "execution_id": event["execution_id"],
        "event_id": event["seq"],
        "event_type": event["event_type"],
        "node_id": event.get("step_run_id") or event["entity_id"],
        "node_name": event.get("step") or version.path,
        "status": EVENT_STATUSES.get(event["status"], event["status"].upper()),
        "created_at": event["timestamp"],
        "timestamp": event["timestamp"],
        "context": payload,
        "result": outcome.get("result", payload.get("result")),
        "error": _text(outcome.get("error") or payload.get("error")),
        "catalog_id": version.catalog_id,
        "parent_execution_id": parent,
        "parent_event_id": None,
        "duration": None if milliseconds is None else milliseconds / 1_000,
    }


def _text(error: Any) -> str | None:
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("code") or error.get("kind"))
    return None if error is None else str(error)


def variables_json(ctx: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Plain:
    """Each variable with where it was set last."""
    patches = {
        key: event for event in events if event["event_type"] == "ctx.patched" for key in event["payload"]["keys"]
    }
    shown = {}
    for name, value in ctx.items():
        patch: Mapping[str, Any] = patches.get(name, {})
        shown[name] = {
            "value": value,
            "type": "step_result" if "step" in patch else "user_defined",
            "source_step": patch.get("step"),
            "created_at": patch.get("timestamp"),
            "accessed_at": None,
            "access_count": 0,
        }
    return shown


# Playbooks.


def entry_json(version: PlaybookVersion, *, with_content: bool = False) -> Plain:
    document = jsontext.decode(version.body) if version.body else None
    entry = {
        "catalog_id": version.catalog_id,
        "path": version.path,
        "version": version.version,
        "kind": KIND,
        "payload": document,
        "meta": None if document is None else document.get("metadata", {}),
        "layout": None,
        "created_at": iso(version.created_at),
    }
    return {**entry, "content": version.text.decode()} if with_content else entry


def registered_json(version: PlaybookVersion, *, is_new: bool) -> Plain:
    verb = "registered" if is_new else "is registered already"
    return {
        "status": "success",
        "message": f"{KIND} {version.path!r} {verb}, version {version.version}",
        "path": version.path,
        "version": version.version,
        "catalog_id": version.catalog_id,
        "kind": KIND,
    }


KINDS_OF_FIELDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
SECRET_WORDS = ("password", "secret", "token", "api_key", "apikey", "credential", "private_key")


def ui_schema(version: PlaybookVersion, now: Instant) -> Plain:
    """A form made from the workload of a Playbook."""
    document = jsontext.decode(version.body)
    metadata = document.get("metadata", {})
    workload = document.get("workload")
    return {
        "path": version.path,
        "version": version.version,
        "kind": KIND,
        "title": metadata.get("name"),
        "description_markdown": metadata.get("description") or None,
        "exposed_in_ui": metadata.get("exposed_in_ui", True) is not False,
        "fields": [_field(name, value) for name, value in workload.items()] if isinstance(workload, dict) else [],
        "generated_at": iso(now),
    }


def _field(name: str, value: Any) -> Plain:
    is_secret = any(word in name.lower() for word in SECRET_WORDS) and not isinstance(value, dict | list)
    children = [_field(inner, below) for inner, below in value.items()] if isinstance(value, dict) else []
    return {
        "name": name,
        "kind": KINDS_OF_FIELDS.get(type(value), "string"),
        "default": None if is_secret else value,
        "description": None,
        "secret": is_secret,
        "credential_glob": None,
        "options": [],
        "children": children,
    }
