"""Runs through the API: started, listed, followed, steered (SRV-001, 002, 012 to 014, 072, 080, 082)."""

import json
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.story.world import engram, story, template
from tests.server.serving import RETURNS, WAITS, Api, Reply, Server


def test_a_start_is_202_with_its_place_and_200_where_somebody_waits_for_its_end(server: Server) -> None:
    """SRV-012."""
    admin = server.admin
    started = admin("POST", "/api/v1/runs", {"document": WAITS, "labels": {"team": "red"}})
    run = started.json
    assert started.status == 202
    assert started.headers["location"] == f"/api/v1/runs/{run['id']}"
    expected = {"id", "language", "name", "namespace", "status", "parent", "labels", "started_at", "ended_at", "tasks"}
    assert expected | {"waits_for", "owner"} <= run.keys()
    assert (run["namespace"], run["labels"], run["parent"]) == ("default", {"team": "red"}, None)
    assert admin("GET", started.headers["location"]).json["id"] == run["id"]
    ended = admin("POST", "/api/v1/runs", {"document": RETURNS}, Prefer="wait=90")
    assert (ended.status, ended.headers["preference-applied"]) == (200, "wait=60")
    assert ended.json["status"] == "succeeded" and ended.json["value"] == 17
    patient = admin("POST", "/api/v1/runs", {"document": WAITS}, Prefer="wait=1")
    assert patient.status == 202 and "waits_for" in patient.json


def test_a_run_that_fails_is_answered_with_its_error(server: Server) -> None:
    """SRV-012: 200 has the body of /result and the id, also when the run failed."""
    document = {"drill": 1, "name": "fails", "steps": [{"fail": "Drill.Broken", "message": "as asked"}]}
    ended = server.admin("POST", "/api/v1/runs", {"document": document}, Prefer="wait=20")
    assert ended.status == 200
    assert ended.json["status"] == "failed" and ended.json["error"]["code"] == "Drill.Broken"
    assert server.admin("GET", f"/api/v1/runs/{ended.json['id']}").json["error"]["code"] == "Drill.Broken"


def test_a_token_and_an_idempotency_key_start_one_run(server: Server) -> None:
    """SRV-012: the same again is the same run; other content is 409; keys of another token are other keys."""
    admin, author = server.admin, server.role("author")
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [({"token": "t1"}, {}), ({}, {"Idempotency_Key": "key-1"})]
    for more, headers in ways:
        body = {"document": RETURNS, "input": 1, **more}
        first = admin("POST", "/api/v1/runs", body, **headers)
        again = admin("POST", "/api/v1/runs", body, **headers)
        assert first.json["id"] == again.json["id"]
        assert again.headers["location"] == first.headers["location"]
        other = admin("POST", "/api/v1/runs", {**body, "input": 2}, **headers)
        assert other.problem == (409, "CONFLICT")
    unlike = {"document": {**RETURNS, "name": "another"}, "input": 1}
    assert admin("POST", "/api/v1/runs", unlike, Idempotency_Key="key-1").problem == (409, "CONFLICT")
    labelled = {"document": RETURNS, "input": 1, "labels": {"a": "b"}}
    assert admin("POST", "/api/v1/runs", labelled, Idempotency_Key="key-1").problem == (409, "CONFLICT")
    mine = author("POST", "/api/v1/runs", {"document": RETURNS, "input": 1}, Idempotency_Key="key-1")
    theirs = admin("POST", "/api/v1/runs", {"document": RETURNS, "input": 1}, Idempotency_Key="key-1")
    assert mine.status == 202 and mine.json["id"] != theirs.json["id"]
    for key in ("", "x" * 256, "with space", "ümlaut".encode().decode("latin-1")):
        refused = admin("POST", "/api/v1/runs", {"document": RETURNS}, Idempotency_Key=key)
        assert refused.problem == (400, "USAGE")


