"""What NoETL's clients call, row by row of its contract (playbook-api.md): each test names its rows."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.server.noetl_client import NoetlClient, install_noetl
from tests.server.serving import Api, Reply, Server
from tests.server.test_noetl import ended, execute, playbook, register

CONTRACT = Path(__file__).parents[3] / "shared" / "spec" / "playbook-api.md"

NOT_SERVED: dict[str, list[tuple[str, str]]] = {
    "POST /api/catalog/delete, /restore (Rust only)": [
        ("POST", "/api/catalog/delete"),
        ("POST", "/api/catalog/restore"),
    ],
    "POST /api/catalog/playbooks/explain/ai, /generate/ai": [
        ("POST", "/api/catalog/playbooks/explain/ai"),
        ("POST", "/api/catalog/playbooks/generate/ai"),
    ],
    "POST /api/executions/{id}/analyze, /analyze/ai": [
        ("POST", "/api/executions/{run}/analyze"),
        ("POST", "/api/executions/{run}/analyze/ai"),
    ],
    "PUT /api/result/{id}; GET …/{step}; GET …/list; DELETE …; GET /api/result/stats": [
        ("PUT", "/api/result/x"),
        ("GET", "/api/result/x/step"),
        ("GET", "/api/result/x/list"),
        ("DELETE", "/api/result/x"),
        ("GET", "/api/result/stats"),
    ],
    "GET /api/aggregate/loop/results?execution_id&step_name": [
        ("GET", "/api/aggregate/loop/results?execution_id=x&step_name=y")
    ],
    "POST /api/context/render": [("POST", "/api/context/render")],
    "/api/temp/*": [("GET", "/api/temp/x"), ("PUT", "/api/temp/x"), ("DELETE", "/api/temp/x")],
    "GET /api/credentials/{id}/sealed (Rust)": [("GET", "/api/credentials/x/sealed")],
    "GET/POST/DELETE /api/keychain/{catalog_id}/{name}; GET /api/keychain/catalog/{catalog_id}": [
        *((method, "/api/keychain/x/y") for method in ("GET", "POST", "DELETE")),
        ("GET", "/api/keychain/catalog/x"),
    ],
    "POST /api/gcp/token": [("POST", "/api/gcp/token")],
    "GET /api/dashboard/widgets": [("GET", "/api/dashboard/widgets")],
    "POST /api/db/init, GET /api/db/validate": [("POST", "/api/db/init"), ("GET", "/api/db/validate")],
    "GET /api/status, /threads, /pool/status, /metrics, /profiler/*": [
        ("GET", f"/api/{name}") for name in ("status", "threads", "pool/status", "metrics", "profiler/x")
    ],
    "GET/PUT/DELETE /api/playbook-tests/suites/{id}": [
        (method, "/api/playbook-tests/suites/x") for method in ("GET", "PUT", "DELETE")
    ],
    "/api/mcp/*, /api/subscriptions/*, /api/frames, /api/stages, /api/ehdb/*, /api/internal/*, /api/auth/*": [
        *(("GET", f"/api/{name}/x") for name in ("mcp", "subscriptions", "ehdb", "internal", "auth")),
        ("GET", "/api/frames"),
        ("GET", "/api/stages"),
    ],
}
"""Optional rows, and those that are not to be built: they answer with a sentence, and 404 to nobody."""

NO_CALL = {
    "auth login …": "to a gateway, not to this server; the token of this server is the session token",
    "context add/use/list/current": "a local file",
    "run FILE -r local": "runs without a server",
    "subscribe": "starts a program of its own",
    "server/worker start": "starts programs of its own",
    "build": "no HTTP",
    "k8s": "no HTTP",
    "iap": "no HTTP",
}
"""Verbs that call nothing of this server."""


@pytest.fixture(scope="module")
def author(server: Server) -> Api:
    return server.role("author")


def has(answer: dict[str, Any], *names: str) -> None:
    """Members of a row are written with commas."""
    missing = {name for text in names for name in text.split(", ")} - answer.keys()
    assert not missing, missing


def good(reply: Reply) -> Any:
    assert reply.status == 200, reply.text
    return reply.json


# Catalog.


def test_register(author: Api) -> None:
    """`POST /api/catalog/register` (6.4): plain and Base64; the path is the document's."""
    text = playbook("rows/registered", name="another-name")
    for content in (text, base64.b64encode(text.encode()).decode()):
        answer = good(author("POST", "/api/catalog/register", {"content": content}))
        has(answer, "status, message, path, version, catalog_id, kind")
        assert (answer["status"], answer["path"], answer["version"]) == ("success", "rows/registered", 1)
        assert isinstance(answer["catalog_id"], str) and answer["kind"] == "Playbook"
    wrong = author("POST", "/api/catalog/register", {"content": text.replace('"echo"', '"ecko"')})
    assert wrong.status == 422 and isinstance(wrong.json["detail"], str) and wrong.json["problems"]


