"""What NoETL's clients read of our runs, events and Playbooks: the mapping is pure."""

from typing import Any

import pytest

from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Status
from perdure.server.noetl.noetl_answers import (
    EventSelection,
    ExecutionView,
    cancellation_json,
    event_page,
    execution_json,
    status_json,
    ui_schema,
    variables_json,
)
from perdure.server.noetl.noetl_catalog import PlaybookVersion, RunVersion, read_content, read_version
from perdure.stores.protocol import EditionRow, RunRow

VERSION = RunVersion("team/etl", 3, "uid-3")


def view(status: Status, picture: dict[str, Any] | None = None, **more: Any) -> ExecutionView:
    ended_at = 90 * SECOND if status.is_final else None
    row = RunRow(RunId("r"), 1, "playbook", "etl", b"", None, {}, b"", status, False, None, 0, ended_at, None)
    return ExecutionView(row, VERSION, 60 * SECOND, picture=picture, **more)


@pytest.mark.parametrize(
    ("status", "word", "flags", "error"),
    [
        (Status.RUNNING, "RUNNING", (False, False), None),
        (Status.WAITING, "RUNNING", (False, False), None),
        (Status.PAUSED, "RUNNING", (False, False), None),
        (Status.SUCCEEDED, "COMPLETED", (True, False), None),
        (Status.PARTIAL, "COMPLETED", (True, False), "partial"),
        (Status.FAILED, "FAILED", (True, True), "it broke"),
        (Status.TIMED_OUT, "FAILED", (True, True), "it broke"),
        (Status.CANCELLED, "CANCELLED", (True, True), "cancelled: it broke"),
    ],
)
def test_every_status_has_a_word_two_flags_and_a_text(
    status: Status, word: str, flags: tuple[bool, bool], error: str | None
) -> None:
    """playbook-api.md, section 2 and 6.3, 6.6: an error is one text; `cancellation-check` has `failed` false."""
    shown = status_json(view(status, {"ctx": {"a": 1}}, error={"code": "X", "message": "it broke"}))
    assert (shown["status"], (shown["completed"], shown["failed"])) == (word, flags)
    assert shown["perdure_status"] == status.value and shown["variables"] == {"a": 1}
    assert shown["error"] is None if error is None else shown["error"].startswith(error)
    checked = cancellation_json(view(status), is_asked=False)
    assert checked["cancelled"] == (word == "CANCELLED") and checked["failed"] == (word == "FAILED")


def test_the_current_step_is_what_runs_or_the_gate_or_the_last_one() -> None:
    order = [["a", "started", 1], ["a", "ended", 2], ["b", "started", 3], ["a", "ended", 4]]
    running = status_json(view(Status.RUNNING, {"order": order, "current": [{"step": "b"}], "pending": []}))
    assert (running["current_step"], running["completed_steps"]) == ("b", ["a"])
    waiting = status_json(view(Status.WAITING, {"order": order, "current": [], "pending": [{"step": "gate"}]}))
    assert waiting["current_step"] == "gate"
    assert status_json(view(Status.SUCCEEDED, {"order": order}))["current_step"] == "a"
    assert status_json(view(Status.RUNNING, {"status": "pending"}))["status"] == "PENDING"


def test_an_execution_tells_how_long_it_took_and_how_far_it_is() -> None:
    over = execution_json(view(Status.SUCCEEDED))
    assert (over["duration_seconds"], over["duration_human"], over["progress"]) == (90.0, "1 m 30 s", 100)
    assert (over["path"], over["version"], over["catalog_id"]) == ("team/etl", 3, "uid-3")
    steps = {"a": {"done": 1, "runs": 1}, "b": {"done": 0, "runs": 1}}
    going = execution_json(view(Status.RUNNING, {"steps": steps}))
    assert (going["duration_seconds"], going["progress"], going["end_time"]) == (60.0, 50, None)