def test_the_graph_of_a_run_says_what_happened(server: Server) -> None:
    """Section 3: nodes with status and times, edges with `taken`."""
    text = (Path(__file__).parents[2] / "examples" / "flows" / "first-call.json").read_text()
    run = server.admin("POST", "/api/v1/runs", {"document": text, "input": "world"}, Prefer="wait=20").json["id"]
    graph = server.admin("GET", f"/api/v1/runs/{run}/graph").json
    assert graph["nodes"] and all("id" in node for node in graph["nodes"])
    assert server.admin("GET", f"/api/v1/runs/{run}/graph?at=999").problem == (404, "EVENT-NOT-FOUND")


def test_ten_equal_starts_at_once_are_one_run(server: Server) -> None:
    """SRV-012."""
    ids: list[str] = []

    def start() -> None:
        ids.append(server.admin("POST", "/api/v1/runs", {"document": WAITS}, Idempotency_Key="at-once").json["id"])

    threads = [threading.Thread(target=start) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 10 and len(set(ids)) == 1


def test_labels_of_the_engine_cannot_be_given(server: Server) -> None:
    """SRV-009."""
    for name in ("bubustack.io/storyrun", "runs.bubustack.io/x", "perdure.dev/tool"):
        refused = server.admin("POST", "/api/v1/runs", {"document": RETURNS, "labels": {name: "x"}})
        assert refused.problem == (400, "USAGE")


def test_members_can_be_set_over_the_input(server: Server) -> None:
    document = {"drill": 1, "name": "echo", "steps": [{"return": "$input"}]}
    body = {"document": document, "input": {"a": 1}, "set": {"b.c": 2}}
    assert server.admin("POST", "/api/v1/runs", body, Prefer="wait=20").json["value"] == {"a": 1, "b": {"c": 2}}


def test_lists_are_stable_pages_with_filters(server: Server) -> None:
    """SRV-013: nothing that was there throughout is missed or shown twice while others start."""
    admin = server.admin
    ids = [admin.start({**RETURNS, "name": "paged"}, labels={"page": "yes"}) for _ in range(7)]
    for run in ids:
        admin.result(run)
    seen: list[str] = []
    cursor = ""
    while True:
        page = admin("GET", f"/api/v1/runs?label=page%3Dyes&limit=3{cursor}").json
        seen += [item["id"] for item in page["items"]]
        admin.start({**RETURNS, "name": "paged"}, labels={"page": "yes"})
        if "next" not in page:
            break
        assert all(letter.isalnum() or letter in "-._~" for letter in page["next"])
        cursor = f"&cursor={page['next']}"
        other = admin("GET", f"/api/v1/runs?label=page%3Dno&limit=3{cursor}")
        assert other.problem == (400, "USAGE")
    assert seen == list(reversed(ids))
    assert {item["name"] for item in admin("GET", "/api/v1/runs?name=paged").json["items"]} == {"paged"}
    assert admin("GET", "/api/v1/runs?status=running&name=paged").json["items"] == []
    assert admin("GET", "/api/v1/runs?status=nonsense").problem == (400, "USAGE")
    assert admin("GET", "/api/v1/runs?started_after=2999-01-01T00:00:00Z").json["items"] == []
    assert admin("GET", "/api/v1/runs?cursor=nonsense").problem == (400, "USAGE")


def test_a_history_is_read_by_page_and_followed_without_gap_or_repetition(server: Server) -> None:
    """SRV-014."""
    admin = server.admin
    run = admin.start(WAITS)
    stream = admin.follow(f"/api/v1/runs/{run}/events")
    assert stream.response.getheader("content-type", "").startswith("text/event-stream")
    assert stream.response.getheader("x-accel-buffering") == "no"
    events = stream.events()
    first = next(events)
    stream.close()
    admin("POST", f"/api/v1/runs/{run}/signals/go", {"value": {"n": 1}})
    admin.result(run)
    again = admin.follow(f"/api/v1/runs/{run}/events", Last_Event_ID=first["id"])
    rest = list(again.events())
    received = [first, *rest]
    whole = admin("GET", f"/api/v1/runs/{run}/events?limit=1000").json["items"]
    assert [int(event["id"]) for event in received] == [event["seq"] for event in whole]
    assert [json.loads(event["data"]) for event in received] == whole
    assert [event["event"] for event in received] == [event["event"] for event in whole]
    assert all(event["at"].endswith("Z") for event in whole)
    page = admin("GET", f"/api/v1/runs/{run}/events?limit=2").json
    assert page["items"] == whole[:2] and page["next"] == 2
    assert admin("GET", f"/api/v1/runs/{run}/events?after=2&limit=1000").json["items"] == whole[2:]
    raw = admin("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]
    assert isinstance(raw[0]["at"], int)
    over = admin.follow(f"/api/v1/runs/{run}/events", Last_Event_ID=str(whole[-1]["seq"]))
    assert over.response.status == 204
    over.close()


def test_a_stream_ends_with_its_token(server: Server) -> None:
    """SRV-014, SRV-022: the right to see is asked again every second."""
    made = server.admin("POST", "/api/v1/tokens", {"name": "watcher", "role": "viewer"}).json
    run = server.admin.start(WAITS)
    stream = Api(server.url, made["token"]).follow(f"/api/v1/runs/{run}/events")
    next(stream.events())
    server.admin("DELETE", "/api/v1/tokens/watcher")
    assert all(event["event"] != "RunEnded" for event in stream.events()), "it ends, and the run has not"


def test_every_verb_that_steers_answers_with_the_decision(server: Server) -> None:
    """SRV-082: who steers is who the token is, whatever the body says."""
    operator = server.role("operator")
    run = server.admin.start(WAITS)
    paused = operator("POST", f"/api/v1/runs/{run}/pause", {"reason": "lunch", "by": "Mallory"})
    assert paused.status == 200 and paused.json["decided"] and not paused.json["pending"]
    assert server.admin("GET", f"/api/v1/runs/{run}").json["status"] == "paused"
    assert operator("POST", f"/api/v1/runs/{run}/resume").status == 200
    key = {"value": 1, "key": "once"}
    assert operator("POST", f"/api/v1/runs/{run}/signals/other", key).status == 200
    assert operator("POST", f"/api/v1/runs/{run}/signals/other", key).status == 200
    assert operator("POST", f"/api/v1/runs/{run}/signals/other", {**key, "value": 2}).problem == (409, "CONFLICT")
    assert operator("POST", f"/api/v1/runs/{run}/cancel", {"reason": "enough"}).status == 200
    assert server.admin.result(run)["status"] == "cancelled"
    raw = json.dumps(server.admin("GET", f"/api/v1/runs/{run}/events?raw=true&limit=1000").json)
    assert "the-operator" in raw and "Mallory" not in raw
    sent = server.admin("GET", f"/api/v1/runs/{run}/events?limit=1000").json["items"]
    named = [event["event"] for event in sent if event.get("who") == {"name": "the-operator", "via": "token"}]
    assert {"RunPaused", "RunUnpaused", "SignalReceived", "CancelRequested"} <= set(named)
    forked = operator("POST", f"/api/v1/runs/{run}/fork", {"at": 2})
    assert forked.status == 201 and forked.json["source"] == run
    assert operator("POST", f"/api/v1/runs/{run}/fork", {"at": 999}).problem == (404, "EVENT-NOT-FOUND")
    assert operator("POST", f"/api/v1/runs/{forked.json['id']}/signals/go", {"value": 5}).status == 200
    assert server.admin.result(forked.json["id"])["value"] == 5
    assert operator("DELETE", f"/api/v1/runs/{run}").json["deleted"] == [run]
    assert operator("GET", f"/api/v1/runs/{run}").problem == (404, "RUN-NOT-FOUND")


STORY = story("steps: [{name: ask, type: gate}, {name: say, ref: {name: echo}, needs: [ask], with: {n: 1}}]", "orders")


FAILS = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "ask",
    "steps": {
        "ask": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/http/v1", "with": {"url": "http://127.0.0.1:9/"}},
            "next": "end",
        },
        "end": {"action": "Return"},
    },
}


