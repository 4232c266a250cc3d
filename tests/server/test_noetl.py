"""NoETL's own clients against a real server: its command line from the registry, and what its pages call."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.server.noetl_client import NoetlClient, install_noetl
from tests.server.serving import RETURNS, Api, Reply, Server


def playbook(path: str, *, gate: bool = False, name: str = "", note: str = "one") -> str:
    """One step that writes `ctx`, and perhaps a gate behind it."""
    admit = {"rules": [{"when": "{{ ctx.approved | default(false) }}", "then": {"allow": True}}]}
    steps: list[dict[str, Any]] = [
        {"step": "start", "tool": {"kind": "echo", "value": "{{ workload.who }}", "spec": _remember()}}
    ]
    if gate:
        steps[0]["next"] = {"arcs": [{"step": "publish"}]}
        steps.append({"step": "publish", "spec": {"policy": {"admit": admit}}, "tool": {"kind": "noop"}})
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": name or path.rpartition("/")[2], "path": path, "description": note},
        "workload": {"who": "world", "api_key": ""},
        "workflow": steps,
    }
    return "# registered as it is written\n" + json.dumps(document, indent=1)


def _remember() -> dict[str, Any]:
    return {
        "policy": {"rules": [{"else": {"then": {"do": "continue", "set_ctx": {"greeted": "{{ outcome.result }}"}}}}]}
    }


def register(api: Api, text: str) -> dict[str, Any]:
    reply = api("POST", "/api/catalog/register", {"content": text, "resource_type": "Playbook"})
    assert reply.status == 200, reply.text
    registered: dict[str, Any] = reply.json
    return registered


def execute(api: Api, path: str, **more: Any) -> str:
    reply = api("POST", "/api/execute", {"path": path, "resource_kind": "playbook", **more})
    assert reply.status == 200, reply.text
    assert reply.json["status"] == "started" and isinstance(reply.json["commands_generated"], int)
    return str(reply.json["execution_id"])


def status(api: Api, run: str) -> dict[str, Any]:
    reply = api("GET", f"/api/executions/{run}/status")
    assert reply.status == 200, reply.text
    shown: dict[str, Any] = reply.json
    return shown


def ended(api: Api, run: str) -> dict[str, Any]:
    api.result(run)
    return status(api, run)


@pytest.fixture(scope="module")
def author(server: Server) -> Api:
    return server.role("author")


@pytest.fixture
def noetl(server: Server, author: Api, tmp_path: Path) -> NoetlClient:
    install_noetl()
    assert author.token is not None
    return NoetlClient(server.url, tmp_path, author.token)


def test_its_command_line_registers_runs_and_steers_playbooks(noetl: NoetlClient, author: Api, tmp_path: Path) -> None:
    """Every daily verb of the real program, with a session token."""
    (tmp_path / "daily.yaml").write_text(playbook("daily", gate=True))
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "nested.yaml").write_text(playbook("team/nested"))
    (folder / "values.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")

    assert "registered" in noetl("register", "playbook", "-f", "daily.yaml")
    assert "version 1" in noetl("catalog", "register", "daily.yaml")
    loaded = noetl("catalog", "load", "more", code=1)
    assert "registered 1, failed 1" in loaded, loaded
    assert json.loads(noetl("list", "Playbook", "--json"))["entries"]
    got = json.loads(noetl("catalog", "get", "team/nested"))
    assert got["content"] == playbook("team/nested") and got["version"] == 1

    started = json.loads(noetl("run", "catalog://daily@1", "-r", "distributed", "--set", "who=Ada", "--json"))
    run = started["execution_id"]
    assert "RUNNING" in noetl("status", run)
    assert author.result(execute(author, "team/nested"))["status"] == "succeeded"
    assert noetl("cancel", run, "--reason", "enough").count("CANCELLED") == 1
    assert "cancelled: enough" in noetl("status", run)
    assert json.loads(noetl("cancel", run, "--json"))["status"] == "already_completed"
    assert json.loads(noetl("cleanup", "--json"))["cancelled_count"] == 0

    again = execute(author, "team/nested", workload={"who": "Ada"})
    author.result(again)
    assert "COMPLETED" in noetl("status", again)
    assert json.loads(noetl("status", again, "--json"))["variables"] == {"greeted": "Ada"}
    assert "Rerun started" in noetl("execute", "rerun", again)
    assert again in noetl("ehdb", "query", "executions")
    assert "404" in noetl("run", "nothing/here", "-r", "distributed", code=1)


def test_content_is_read_plain_and_as_base64_and_kept_byte_for_byte(author: Api) -> None:
    """playbook-api.md, 6.12: identical content keeps its version (PBK-210), and the list has every version."""
    first, second = playbook("kept/bytes"), playbook("kept/bytes", note="two")
    registered = register(author, first)
    assert register(author, base64.b64encode(first.encode()).decode()) == registered | {
        "message": "Playbook 'kept/bytes' is registered already, version 1"
    }
    assert register(author, second)["version"] == 2
    entries = author("POST", "/api/catalog/list", {"resource_type": "Playbook", "path": "kept/bytes"}).json["entries"]
    assert [entry["version"] for entry in entries] == [2, 1]
    for asked in ({"catalog_id": registered["catalog_id"]}, {"path": "kept/bytes", "version": "1"}):
        assert author("POST", "/api/catalog/resource", asked).json["content"] == first
    for asked in ({"path": "kept/bytes"}, {"path": "kept/bytes", "version": "latest"}):
        assert author("POST", "/api/catalog/resource", asked).json["content"] == second
    assert author("POST", "/api/catalog/resource", {"path": "kept/bytes", "version": 7}).status == 404
    assert "kept/bytes" in author("GET", "/api/catalog/list/Playbook").json
    run = execute(author, registered["catalog_id"])  # an id in the place of a path
    assert author("GET", f"/api/executions/{run}").json["version"] == 1


def test_a_refused_document_is_one_text_and_a_list_and_stores_nothing(author: Api) -> None:
    """6.4: `detail` is a text with every problem."""
    text = playbook("never").replace('"noop"', '"nope"').replace('"echo"', '"nope"')
    reply = author("POST", "/api/catalog/register", {"content": text})
    assert reply.problem == (422, "DOC-INVALID")
    assert "nope" in reply.json["detail"] and reply.json["problems"]
    assert author("POST", "/api/catalog/resource", {"path": "never"}).status == 404


def test_of_a_credential_that_is_registered_as_a_playbook_nothing_is_told(author: Api) -> None:
    """6.9: also if it looks much like a Playbook."""
    secret = "hunter2-planted"
    credential = {"name": "db", "type": "postgres", "kind": "Credential", "data": {"password": secret}}
    for text in (json.dumps(credential), f"apiVersion: noetl.io/v1\nkind: Credential\nworkflow: {secret}"):
        sent = base64.b64encode(text.encode()).decode()
        reply = author("POST", "/api/catalog/register", {"content": sent, "resource_type": "Playbook"})
        assert reply.problem[0] == 422 and secret.encode() not in reply.text
    batch = author("POST", "/api/catalog/register/batch", {"items": [{"content": sent}, {"content": playbook("b/c")}]})
    assert [result["status"] for result in batch.json["results"]] == ["failed", "registered"]
    assert secret.encode() not in batch.text


def test_a_gate_is_opened_by_setting_a_variable(author: Api) -> None:
    """The only way to patch from outside, and our clearer spelling of it (PBK-156)."""
    register(author, playbook("approval", gate=True))
    first, second = execute(author, "approval"), execute(author, "approval")
    for run in (first, second):
        while (shown := status(author, run))["current_step"] != "publish":
            assert shown["status"] in ("RUNNING", "PENDING")
        assert shown["completed"] is False and shown["variables"] == {"greeted": "world"}
    done = author("POST", f"/api/vars/{first}", {"variables": {"approved": True}})
    assert done.json == {"execution_id": first, "variables_set": 1, "var_names": ["approved"]}
    patched = author("PATCH", f"/api/executions/{second}/ctx", {"ctx": {"approved": True}, "reason": "fine"})
    assert [token["step"] for token in patched.json["admitted"]] == ["publish"] and patched.json["last_seq"] > 0
    for run in (first, second):
        shown = ended(author, run)
        assert (shown["status"], shown["completed"], shown["failed"]) == ("COMPLETED", True, False)
        assert shown["completed_steps"] == ["start", "publish"] and shown["error"] is None
    assert author("POST", f"/api/vars/{first}", {"variables": {"approved": False}}).status == 409
    variables = author("GET", f"/api/vars/{first}").json["variables"]
    assert variables["approved"]["value"] is True and variables["greeted"]["source_step"] == "start"
    assert author("GET", f"/api/vars/{first}/greeted").json["value"] == "world"
    assert author("DELETE", f"/api/vars/{first}").problem[0] == 405
    assert author("GET", f"/api/vars/{first}/nothing").status == 404


def test_failed_and_cancelled_executions_have_both_flags(author: Api) -> None:
    """Their command line shows a run as failed only if `completed` and `failed` are true (6.3, 6.6)."""
    failing = json.loads(playbook("failing").partition("\n")[2])
    failing["workflow"][0]["tool"] = {"kind": "http", "url": "http://127.0.0.1:1/"}
    register(author, json.dumps(failing))
    shown = ended(author, execute(author, "failing"))
    assert (shown["status"], shown["completed"], shown["failed"]) == ("FAILED", True, True)
    assert isinstance(shown["error"], str) and shown["error"]
    assert shown["completion_inferred"] is False and shown["duration_seconds"] >= 0
    register(author, playbook("stopping", gate=True))
    run = execute(author, "stopping")
    check = f"/api/executions/{run}/cancellation-check"
    assert author("GET", check).json["cancelled"] is False
    reply = author("POST", f"/api/executions/{run}/cancel")  # without body and media type
    assert reply.json["status"] == "cancelled" and reply.json["cancelled_executions"] == [run]
    shown = status(author, run)
    assert (shown["status"], shown["completed"], shown["failed"]) == ("CANCELLED", True, True)
    assert shown["error"].startswith("cancelled: ")
    checked = author("GET", check).json
    assert (checked["cancelled"], checked["completed"], checked["failed"]) == (True, True, False)
    assert author("POST", f"/api/executions/{run}/finalize", {"status": "FAILED"}).json["status"] == "CANCELLED"
    assert (
        author("POST", f"/api/executions/{run}/cancel", raw=b'{"cascade": true}').json["status"] == "already_completed"
    )


def test_executions_and_events_are_listed_newest_first(author: Api) -> None:
    register(author, playbook("listed/a"))
    runs = [execute(author, "listed/a") for _ in range(3)]
    for run in runs:
        author.result(run)
    listed = author("GET", "/api/executions?path=listed/a&page_size=2").json
    assert [execution["execution_id"] for execution in listed] == runs[:0:-1]
    assert [
        execution["execution_id"]
        for execution in author("GET", "/api/executions?path=listed/a&page=2&page_size=2").json
    ] == [runs[0]]
    assert {"path", "version", "catalog_id", "start_time", "end_time", "progress"} <= listed[0].keys()
    assert author("GET", "/api/executions?status=running&path=listed/a&colour=red").json == []
    shown = author("GET", f"/api/executions/{runs[0]}?page=1&page_size=10").json
    numbers = [event["event_id"] for event in shown["events"]]
    assert numbers == sorted(numbers, reverse=True) and len(numbers) == 10
    assert shown["pagination"]["total_events"] == numbers[0] and shown["pagination"]["has_next"]
    kinds = author("GET", f"/api/executions/{runs[0]}/events?event_type=step.done").json["events"]
    assert [event["node_name"] for event in kinds] == ["start"]
    since = author("GET", f"/api/executions/{runs[0]}/events?since_event_id={numbers[0] - 1}").json["events"]
    assert [event["event_id"] for event in since] == numbers[:1]
    early = author("GET", f"/api/replay/state?execution_id={runs[0]}&as_of_event_id=3").json
    late = author("GET", f"/api/replay/state?execution_id={runs[0]}").json
    assert early["checksum"] != late["checksum"] and late["state"]["ctx"] == {"greeted": "world"}
    both = f"/api/replay/state?execution_id={runs[0]}&as_of_event_id=3&as_of_position=4"
    assert author("GET", both).status == 400
    assert author("GET", f"/api/result/resolve?ref={runs[0]}").status == 200


def test_starts_are_idempotent_by_key_and_refused_where_they_make_no_sense(author: Api) -> None:
    """PBK-212."""
    register(author, playbook("keyed"))
    again = [
        author("POST", "/api/execute", {"path": "keyed"}, Idempotency_Key="once").json["execution_id"] for _ in "12"
    ]
    assert again[0] == again[1]
    child = execute(author, "keyed", parent_execution_id=again[0])
    assert author("GET", f"/api/executions/{child}").json["parent_execution_id"] == again[0]
    refusals: list[tuple[Any, int]] = [
        ({}, 422),
        ({"path": "keyed", "resource_kind": "agent"}, 422),
        ({"path": "keyed", "workload": [1]}, 400),
        ({"path": "unknown"}, 404),
        ({"catalog_id": "unknown-1"}, 404),
        ({"path": "keyed", "parent_execution_id": "nobody"}, 404),
        ({"path": "keyed", "dedup": {"key": "x"}}, 422),
    ]
    for body, expected in refusals:
        assert author("POST", "/api/execute", body).problem[0] == expected, body
    batch = author("POST", "/api/execute/batch", {"executions": [{"path": "keyed"}, {"path": "unknown"}]}).json
    assert (batch["started"], batch["failed"]) == (1, 1) and "unknown" in batch["results"][1]["error"]


def test_its_pages_get_what_they_ask_for(author: Api) -> None:
    register(author, playbook("forms/one"))
    schema = author("GET", "/api/catalog/forms/one/ui_schema").json
    assert [(field["name"], field["kind"], field["secret"]) for field in schema["fields"]] == [
        ("who", "string", False),
        ("api_key", "string", True),
    ]
    assert author("GET", "/api/catalog/forms/none/ui_schema").status == 404
    stats = author("GET", "/api/dashboard/stats").json
    assert stats["total_playbooks"] >= 1 and stats["total_executions"] >= stats["failed_executions"]
    newest = author("GET", "/api/executions?page_size=10").json
    assert [execution["execution_id"] for execution in stats["recent_executions"]] == [
        execution["execution_id"] for execution in newest
    ]
    assert author("GET", "/api/worker/pools?unknown=1").json == {"items": [], "count": 0}
    first = newest[0]["execution_id"]
    assert author("GET", f"/api/executions/{first}/status?full=true").json["execution_id"] == first
    for path in ("/health", "/api/health"):
        assert author("GET", path).json["status"] == "ok"


def test_the_buttons_of_its_pages_work(server: Server, author: Api) -> None:
    """Calls that only its pages make: stop, the texts of the editor, what is wrong with one, agents."""
    first = register(author, playbook("pages/one", gate=True))
    run = execute(author, "pages/one")
    assert author("POST", f"/api/executions/{run}/stop").json["status"] == "cancelled"
    assert ended(author, run)["status"] == "CANCELLED"

    content = "/api/catalog/playbook/content?playbook_id="
    for name in ("pages%2Fone", first["catalog_id"]):
        assert author("GET", f"{content}{name}").json["content"] == playbook("pages/one", gate=True)
    assert author("GET", f"{content}none").problem == (404, "RESOURCE-NOT-FOUND")
    saved = author("PUT", f"{content}pages%2Fone", {"content": playbook("pages/one", note="two")}).json
    assert (saved["path"], saved["version"]) == ("pages/one", 2)
    other = author("PUT", f"{content}pages%2Fone", {"content": playbook("pages/other")})
    assert other.status == 422 and "nothing was saved" in other.json["detail"]
    assert author("GET", f"{content}pages%2Fother").status == 404
    assert server.role("viewer")("PUT", f"{content}pages%2Fone", {"content": "x"}).status == 403

    validate = "/api/catalog/playbooks/validate"
    assert author("POST", validate, {"content": playbook("pages/one")}).json == {"valid": True, "errors": []}
    wrong = author("POST", validate, {"content": playbook("pages/one").replace('"echo"', '"ecko"')}).json
    assert wrong["valid"] is False and "ecko" in wrong["errors"][0]
    assert author("POST", validate, {"content": "{}"}).json["valid"] is False
    assert author("POST", "/api/catalog/agents/list", {}).json == {"entries": []}
    assert author("POST", "/api/catalog/list", {"agent_only": True}).json == {"entries": []}
    assert author("GET", "/api/playbook-tests/suites/pages/one").problem == (501, "NOT-OFFERED")


def test_what_is_not_offered_says_so_and_roles_come_first(server: Server, author: Api) -> None:
    """6.15: 501 with a sentence, 403 where the role does not suffice, 404 never."""
    viewer = server.role("viewer")

    def code(reply: Reply) -> tuple[int, str]:
        return reply.problem

    for method, path in (("GET", "/api/mcp/servers"), ("POST", "/api/gcp/token"), ("GET", "/api/credentials/x/sealed")):
        assert code(author(method, path)) == (501, "NOT-OFFERED")
    assert code(author("GET", "/api/mcp/servers?kind=any")) == (501, "NOT-OFFERED")
    assert code(viewer("POST", "/api/gcp/token")) == (403, "ACCESS-DENIED")
    assert code(author("POST", "/api/postgres/execute", {"query": "select 1"})) == (403, "ACCESS-DENIED")
    assert code(viewer("POST", "/api/catalog/register", {"content": "x"})) == (403, "ACCESS-DENIED")
    assert viewer("POST", "/api/catalog/list", {}).status == 200
    assert code(server.nobody("GET", "/api/executions")) == (401, "NOT-AUTHENTICATED")
    assert server.nobody("GET", "/api/executions", X_Session_Token=viewer.token).status == 200
    assert code(server.nobody("GET", "/api/executions", X_Session_Token="wrong")) == (401, "NOT-AUTHENTICATED")


def test_runs_of_other_languages_are_not_executions(server: Server) -> None:
    run = server.admin.start(RETURNS)
    assert server.admin("GET", f"/api/executions/{run}/status").problem == (404, "RUN-NOT-FOUND")
    assert run.encode() not in server.admin("GET", "/api/executions").text


class _Seen(BaseHTTPRequestHandler):
    """Answers with what it was sent, as a careless service does."""

    def do_GET(self) -> None:
        text = json.dumps({"authorization": self.headers.get("Authorization")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        SEEN.append(str(self.headers.get("Authorization")))

    def log_message(self, format: str, *arguments: Any) -> None: ...


SEEN: list[str] = []


@pytest.fixture
def service() -> Iterator[str]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _Seen)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}/"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def test_a_credential_is_used_by_tasks_and_told_to_nobody(tmp_path: Path, service: str) -> None:
    """SRV-077: encrypted in the store, resolved in the server's process for its namespace, changed to another key."""
    secret, referenced = "hunter2-planted", "hunter3-planted"
    for name, byte in (("new", b"n"), ("old", b"o")):
        key = tmp_path / f"{name}.key"
        key.write_bytes(base64.b64encode(byte * 32))
        key.chmod(0o600)
    install_noetl()
    environment = {"PERDURE_POLICY": '{"network": "open"}', "PERDURE_SECRET_API_TOKEN": referenced}
    server = Server.start(tmp_path, PERDURE_SECRETS_KEY_FILE=str(tmp_path / "old.key"), **environment)
    try:
        author = server.role("author")
        noetl = NoetlClient(server.url, tmp_path, author.token or "")
        for name, token in (("partner_api", secret), ("other_api", "env:API_TOKEN")):
            credential = {"name": name, "type": "bearer", "data": {"token": token}, "tags": ["a"]}
            (tmp_path / f"{name}.json").write_text(json.dumps(credential))
            noetl("register", "credential", "-f", f"{name}.json")
        shown = noetl("get", "credential", "partner_api")
        assert '"keys"' in shown and secret not in shown
        assert "partner_api" in noetl("list", "Credential")
        listed = author("GET", "/api/credentials?type=bearer&q=partner").json
        assert [item["name"] for item in listed["items"]] == ["partner_api"] and "data" not in listed["items"][0]
        elsewhere = server.admin("POST", "/api/v1/tokens", {"name": "t", "role": "author", "namespaces": ["red"]})
        red = Api(server.url, elsewhere.json["token"])
        runs = []
        for api, credential_name in ((author, "partner_api"), (author, "other_api"), (red, "partner_api")):
            document = json.loads(playbook("calls").partition("\n")[2])
            document["workflow"][0]["tool"] |= {"kind": "http", "url": service, "auth": credential_name}
            del document["workflow"][0]["tool"]["value"]
            if api is red:
                del document["workflow"][0]["tool"]["spec"]  # it would go on after an error
            register(api, json.dumps(document))
            runs.append(execute(api, "calls"))
            server.admin.result(runs[-1])
        assert [f"Bearer {secret}", f"Bearer {referenced}"] == SEEN
        shown_last = ended(red, runs[-1])
        assert shown_last["status"] == "FAILED" and "partner_api" in shown_last["error"]
        assert ended(author, runs[0])["status"] == "COMPLETED"
        texts = [author("GET", f"/api/executions/{run}").text for run in runs[:2]]
        texts += [author("GET", "/api/credentials").text, server.admin("GET", "/api/v1/audit").text]
        server.stop()
        texts += [file.read_bytes() for file in tmp_path.glob("perdure.db*") if file.is_file()]
        texts.append("".join(server.process.heard).encode())
        for planted in (secret, referenced):
            assert not [text for text in texts if planted.encode() in text]
        keys = f"{tmp_path}/new.key,{tmp_path}/old.key"
        rekeyed = server.commands("secrets", "rekey", "--json", PERDURE_SECRETS_KEY_FILE=keys)
        assert rekeyed.json == {"rekeyed": 2, "secrets": 2}
    finally:
        server.commands.end_all()