def test_a_cancel_that_is_only_asked_for_counts_as_one() -> None:
    asked = cancellation_json(view(Status.RUNNING), is_asked=True)
    assert asked["cancelled"] and asked["is_cancelled"] and not asked["completed"]
    assert not cancellation_json(view(Status.SUCCEEDED), is_asked=True)["cancelled"]


def event(seq: int, kind: str = "step.done", **more: Any) -> dict[str, Any]:
    common = {"execution_id": "r", "event_type": kind, "timestamp": "t", "status": "success", "entity_id": "r"}
    return {"seq": seq, **common, "payload": {}, **more}


def test_events_are_numbered_filtered_and_paged_from_the_newest() -> None:
    events = [event(number, "step.done" if number % 2 else "step.started") for number in range(1, 8)]
    shown, place = event_page(events, EventSelection(page_size=2, event_type="step.done"), VERSION, None)
    assert [event["event_id"] for event in shown] == [7, 5] and place["total_pages"] == 2 and place["has_next"]
    shown, place = event_page(events, EventSelection(page=2, page_size=2, since_event_id=4), VERSION, "p")
    assert [event["event_id"] for event in shown] == [5] and (place["has_next"], place["has_prev"]) == (False, True)
    assert shown[0]["parent_execution_id"] == "p" and shown[0]["node_name"] == "team/etl"
    assert event_page([], EventSelection(), VERSION, None)[1]["total_pages"] == 0


def test_an_event_has_its_result_and_its_error_as_text() -> None:
    outcome = {"result": None, "error": {"kind": "http", "message": "refused"}}
    failed = event(1, status="error", payload={"outcome": outcome}, step="load", duration_ms=250, step_run_id="r1")
    (shown,), _ = event_page([failed], EventSelection(), VERSION, None)
    assert (shown["status"], shown["error"], shown["duration"]) == ("FAILED", "refused", 0.25)
    assert (shown["node_name"], shown["node_id"]) == ("load", "r1")


def test_a_variable_says_where_it_was_set_last() -> None:
    patches = [
        event(1, "ctx.patched", payload={"keys": ["a", "b"]}, step="load"),
        event(2, "ctx.patched", payload={"keys": ["b"]}, timestamp="later"),
    ]
    shown = variables_json({"a": 1, "b": 2, "c": 3}, patches)
    assert (shown["a"]["source_step"], shown["a"]["type"]) == ("load", "step_result")
    assert (shown["b"]["source_step"], shown["b"]["created_at"]) == (None, "later")
    assert shown["c"]["value"] == 3 and shown["c"]["created_at"] is None


def test_a_form_has_the_members_of_the_workload_without_secrets() -> None:
    workload = {"rows": 5, "ratio": 0.5, "dry": True, "db": {"password": "x"}, "tags": ["a"], "note": None}
    body = jsontext.encode({"metadata": {"name": "etl", "description": "loads"}, "workload": workload})
    row = EditionRow(ResourceKey("Playbook", "default", "etl"), "id", 1, len(body), 0, False)
    shown = ui_schema(PlaybookVersion(row, b"", body), 0)
    kinds = {field["name"]: field["kind"] for field in shown["fields"]}
    assert list(kinds.values()) == ["integer", "number", "boolean", "object", "array", "string"]
    (password,) = next(field["children"] for field in shown["fields"] if field["name"] == "db")
    assert password["secret"] and password["default"] is None


@pytest.mark.parametrize(
    ("content", "text"), [("a: 1", "a: 1"), ("YTog\nMQ==", "a: 1"), ("nothing of both!", "nothing of both!")]
)
def test_content_is_plain_or_base64(content: str, text: str) -> None:
    assert read_content(content) == text


@pytest.mark.parametrize(
    ("version", "number"), [(None, None), ("latest", None), ("", None), (2, 2), ("2", 2), ("2.0", 2), ("two", 0)]
)
def test_versions_are_numbers_or_the_latest(version: int | str | None, number: int | None) -> None:
    assert read_version(version) == number