def test_a_cancel_and_a_fork_under_a_key_are_done_once_and_compared(server: Server) -> None:
    """SRV-012: the same key and body, the same answer; another body or path, 409; sent at once, one fork."""
    admin = server.admin
    run, other = admin.start(WAITS), admin.start(WAITS)
    fork = f"/api/v1/runs/{run}/fork"
    forks: list[Any] = []
    threads = [
        threading.Thread(target=lambda: forks.append(admin("POST", fork, {}, Idempotency_Key="fork-1")))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    forks.append(admin("POST", fork, {}, Idempotency_Key="fork-1"))
    assert {reply.status for reply in forks} == {201} and len({reply.json["id"] for reply in forks}) == 1
    assert forks[0].headers["location"] == f"/api/v1/runs/{forks[0].json['id']}"
    assert admin("POST", fork, {"at": 1}, Idempotency_Key="fork-1").problem == (409, "CONFLICT")
    assert admin("POST", f"/api/v1/runs/{other}/fork", {}, Idempotency_Key="fork-1").problem == (409, "CONFLICT")
    assert admin("POST", fork, {}, Idempotency_Key="fork-2").json["id"] != forks[0].json["id"]
    items = admin("GET", f"/api/v1/runs?label=perdure.dev%2Fforked-from%3D{run}").json["items"]
    assert len(items) == 2

    failed = admin.start(FAILS)
    assert admin.result(failed)["status"] == "failed"
    retry = {"at_failure": True, "input": "changed"}
    twice = [admin("POST", f"/api/v1/runs/{failed}/fork", retry, Idempotency_Key="fork-3") for _ in range(2)]
    assert [reply.status for reply in twice] == [201, 201] and twice[0].json == twice[1].json
    changed = admin("POST", f"/api/v1/runs/{failed}/fork", {"at_failure": True}, Idempotency_Key="fork-3")
    assert changed.problem == (409, "CONFLICT")

    cancel = f"/api/v1/runs/{run}/cancel"
    first = admin("POST", cancel, {"reason": "no"}, Idempotency_Key="cancel-1")
    again = admin("POST", cancel, {"reason": "no"}, Idempotency_Key="cancel-1")
    assert (first.status, first.json) == (again.status, again.json) == (200, first.json)
    assert admin("POST", cancel, {"reason": "yes"}, Idempotency_Key="cancel-1").problem == (409, "CONFLICT")
    assert admin("POST", f"/api/v1/runs/{other}/cancel", Idempotency_Key="cancel-1").problem == (409, "CONFLICT")
    assert admin("GET", f"/api/v1/runs/{other}").json["status"] == "waiting"


def test_operations_on_a_run_and_versions_of_an_entry_can_be_read(server: Server) -> None:
    """SRV-083"""
    run = server.admin.start(WAITS)
    assert server.role("operator")("POST", f"/api/v1/runs/{run}/signals/go", {"value": 1}).status == 200
    done = server.role("viewer")("GET", f"/api/v1/runs/{run}/operations").json["items"]
    assert [(item["verb"], item["who"]["name"]) for item in done] == [
        ("signal_run", "the-operator"),
        ("start_run", "admin"),
    ]
    assert all("from" not in item for item in done)
    place = "/api/v1/resources/playbook/default/dated"
    step = {"step": "start", "tool": {"kind": "noop"}}
    document = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "dated", "path": "dated"}}
    for more in ({}, {"desc": "changed"}):
        written = server.admin("PUT", place, {**document, "workflow": [{**step, **more}]})
        assert written.status in (200, 201), written.text
    versions = server.admin("GET", f"{place}/versions").json["items"]
    assert [item["version"] for item in versions] == [2, 1]
    first = server.admin("GET", f"{place}/versions/1").json
    assert first["document"]["workflow"] == [step] and first["created_at"] == versions[1]["created_at"]
    assert server.admin("GET", f"{place}/versions/3").problem == (404, "RESOURCE-NOT-FOUND")
    assert server.admin("GET", "/api/v1/resources/playbook/default/none/versions").status == 404