def test_list_and_resource(author: Api) -> None:
    """`POST /api/catalog/list`, `POST /api/catalog/resource` (6.12): by path or id, a version as number or text."""
    ids = [register(author, playbook("rows/listed", note=note))["catalog_id"] for note in ("one", "two")]
    entries = good(author("POST", "/api/catalog/list", {"path": "rows/listed"}))["entries"]
    assert [entry["catalog_id"] for entry in entries] == ids[::-1]
    for entry in entries:
        has(entry, "catalog_id, path, version, kind, created_at")
    for asked, version in (
        ({"catalog_id": ids[0]}, 1),
        ({"path": "rows/listed"}, 2),
        ({"path": "rows/listed", "version": 1}, 1),
        ({"path": "rows/listed", "version": "1"}, 1),
        ({"path": "rows/listed", "version": "latest"}, 2),
    ):
        entry = good(author("POST", "/api/catalog/resource", asked))
        assert entry["version"] == version
        assert entry["content"] == playbook("rows/listed", note=("one", "two")[version - 1])
    assert author("POST", "/api/catalog/resource", {"path": "rows/nothing"}).status == 404


def test_form_and_paths(author: Api) -> None:
    """`GET /api/catalog/{path}/ui_schema?version=`, `GET /api/catalog/list/Playbook`: for its pages and its prompt."""
    register(author, playbook("rows/deep/form"))
    form = good(author("GET", "/api/catalog/rows/deep/form/ui_schema?version=1"))
    has(form, "path, version, kind, title, description_markdown, exposed_in_ui, fields, generated_at")
    for field in form["fields"]:
        has(field, "name, kind, default, description, secret, credential_glob, options, children")
    assert author("GET", "/api/catalog/rows/deep/form/ui_schema?version=9").status == 404
    assert "rows/deep/form" in good(author("GET", "/api/catalog/list/Playbook"))


def test_many_files(author: Api) -> None:
    """6.7: `POST /api/catalog/register/batch` registers what it can. 6.9: of a credential nothing is told or kept."""
    secret = "hunter4-planted"
    texts = (playbook("rows/batch"), json.dumps({"name": "db", "type": "postgres", "data": {"password": secret}}))
    items = [{"content": base64.b64encode(text.encode()).decode(), "resource_type": "Playbook"} for text in texts]
    reply = author("POST", "/api/catalog/register/batch", {"items": items})
    answer = good(reply)
    assert (answer["registered"], answer["failed"]) == (1, 1) and secret.encode() not in reply.text
    for index, (result, word) in enumerate(zip(answer["results"], ("registered", "failed"), strict=True)):
        has(result, "index, status, path, version, error")
        assert (result["index"], result["status"]) == (index, word)


def test_what_only_its_pages_call(author: Api) -> None:
    """Optional: `POST /api/catalog/agents/list`, and
    `GET/PUT /api/catalog/playbook/content, PUT /api/catalog/playbook, DELETE /api/catalog/playbooks/{id}, POST /api/catalog/playbooks/validate`.
    """  # noqa: E501
    register(author, playbook("rows/edited"))
    assert good(author("POST", "/api/catalog/agents/list", {})) == {"entries": []}
    place = "/api/catalog/playbook/content?playbook_id=rows%2Fedited"
    assert good(author("GET", place))["content"] == playbook("rows/edited")
    assert good(author("PUT", place, {"content": playbook("rows/edited", note="two")}))["version"] == 2
    assert good(author("POST", "/api/catalog/playbooks/validate", {"content": playbook("x")}))["valid"] is True
    for method, path in (("PUT", "/api/catalog/playbook"), ("DELETE", "/api/catalog/playbooks/x")):
        assert author(method, path).problem[0] == 501


# Executing.