def test_without_a_key_only_references_are_taken(author: Api) -> None:
    """SRV-077: 422 with a hint, and nothing is stored."""
    reply = author("POST", "/api/credentials", {"name": "db", "type": "postgres", "data": {"password": "planted"}})
    assert reply.problem == (422, "SECRETS-KEY-MISSING")
    assert "key_file" in reply.json["hint"] and b"planted" not in reply.text
    assert author("GET", "/api/credentials/db").status == 404
    for large in ({"tags": ["a"] * 101}, {"tags": "a," * 5_000}, {"meta": ["x" * 90] * 4_000}, {"type": "x" * 201}):
        refused = author("POST", "/api/credentials", {"name": "db", "data": {"password": "env:DB"}, **large})
        assert refused.status in (400, 422), "all servers look at all credentials again and again"
    made = author("POST", "/api/credentials", {"name": "db", "credential_type": "x", "data": {"password": "env:DB"}})
    assert (made.status, made.json["type"], made.json["keys"]) == (200, "x", ["password"])
    assert author("GET", f"/api/credentials/{made.json['id']}?include_data=true").json == made.json
    assert author("DELETE", "/api/credentials/db").status == 200
    assert author("DELETE", "/api/credentials/db").status == 404


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "from-noetl.md"


def test_the_guide_for_people_who_come_from_noetl_works(noetl: NoetlClient, author: Api, tmp_path: Path) -> None:
    """Its Playbook and its commands, as they are written."""
    page = GUIDE.read_text(encoding="utf-8")
    (document,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "hello.yaml").write_text(document)
    (credential,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "partner.json").write_text(credential)
    first, second, third = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    run = json.loads(noetl.shell(first)[-1])["execution_id"]
    while status(author, run)["current_step"] != "publish":
        pass
    printed = "\n".join(noetl.shell(second, ID=run))
    assert '"greeting":"Hello, Ada!"' in printed and '"admitted":[{"step":"publish"' in printed
    assert ended(author, run)["status"] == "COMPLETED" and run in printed
    registered, shown, listed = noetl.shell(third)
    assert json.loads(shown)["keys"] == ["token"] and "env:" not in registered + shown + listed