def test_a_gate_is_decided_by_who_the_token_is(server: Server) -> None:
    """SRV-026, SRV-082: `updatedBy` is the token's name; a given name is kept beside it and counts nowhere."""
    admin, operator = server.admin, server.role("operator")
    applied = admin("POST", "/api/v1/resources:apply", {"documents": [engram("echo"), template("echo"), STORY]})
    assert applied.status == 200, applied.text
    run = operator("POST", "/api/v1/runs", {"name": "orders"}).json["id"]
    decided = operator("POST", f"/api/v1/runs/{run}/gates/ask", {"state": "Approved", "by": "Mallory"})
    assert decided.status == 200, decided.text
    picture = admin("GET", f"/api/v1/runs/{run}/picture").json
    gate = picture["status"]["gates"]["ask"]
    assert (gate["state"], gate["updatedBy"]) == ("Approved", "the-operator")
    assert "Mallory" in gate["message"]
    events = admin("GET", f"/api/v1/runs/{run}/events?limit=1000").json["items"]
    (decision,) = [event for event in events if event["event_type"] == "gate.decided"]
    assert decision["who"] == {"name": "the-operator", "via": "token"}
    assert operator("POST", f"/api/v1/runs/{run}/gates/ask", {"state": "Maybe"}).problem == (400, "USAGE")