def test_execute_and_rerun(author: Api) -> None:
    """`POST /api/execute`, `POST /api/executions/{id}/rerun`, `POST /api/execute/batch` (6.8, 6.15): all answer 200."""
    entry = register(author, playbook("rows/run"))
    body: dict[str, Any] = {"path": "rows/run", "resource_kind": "playbook"}
    answer = good(author("POST", "/api/execute", {**body, "workload": {"who": "Ada"}}))
    has(answer, "execution_id, status, commands_generated")
    assert answer["status"] == "started" and isinstance(answer["execution_id"], str)
    first = answer["execution_id"]
    assert ended(author, first)["variables"] == {"greeted": "Ada"}
    for more in ({"payload": {"who": "Bo"}}, {"version": 1, "workload": {"who": "Bo"}}):
        assert ended(author, good(author("POST", "/api/execute", {**body, **more}))["execution_id"])["variables"] == {
            "greeted": "Bo"
        }
    for named in ({"catalog_id": entry["catalog_id"]}, {"path": entry["catalog_id"]}):
        run = good(author("POST", "/api/execute", {**named, "parent_execution_id": first}))["execution_id"]
        shown = good(author("GET", f"/api/executions/{run}"))
        assert (shown["parent_execution_id"], shown["path"]) == (first, "rows/run")
    again = good(author("POST", f"/api/executions/{first}/rerun", {"workload": {}, "resource_kind": "playbook"}))
    assert ended(author, again["execution_id"])["variables"] == {"greeted": "Ada"}
    refusals: list[tuple[dict[str, Any], int]] = [
        ({"path": "rows/unknown"}, 404),
        ({}, 422),
        ({**body, "resource_kind": "mcp"}, 422),
    ]
    for wrong, code in refusals:
        assert author("POST", "/api/execute", wrong).status == code
    batch = good(author("POST", "/api/execute/batch", {"executions": [body, {"path": "rows/unknown"}]}))
    has(batch, "count, started, duplicates, failed, results")
    has(batch["results"][0], "index, status, execution_id, commands_generated")


# Executions.


def test_executions(author: Api) -> None:
    """`GET /api/executions`, `GET /api/executions/{id}`, `GET /api/executions/{id}/events` (6.12): a list, one, pages.
    6.2: `GET /api/ehdb/executions[/{id}[/events]]` answers the same.
    """
    register(author, playbook("rows/shown"))
    run = execute(author, "rows/shown")
    ended(author, run)
    listed = good(author("GET", "/api/executions?page=1&page_size=5"))
    assert isinstance(listed, list) and listed[0]["execution_id"] == run
    page = good(author("GET", f"/api/executions/{run}?page=1&page_size=3"))
    for shown in (listed[0], page):
        has(shown, "execution_id, catalog_id, path, version, status, start_time, end_time, duration_seconds")
        has(shown, "duration_human, progress, result, error, parent_execution_id")
        assert (shown["path"], shown["version"], shown["status"]) == ("rows/shown", 1, "COMPLETED")
        assert shown["progress"] == 100 and isinstance(shown["catalog_id"], str)
    has(page, "events, events_included, events_endpoint, pagination")
    has(page["pagination"], "page, page_size, total_events, total_pages, has_next, has_prev")
    for event in page["events"]:
        has(event, "execution_id, event_id, event_type, node_id, node_name, status, created_at, timestamp, context")
        has(event, "result, error, catalog_id, parent_execution_id, parent_event_id, duration")
        assert isinstance(event["event_id"], int) and event["status"] == event["status"].upper()
    numbers = [event["event_id"] for event in page["events"]]
    assert numbers == sorted(numbers, reverse=True) and page["pagination"]["total_pages"] > 1
    without = good(author("GET", f"/api/executions/{run}?include_events=false"))
    assert without["events"] == [] and without["events_included"] is False
    events = good(author("GET", f"/api/executions/{run}/events?page_size=3"))
    has(events, "execution_id, path, status, events, pagination")
    assert events["events"] == page["events"]
    assert good(author("GET", page["events_endpoint"]))["events"][:3] == page["events"]
    kind = page["events"][0]["event_type"]
    only = good(author("GET", f"/api/executions/{run}/events?event_type={kind}&since_event_id={numbers[0] - 1}"))
    assert [event["event_id"] for event in only["events"]] == numbers[:1]
    assert good(author("GET", "/api/ehdb/executions?limit=1"))["executions"][0]["execution_id"] == run
    assert good(author("GET", f"/api/ehdb/executions/{run}"))["status"] == "COMPLETED"
    assert good(author("GET", f"/api/ehdb/executions/{run}/events"))["events"]
    assert author("GET", "/api/executions/nothing").status == 404


def test_status_and_cancel(author: Api) -> None:
    """`GET /api/executions/{id}/status`, `POST /api/executions/{id}/cancel`,
    `GET /api/executions/{id}/cancellation-check` (6.3, 6.6, 6.10): both flags, one text, and true at once.
    Optional: `POST /api/executions/{id}/finalize` (6.5) and `POST /api/executions/{id}/stop`.
    """
    register(author, playbook("rows/cancelled", gate=True))
    run, other = execute(author, "rows/cancelled"), execute(author, "rows/cancelled")
    while (open_status := good(author("GET", f"/api/executions/{run}/status?full=true")))["current_step"] != "publish":
        assert open_status["status"] in ("PENDING", "RUNNING")
    has(open_status, "execution_id, current_step, completed_steps, failed, completed, completion_inferred, variables")
    has(open_status, "source, error, duration_seconds, duration_human, start_time, end_time, status")
    assert (open_status["completed"], open_status["failed"], open_status["completed_steps"]) == (
        False,
        False,
        ["start"],
    )
    assert author("POST", f"/api/executions/{run}/finalize", {"status": "FAILED", "error": "x"}).status == 409
    answer = good(author("POST", f"/api/executions/{run}/cancel", {"reason": "no need", "cascade": False}))
    has(answer, "status, execution_id, cancelled_executions, message")
    assert (answer["status"], answer["cancelled_executions"]) == ("cancelled", [run])
    shown = good(author("GET", f"/api/executions/{run}/status"))
    assert (shown["status"], shown["completed"], shown["failed"]) == ("CANCELLED", True, True)
    assert shown["error"] == "cancelled: no need" and shown["variables"] == {"greeted": "world"}
    check = good(author("GET", f"/api/executions/{run}/cancellation-check"))
    has(check, "execution_id, status, event_type, cancelled, completed, failed, is_cancelled")
    assert (check["cancelled"], check["is_cancelled"], check["failed"]) == (True, True, False)
    assert good(author("POST", f"/api/executions/{run}/cancel"))["status"] == "already_completed"
    assert good(author("POST", f"/api/executions/{run}/finalize", {"reason": "x"}))["execution_id"] == run
    assert good(author("POST", f"/api/executions/{other}/stop"))["status"] == "cancelled"
    assert author("POST", "/api/executions/nothing/cancel").status == 404


def test_cleanup(author: Api) -> None:
    """`POST /api/executions/cleanup` (6.14): never what waits at a gate."""
    register(author, playbook("rows/waits", gate=True))
    run = execute(author, "rows/waits")
    for body in ({"older_than_minutes": 0, "dry_run": True}, {"older_than_minutes": 0}):
        answer = good(author("POST", "/api/executions/cleanup", body))
        has(answer, "cancelled_count, execution_ids, message")
        assert run not in answer["execution_ids"]
    assert good(author("GET", f"/api/executions/{run}/status"))["completed"] is False
    author("POST", f"/api/executions/{run}/cancel")


# Live state.


def test_variables(author: Api) -> None:
    """`GET /api/vars/{id}, GET …/{name}`, `POST /api/vars/{id}`, `PATCH /api/executions/{id}/ctx` (6.11)."""
    register(author, playbook("rows/variables", gate=True))
    first, second = execute(author, "rows/variables"), execute(author, "rows/variables")
    answer = good(author("POST", f"/api/vars/{first}", {"variables": {"approved": True}, "var_type": "user_defined"}))
    assert answer == {"execution_id": first, "variables_set": 1, "var_names": ["approved"]}
    patched = good(author("PATCH", f"/api/executions/{second}/ctx", {"ctx": {"approved": True}, "reason": "fine"}))
    has(patched, "last_seq, admitted")
    for run in (first, second):
        assert ended(author, run)["status"] == "COMPLETED"
        shown = good(author("GET", f"/api/vars/{run}"))
        assert shown["execution_id"] == run and shown["count"] == len(shown["variables"]) == 2
        for variable in shown["variables"].values():
            has(variable, "value, type, source_step, created_at, accessed_at, access_count")
        assert good(author("GET", f"/api/vars/{run}/approved"))["value"] is True
        assert author("POST", f"/api/vars/{run}", {"variables": {"approved": False}}).status == 409
        assert author("DELETE", f"/api/vars/{run}/approved").status == 405