def test_a_batch_steers_all_that_match_and_nothing_for_an_empty_filter(server: Server) -> None:
    """SRV-080."""
    admin = server.admin
    ids = {admin.start({**WAITS, "name": "batch"}) for _ in range(3)}
    assert admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {}}).problem == (400, "USAGE")
    planned = admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"name": "batch"}, "dry_run": True})
    assert planned.json["count"] == 3 and planned.json["dry_run"] is True and set(planned.json["ids"]) == ids
    done = admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"name": "batch"}}).json
    assert done["count"] == 3 and set(done["ids"]) == ids and done["failed"] == []
    for run in ids:
        assert admin.result(run)["status"] == "cancelled"
    viewer = server.role("viewer")
    refused = viewer("POST", "/api/v1/runs:batch", {"verb": "delete", "filter": {"all": True}})
    assert refused.problem == (403, "ACCESS-DENIED")


def test_a_blank_name_is_a_bad_request_and_not_the_beginning_of_every_id(server: Server) -> None:
    server.admin.start({**WAITS, "name": "only"})
    for path in ("/api/v1/runs/%20", "/api/v1/runs/%E2%80%A6/result", "/api/v1/runs:resolve?name=%20"):
        assert server.admin("GET", path).problem == (400, "USAGE"), path
    assert server.admin("GET", "/api/v1/runs:resolve?name=").status == 400
    assert server.admin("POST", "/api/v1/runs/%20/cancel", {}).problem == (400, "USAGE")


def test_a_deletion_of_all_runs_says_which_of_them_are_open(server: Server) -> None:
    """SRV-080: everything is everything; what is refused is in `failed`, of a dry run too."""
    author = server.admin("POST", "/api/v1/tokens", {"name": "of-all", "role": "author", "namespaces": ["all-of-it"]})
    caller = Api(server.url, author.json["token"])
    ended, open_run = caller.start(RETURNS), caller.start(WAITS)
    caller.result(ended)
    for dry_run in (True, False):
        body = {"verb": "delete", "filter": {"all": True}, "dry_run": dry_run}
        answer = caller("POST", "/api/v1/runs:batch", body).json
        assert (answer["count"], answer["ids"]) == (2, [ended]), answer
        assert [(each["id"], each["code"]) for each in answer["failed"]] == [(open_run, "CONFLICT")]
    assert [item["id"] for item in caller("GET", "/api/v1/runs").json["items"]] == [open_run]