def test_replay_and_results(author: Api) -> None:
    """`GET /api/replay/state`, `GET /api/result/resolve?ref=`: the state after an event; a value by its reference."""
    register(author, playbook("rows/replayed"))
    run = execute(author, "rows/replayed")
    ended(author, run)
    place = f"/api/replay/state?execution_id={run}"
    late = good(author("GET", f"{place}&projection=execution&limit=10000&resolve_payloads=true"))
    has(late, "execution_id, checksum, state")
    sums = {good(author("GET", f"{place}&as_of_{name}"))["checksum"] for name in ("event_id=2", "position=2")}
    assert len(sums) == 1 and late["checksum"] not in sums
    assert good(author("GET", f"{place}&as_of_time=2999-01-01T00:00:00Z"))["checksum"] == late["checksum"]
    assert author("GET", f"{place}&as_of_event_id=2&as_of_time=2999-01-01T00:00:00Z").status == 400
    assert author("GET", f"/api/result/resolve?ref={run}").status == 200
    assert author("GET", "/api/result/resolve?ref=nothing").status == 404


# Credentials, and the process.


def test_credentials(author: Api) -> None:
    """`POST /api/credentials`, `GET /api/credentials`, `GET /api/credentials/{id or name}`,
    `DELETE /api/credentials/{id or name}`: no value is ever answered.
    """
    body = {"name": "rows_db", "credential_type": "postgres", "data": {"password": "env:ROWS"}, "tags": "a, b"}
    made = good(author("POST", "/api/credentials", {**body, "description": "d", "meta": {"m": 1}}))
    has(made, "id, name, type, meta, tags, description, created_at, updated_at")
    assert (made["type"], made["tags"], made["meta"]) == ("postgres", ["a", "b"], {"m": 1}) and "data" not in made
    assert good(author("POST", "/api/credentials", {"name": "rows_g", "data": {"x": "env:Y"}}))["type"] == "generic"
    listed = good(author("GET", "/api/credentials?type=postgres&q=rows"))
    assert [item["name"] for item in listed["items"]] == ["rows_db"] and "filter" in listed
    for name in ("rows_db", made["id"]):
        assert good(author("GET", f"/api/credentials/{name}?include_data=true&execution_id=x")) == made
    has(good(author("DELETE", f"/api/credentials/{made['id']}")), "status")
    assert author("GET", "/api/credentials/rows_db").status == 404


def test_health_and_start_page(server: Server, author: Api) -> None:
    """`GET /health, GET /api/health`, `GET /api/dashboard/stats`, `GET /api/worker/pools`; and
    `POST /api/postgres/execute`, which is refused. 6.13: a session token is an access token.
    """
    for path in ("/health", "/api/health"):
        assert good(server.nobody("GET", path))["status"] == "ok"
    stats = good(author("GET", "/api/dashboard/stats"))
    has(stats, "status, stats, total_executions, successful_executions, failed_executions, total_playbooks")
    has(stats, "active_workflows, active_executions, success_rate, recent_executions")
    pools = good(author("GET", "/api/worker/pools"))
    has(pools, "items, count")
    assert author("POST", "/api/postgres/execute", {"query": "select 1"}).status == 403
    assert server.nobody("GET", "/api/executions", X_Session_Token=author.token).status == 200


def test_other_rows_answer_with_a_sentence(author: Api) -> None:
    """6.15: 501, and what to do instead."""
    register(author, playbook("rows/refused"))
    run = execute(author, "rows/refused")
    for method, path in (request for requests in NOT_SERVED.values() for request in requests):
        reply = author(method, path.replace("{run}", run))
        assert reply.problem == (501, "NOT-OFFERED"), (method, path)
        assert " " in reply.json["detail"]


# Its command line.


def test_verbs(server: Server, author: Api, tmp_path: Path) -> None:
    """Section 3, and 6.1: which exit code a refusal has.

    `run REF -r distributed`, `exec`, `execute playbook PATH`; `execute rerun ID`;
    `status ID [--json]`, `execute status ID`; `cancel ID [--reason] [--cascade]`;
    `cleanup [--older-than-minutes] [--dry-run]`; `list TYPE`, `catalog list TYPE`; `catalog get PATH`;
    `catalog register FILE`, `register playbook -f/-d`; `register credential -f/-d`; `get credential NAME`;
    `query SQL [--schema] [--format]`; `db init`, `db validate`; `ehdb query executions [--status --limit]`.
    """
    install_noetl()
    noetl = NoetlClient(server.url, tmp_path, author.token or "")
    (tmp_path / "verbs.yaml").write_text(playbook("verbs"))
    (tmp_path / "folder").mkdir()
    members = json.loads(playbook("verbs/more", gate=True).partition("\n")[2])
    lines = [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in members.items()]
    (tmp_path / "folder" / "more.yaml").write_text("\n".join(lines))  # with `kind: Playbook`, by which it is found
    (tmp_path / "credential.json").write_text(json.dumps({"name": "verbs_c", "type": "x", "data": {"k": "env:K"}}))
    noetl("catalog", "register", "verbs.yaml")
    noetl("register", "playbook", "-d", "folder")
    noetl("register", "credential", "-f", "credential.json")
    assert "verbs_c" in noetl("get", "credential", "verbs_c")
    words: tuple[str, ...]
    for words in (("list", "Playbook"), ("catalog", "list", "Playbook")):
        assert "verbs/more" in noetl(*words, "--json")
    assert json.loads(noetl("catalog", "get", "verbs"))["content"] == playbook("verbs")

    runs = []
    for words in (
        ("run", "verbs.yaml", "-r", "distributed"),  # the file's stem is the path
        ("exec", "catalog://verbs@1", "-r", "distributed"),
        ("execute", "playbook", "verbs"),
    ):
        printed = noetl(*words, "--json")
        runs.append(json.loads(printed[printed.index("{") :])["execution_id"])
        assert ended(author, runs[-1])["status"] == "COMPLETED"
    for words in (("status", runs[0], "--json"), ("execute", "status", runs[0], "--json")):
        printed = noetl(*words)
        assert json.loads(printed[printed.index("{") :])["variables"] == {"greeted": "world"}
    assert "Rerun started" in noetl("execute", "rerun", runs[0])
    waiting = execute(author, "verbs/more")
    assert "RUNNING" in noetl("status", waiting)
    assert json.loads(noetl("cleanup", "--older-than-minutes", "0", "--dry-run", "--json"))["cancelled_count"] == 0
    noetl("cancel", waiting, "--reason", "enough", "--cascade")
    assert "cancelled: enough" in noetl("status", waiting)
    assert waiting in noetl("ehdb", "query", "executions", "--limit", "3")

    for words in (("status", "nothing"), ("catalog", "get", "nothing"), ("get", "credential", "nothing")):
        noetl(*words)
    refused = (("query", "select 1"), ("db", "init"), ("db", "validate"), ("cancel", "nothing"))
    for words in refused:
        noetl(*words, code=1)


# Nothing is forgotten.


def _cited() -> str:
    return "\n".join(value.__doc__ or "" for name, value in globals().items() if name.startswith("test_"))


@pytest.mark.skipif(not CONTRACT.is_file(), reason="the contract is not here (shared/spec/playbook-api.md)")
def test_every_row_of_the_contract_is_cited_or_left_out_with_a_reason() -> None:
    cited = _cited()
    quoted = set(re.findall(r"`([^`]+)`", cited))
    text = CONTRACT.read_text(encoding="utf-8")
    endpoints, verbs, corrections = (
        text[text.index(begin) : text.index(end)]
        for begin, end in (("## 2. ", "## 3. "), ("## 3. ", "## 4. "), ("## 6. ", "\n15. "))
    )
    rows = re.findall(r"^\| ([EUO-])[^|]*\| ([^|]+?) \|", endpoints, re.MULTILINE)
    assert len([mark for mark, _ in rows if mark in "EU"]) > 25
    missing = [row for mark, row in rows if row not in quoted and (mark in "EU" or row not in NOT_SERVED)]
    assert missing == [], "no test names these rows"
    named = {
        verb for row in re.findall(r"^\| (`[^|]+) \|", verbs, re.MULTILINE) for verb in re.findall("`([^`]+)`", row)
    }
    assert len(named) > 15
    assert named - quoted - NO_CALL.keys() == set(), "no test names these verbs"
    numbers = [*re.findall(r"^(\d+)\. ", corrections, re.MULTILINE), "15"]
    assert [number for number in numbers if not re.search(rf"\b6\.{number}\b", cited)] == []
    assert NOT_SERVED.keys() <= {row for _, row in rows} and NO_CALL.keys() <= named, "no such row"