def test_the_key_of_a_batch_is_kept_when_its_runs_are_gone(server: Server) -> None:
    """SRV-012, SRV-080: the same batch again, and its next piece, are answered; another one is 409."""
    admin = server.admin
    ended, waiting = admin.start(RETURNS, labels={"of": "key"}), admin.start(WAITS, labels={"of": "key"})
    admin.result(ended)

    def batch(verb: str, label: str = "of=key", key: str = "batch-key", **more: Any) -> Reply:
        body = {"verb": verb, "filter": {"label": label}, **more}
        return admin("POST", "/api/v1/runs:batch", body, Idempotency_Key=key)

    assert batch("delete").json["ids"] == [ended]
    assert (batch("delete").status, batch("delete").json["ids"]) == (200, [])
    assert batch("delete", "of=other").problem == (409, "CONFLICT")
    assert batch("cancel").problem == (409, "CONFLICT")
    assert admin("GET", f"/api/v1/runs/{waiting}").json["status"] == "waiting"
    assert batch("signal", key="nobody", signal="go", value=1, dry_run=True).status == 200
    assert batch("signal", key="nobody", signal="go", value=1).json["ids"] == [waiting]
    assert batch("signal", key="nobody", signal="go", value=2).problem == (409, "CONFLICT")


def test_a_batch_takes_every_filter_of_a_list(server: Server) -> None:
    """SRV-080: the list's parameters as members; `parent` means the children of a run."""
    admin = server.admin
    child = {"drill": 1, "name": "below", "steps": [{"signal": "never"}]}
    above = {"drill": 1, "name": "above", "steps": [{"child": child, "save": "x"}]}
    run, alone = admin.start(above), admin.start({**WAITS, "name": "batch-alone"}, labels={"of": "batch-label"})
    chosen: list[tuple[dict[str, Any], list[str]]] = [
        ({"parent": run}, [item["id"] for item in admin("GET", f"/api/v1/runs?parent={run}").json["items"]]),
        ({"q": "batch-al"}, [alone]),
        ({"q": "batch-label"}, [alone]),
        ({"q": alone[:24], "status": ["waiting"], "label": "of=batch-label"}, [alone]),
        ({"q": "batch-nobody"}, []),
    ]
    assert len(chosen[0][1]) == 1
    for filter, ids in chosen:
        planned = admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": filter, "dry_run": True})
        assert (planned.status, planned.json["ids"]) == (200, ids), filter
    assert admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"parent": "nobody"}}).status == 404
    assert admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"q": ""}}).status == 400
    done = admin("POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"q": "batch-al"}})
    assert done.json["ids"] == [alone] and admin.result(alone)["status"] == "cancelled"


def test_a_cursor_is_good_for_its_own_list_only(server: Server) -> None:
    """SRV-013: of every list that has one; only unreserved characters."""
    admin = server.admin
    runs = [admin.start(WAITS) for _ in range(3)]
    for run in runs[:2]:
        for reason in ("one", "two"):
            admin("POST", f"/api/v1/runs/{run}/pause", {"reason": reason})
            admin("POST", f"/api/v1/runs/{run}/resume", {})
    lists = [
        ("/api/v1/runs?limit=1", "/api/v1/runs?limit=1&status=paused"),
        ("/api/v1/audit?limit=1", f"/api/v1/audit?limit=1&run={runs[0]}"),
        (f"/api/v1/audit?run={runs[0]}&limit=1", f"/api/v1/audit?run={runs[1]}&limit=1"),
        (f"/api/v1/runs/{runs[0]}/operations?limit=1", f"/api/v1/runs/{runs[1]}/operations?limit=1"),
    ]
    for path, other in lists:
        page = admin("GET", path).json
        cursor = page["next"]
        assert re.fullmatch(r"[A-Za-z0-9._~-]+", cursor), path
        behind = admin("GET", f"{path}&cursor={cursor}").json["items"]
        assert behind and behind != page["items"], path
        assert admin("GET", f"{other}&cursor={cursor}").problem == (400, "USAGE"), other
        assert admin("GET", f"{path}&cursor=zz").problem == (400, "USAGE"), path
    assert admin("GET", f"/api/v1/runs/{runs[0]}/logs?cursor={cursor}").problem == (400, "USAGE")
    batch = {"verb": "cancel", "filter": {"name": "nobody"}, "cursor": cursor}
    assert admin("POST", "/api/v1/runs:batch", batch).problem == (400, "USAGE")


def test_a_filter_that_is_not_understood_is_refused_and_never_wider(server: Server) -> None:
    """SRV-080, SRV-013"""
    batch = {"verb": "cancel", "filter": {"namespace": "No_Label", "status": "waiting"}}

    assert server.admin("POST", "/api/v1/runs:batch", batch).status == 400
    assert server.admin("GET", "/api/v1/runs?namespace=No_Label").status == 400
    assert server.admin("GET", "/api/v1/runs?q=").status == 400
    assert server.admin("GET", "/api/v1/runs?namespaces=default").status == 400
    assert server.admin("GET", "/api/v1/runs?namespace=nobodys").json == {"items": []}
    assert server.admin("GET", "/api/v1/runs?namespace=default").status == 200


def test_a_stopping_server_answers_who_waits_and_ends_streams(tmp_path: Path) -> None:
    """SRV-001: exit code 0; long polls are answered with what there is; the run goes on with the next server."""
    server = Server.start(tmp_path)
    admin = server.admin
    run = admin.start(WAITS)
    polling = admin.connect()
    polling.request("GET", f"/api/v1/runs/{run}/result?wait=60", headers={"Authorization": f"Bearer {admin.token}"})
    stream = admin.follow(f"/api/v1/runs/{run}/events")
    next(stream.events())
    for _ in range(5):  # what was asked before them is being answered
        assert admin("GET", "/api/v1/whoami").status == 200
    began = time.monotonic()
    server.process.send(signal.SIGTERM)
    assert server.process.end().code == 0
    assert time.monotonic() - began < 50, "the 60 seconds of the poll were waited for"
    list(stream.events())
    assert polling.getresponse().status == 202
    polling.close()
    second = Server.start(tmp_path)
    assert second.admin("POST", f"/api/v1/runs/{run}/signals/go", {"value": 1}).status == 200
    assert second.admin.result(run)["value"] == 1
    second.stop()


def test_with_json_the_server_prints_its_address_on_stdout(tmp_path: Path) -> None:
    """SRV-001."""
    server = Server.start(tmp_path, "--json")
    process = server.process.process
    assert process.stdout is not None
    announcement = json.loads(process.stdout.readline())
    assert announcement == {"url": server.url, "pid": process.pid}
    server.stop()


@pytest.mark.parametrize("version", [18])
def test_any_server_answers_any_request_about_any_run(tmp_path: Path, postgres_url: str, version: int) -> None:
    """SRV-002, SRV-072: an act on a run of another server is answered with its owner's decision."""
    from tests.postgres import as_url

    url = as_url(postgres_url)
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    first_server = Server.start(tmp_path, "--db", url, "--lease", "3s", **env)
    second_server = Server.start(tmp_path, "--db", url, "--lease", "3s", **env)
    (file,) = (tmp_path / "state" / "perdure").glob("*/admin-token")
    first, second = (Api(server.url, file.read_text().strip()) for server in (first_server, second_server))
    runs = [first.start(WAITS) for _ in range(3)] + [second.start(WAITS) for _ in range(3)]
    for run in runs:
        assert first("GET", f"/api/v1/runs/{run}").json["id"] == run
        assert second("GET", f"/api/v1/runs/{run}").json["id"] == run
        assert second("POST", f"/api/v1/runs/{run}/signals/go", {"value": run}).json["decided"]
        assert first.result(run)["value"] == run
    keyed = [
        caller("POST", "/api/v1/runs", {"document": WAITS}, Idempotency_Key="both").json["id"]
        for caller in (first, second)
    ]
    assert keyed[0] == keyed[1]
    made = first("POST", "/api/v1/tokens", {"name": "short", "role": "viewer"}).json
    guest = Api(second_server.url, made["token"])
    assert guest("GET", "/api/v1/whoami").status == 200
    first("DELETE", "/api/v1/tokens/short")
    deadline = time.monotonic() + 60
    while guest("GET", "/api/v1/whoami").status == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert guest("GET", "/api/v1/whoami").status == 401
    first_server.stop()
    second_server.stop()


def test_instants_have_microseconds_in_every_language(server: Server) -> None:
    """SRV-010: in the history as it is shown, in the run and its steps; with `raw` they are numbers."""
    admin = server.admin
    playbook = {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": "when", "path": "when"},
        "workflow": [{"step": "start", "tool": {"kind": "noop"}}],
    }
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": {"a": {"action": "Return"}}}
    for document in (RETURNS, flow, playbook, story("steps: [{name: a, type: sleep, with: {duration: 1ms}}]", "when")):
        run = admin("POST", "/api/v1/runs", {"document": document}, Prefer="wait=60").json["id"]
        text = "".join(
            admin("GET", f"/api/v1/runs/{run}{path}").text.decode() for path in ("", "/events", "/steps", "/why")
        )
        instants = re.findall(r'"(\d{4}-\d\d-\d\dT[^"]*)"', text)
        assert instants and all(re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{6}Z", instant) for instant in instants), instants
        assert all(
            isinstance(event["at"], int) for event in admin("GET", f"/api/v1/runs/{run}/events?raw=true").json["items"]
        )


def test_steps_causes_and_log_lines_of_a_run(server: Server) -> None:
    """SRV-083: what a page about a run asks for."""
    admin = server.admin
    call = {"provider": "mwl:provider.call/perdure/echo/v1", "with": {"value": "{{ call.input }}"}}
    document = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "say",
        "steps": {
            "say": {"action": "Call", "call": call, "next": "stop"},
            "stop": {"action": "Raise", "result": {"code": "Shop.Closed", "message": "come back"}},
        },
    }
    ended = admin("POST", "/api/v1/runs", {"document": document, "input": "hello"}, Prefer="wait=20").json
    run = f"/api/v1/runs/{ended['id']}"
    steps = {step["step"]: step for step in admin("GET", f"{run}/steps").json["items"]}
    assert (steps["say"]["status"], steps["stop"]["status"]) == ("done", "failed")
    say = admin("GET", f"{run}/steps/say").json
    assert (say["output"], say["attempts"][0]["provider"], say["attempts"][0]["status"]) == ("hello", "echo", "done")
    assert admin("GET", f"{run}/steps/none").problem == (404, "STEP-NOT-FOUND")
    chain = admin("GET", f"{run}/why").json["chain"]
    assert "Shop.Closed" in chain[0]["text"] and chain[-1] == {**chain[-1], "seq": 1, "text": "the run started"}
    assert admin("GET", f"{run}/why?step=say").json["chain"][0]["text"] == "step 'say' is done"
    assert admin("GET", f"{run}/logs").json == {"items": []}
    assert admin("GET", f"{run}/logs?cursor=x").problem == (400, "USAGE")
    assert admin("GET", f"{run}/why?stop=say").problem == (400, "UNKNOWN-MEMBER")
